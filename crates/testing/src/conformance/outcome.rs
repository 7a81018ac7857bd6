//! The actual and the expected outcome of a case.

use super::Case;
use super::case::{Before, index};
use super::execution::Ran;
use super::machine::TestMachine;
use super::tables::{Content, contents, expect_entry};
use super::text::{self, Labels};
use vm::{End, Exception, STACK_WORDS, Word};

/// Everything that a run can change.
#[derive(Debug, PartialEq)]
pub(crate) struct After {
    end: String,
    major: Option<u32>,
    minor: Option<u32>,
    /// The elements of the stack, top first.
    stack: Vec<u64>,
    log: Vec<u8>,
    trace: Vec<u8>,
    locals: Vec<u64>,
    globals: Vec<u64>,
    machine: TestMachine,
    maps: Vec<Content>,
}

impl After {
    /// The outcome of a run.
    pub(crate) fn new(
        ran: Ran,
        locals: Vec<u64>,
        globals: Vec<u64>,
        machine: TestMachine,
        maps: Vec<Content>,
    ) -> After {
        let end = match ran.outcome.end {
            End::Exception(Exception { code, parm1, parm2 }) => {
                format!("exception {code:#x} {parm1:#x} {parm2:#x}")
            }
            end => format!("{end:?}"),
        };
        let (major, minor) = (ran.outcome.major, ran.outcome.minor);
        After {
            end,
            major,
            minor,
            stack: ran.stack,
            log: ran.log,
            trace: ran.trace,
            locals,
            globals,
            machine,
            maps,
        }
    }
}

impl Case {
    /// The expected outcome of the case: nothing changes except as its EXPECT part says.
    pub(crate) fn expected(&self, before: Before, labels: &Labels, after: &After) -> After {
        let Before { word, mask, locals, globals, machine, mut tables, .. } = before;
        let words = tables.words();
        let mut expected = After {
            end: String::new(),
            major: None,
            minor: None,
            stack: Vec::new(),
            log: Vec::new(),
            trace: Vec::new(),
            locals,
            globals,
            machine,
            maps: contents(&vm::Maps { infos: &tables.infos, words: &words }),
        };
        // An unhandled exception's information is on the stack, above the elements that the case
        // lists.
        let mut raised = Vec::new();
        // Whether it wrapped around the stack.
        let mut wrapped = false;
        for line in &self.expected {
            let number = |index: usize| text::number(&line[index], word, labels);
            match line[0].as_str() {
                "end" => {
                    expected.end = ending(&line[1..], word, labels);
                    let name = line[1].as_str();
                    let ends = ["exit", "abort", "remove", "again"].contains(&name);
                    if !ends && code(name) & u64::from(mask) != 0 {
                        let parameter =
                            |place: usize| line.get(place).map_or(0, |text| text::number(text, word, labels));
                        raised = vec![code(name), parameter(2), parameter(3)];
                    }
                }
                "major" => expected.major = Some(number(1) as u32),
                "minor" => expected.minor = Some(number(1) as u32),
                "stack" => expected.stack = text::numbers(&line[1..], word, labels),
                "top" => {
                    let depth = number(1) as usize;
                    let top = text::numbers(&line[2..], word, labels);
                    let below = after.stack.get(raised.len() + top.len()..).unwrap_or(&[]);
                    expected.stack = [&top[..], below].concat();
                    let whole = (depth + raised.len()) % STACK_WORDS;
                    wrapped = whole < raised.len();
                    assert_eq!(after.stack.len(), whole, "{}: depth", self.name);
                }
                "trace" => expected.trace.extend(text::bytes(&line[1..], word, labels)),
                "port" => {
                    expected.machine.ports.insert(number(1) as u16, number(2) as u32);
                }
                "callk" => expected.machine.calls = Some(number(1)),
                "map" => expect_entry(line, &tables.infos, &mut expected.maps, word, labels),
                "lost" => expected.maps[number(1) as usize].lost = number(2),
                "log" => expected.log.extend(text::bytes(&line[1..], word, labels)),
                "lv" => expected.locals[number(1) as usize] = number(2),
                "gv" => expected.globals[number(1) as usize] = number(2),
                "reg" => {
                    let value = text::number(&line[2], Word::W8, labels);
                    expected.machine.registers.insert(index(&line[1]), value);
                }
                "mem" => {
                    let start = number(1);
                    let mut regions = expected.machine.memory.iter_mut();
                    let region = regions.find(|region| region.start == start).expect("a MEM there");
                    region.bytes = text::bytes(&line[2..], word, labels);
                }
                other => panic!("{}: what is {other}?", self.name),
            }
        }
        assert!(!expected.end.is_empty(), "{}: no end", self.name);
        expected.stack = [raised, expected.stack].concat();
        if wrapped {
            expected.stack.truncate(after.stack.len());
        }
        expected
    }
}

/// The end named in a line, in the form of [`After::new`].
fn ending(tokens: &[String], word: Word, labels: &Labels) -> String {
    let number = |index: usize| tokens.get(index).map_or(0, |text| text::number(text, word, labels));
    match tokens[0].as_str() {
        "exit" if tokens.len() == 2 => format!("ExitTo({})", number(1)),
        "exit" => "Exit".into(),
        "abort" => "Abort".into(),
        "remove" => "Remove".into(),
        // By its code: an exception raised again by `rx`, whose information was on the stack
        // already, or a masked one.
        "again" => format!("exception {:#x} {:#x} {:#x}", number(1), number(2), number(3)),
        name => format!("exception {:#x} {:#x} {:#x}", code(name), number(1), number(2)),
    }
}

/// The codes of the manual's exceptions table, repeated here because the crate's own constants are
/// under test.
fn code(name: &str) -> u64 {
    match name {
        "INVALID_ADDR" => 0x0001,
        "SEG_FAULT" => 0x0002,
        "JMP_MAX" => 0x0004,
        "CALL_STACK_OVERFLOW" => 0x0010,
        "DIVIDE_BY_ZERO" => 0x0020,
        "INVALID_OPERAND" => 0x0040,
        "INVALID_OPCODE" => 0x0080,
        "HEAP_NOMEM" => 0x0100,
        "INVALID_HANDLE" => 0x0200,
        "INVALID_OFFSET" => 0x0400,
        "LOG_OVERFLOW" => 0x1000,
        other => panic!("no exception is called {other}"),
    }
}
