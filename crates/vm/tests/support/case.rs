//! One case: a program, the machine it runs on, and what must come of it. The format: `../cases/README.md`.

use super::assembler::{Assembled, assemble};
use super::machine::{Region, TestMachine};
use super::text::{self, Labels};
use dprobes_vm::{
    DEFAULT_MASK, End, Exception, Outcome, Point, Program, Register, STACK_WORDS, State, Word, run,
};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A case as it stands in its file.
#[derive(Debug, Default)]
pub(crate) struct Case {
    /// Its file and line, and its name.
    pub(crate) name: String,
    pub(crate) words: Vec<Word>,
    setup: Vec<Vec<String>>,
    program: Vec<String>,
    expected: Vec<Vec<String>>,
}

/// All that a run can change.
#[derive(Debug, PartialEq)]
struct After {
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
}

/// What a run starts with.
struct Before {
    word: Word,
    jmpmax: u32,
    logmax: usize,
    mask: u16,
    excpt_log: usize,
    autostacktrace: bool,
    heap: usize,
    module: Vec<u8>,
    /// Its offset, the program's number, the major and the minor code.
    point: [u64; 4],
    entry: Option<String>,
    locals: Vec<u64>,
    globals: Vec<u64>,
    machine: TestMachine,
}

/// Reads the cases of a file.
pub(crate) fn read(path: &Path) -> Vec<Case> {
    let source = std::fs::read_to_string(path).expect("a case file");
    let file = path.file_name().expect("a file").to_string_lossy();
    let mut cases: Vec<Case> = Vec::new();
    let mut part = "";
    for (number, line) in source.lines().enumerate() {
        let tokens = text::tokens(line);
        let Some(first) = tokens.first() else { continue };
        if first == "NAME" {
            let name = format!("{file}:{}: {}", number + 1, tokens[1..].join(" "));
            cases.push(Case { name, words: vec![Word::W4, Word::W8], ..Case::default() });
            part = "SETUP";
            continue;
        }
        let case = cases.last_mut().expect("a file starts with a NAME");
        match (first.as_str(), part) {
            ("PROG", "SETUP") => part = "PROG",
            ("EXPECT", "PROG") => part = "EXPECT",
            ("ON", "SETUP") => case.words = tokens[1..].iter().map(|bytes| word(bytes)).collect(),
            (_, "SETUP") => case.setup.push(tokens),
            (_, "PROG") => case.program.push(tokens.join(" ")),
            (_, _) => case.expected.push(tokens),
        }
    }
    cases
}

fn word(bytes: &str) -> Word {
    match bytes {
        "4" => Word::W4,
        "8" => Word::W8,
        _ => panic!("a word has 4 or 8 bytes, not {bytes}"),
    }
}

impl Case {
    /// The case's program.
    pub(crate) fn assemble(&self, word: Word) -> Assembled {
        assemble(&self.program, word)
    }

    /// Runs the case with `state` and says where the outcome is not the expected one.
    pub(crate) fn check(&self, word: Word, state: &mut State) -> Result<(), String> {
        let assembled = self.assemble(word);
        let before = self.before(word, &assembled.labels);
        let after = before.run(&assembled, state);
        let expected = self.expected(before, &assembled.labels, &after);
        if after == expected {
            return Ok(());
        }
        Err(format!(
            "{} (words of {} bytes)\nexpected {expected:#x?}\ngot {after:#x?}",
            self.name,
            word.bytes()
        ))
    }

    fn before(&self, word: Word, labels: &Labels) -> Before {
        let mut before = Before {
            word,
            jmpmax: 256,
            logmax: 1024,
            mask: DEFAULT_MASK,
            excpt_log: 1024,
            autostacktrace: false,
            heap: 0,
            module: Vec::new(),
            point: [0; 4],
            entry: None,
            locals: Vec::new(),
            globals: Vec::new(),
            machine: TestMachine { word, ..TestMachine::default() },
        };
        for line in &self.setup {
            let number = |index: usize| text::number(&line[index], word, labels);
            match line[0].as_str() {
                "JMPMAX" => before.jmpmax = number(1) as u32,
                "LOGMAX" => before.logmax = number(1) as usize,
                "MASK" => before.mask = number(1) as u16,
                "EXCPT_LOG" => before.excpt_log = number(1) as usize,
                "AUTOSTACKTRACE" => before.autostacktrace = true,
                "HEAP" => before.heap = number(1) as usize,
                "POINT" => {
                    before.module = text::bytes(&line[1..2], word, labels);
                    before.point = [2, 3, 4, 5].map(|place| text::number(&line[place], Word::W8, labels));
                }
                "ENTRY" => before.entry = Some(line[1].clone()),
                "VARS" => before.locals = vec![0; number(1) as usize],
                "GVARS" => before.globals = vec![0; number(1) as usize],
                "LV" => before.locals[number(1) as usize] = number(2),
                "GV" => before.globals[number(1) as usize] = number(2),
                "PID" => before.machine.pid = number(1),
                "CPU" => before.machine.processor = number(1),
                "TASK" => before.machine.task = Some(number(1)),
                "WIDE" => {
                    let half = |place: usize| u128::from(text::number(&line[place], Word::W8, labels));
                    before.machine.wide.insert(index(&line[1]), half(2) << 64 | half(3));
                }
                "CPUID" => {
                    let leaf = number(1) as u32;
                    before.machine.cpuid.insert(leaf, [2, 3, 4, 5].map(|place| number(place) as u32));
                }
                "MSR" => {
                    let value = text::number(&line[2], Word::W8, labels);
                    before.machine.model_specific.insert(number(1) as u32, value);
                }
                "SEGMENT" => {
                    before.machine.segments.insert(number(1) as u16, number(2));
                }
                "PORT" => {
                    before.machine.ports.insert(number(1) as u16, number(2) as u32);
                }
                "CALLK" => before.machine.calls = Some(0),
                "REG" => {
                    let value = text::number(&line[2], Word::W8, labels);
                    before.machine.registers.insert(index(&line[1]), value);
                }
                "MEM" | "ROM" => before.machine.memory.push(Region {
                    start: number(1),
                    bytes: text::bytes(&line[2..], word, labels),
                    writable: line[0] == "MEM",
                }),
                other => panic!("{}: what is {other}?", self.name),
            }
        }
        before
    }

    /// What must come of the case: nothing changed but what its EXPECT part says.
    fn expected(&self, before: Before, labels: &Labels, after: &After) -> After {
        let Before { word, mask, locals, globals, machine, .. } = before;
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
        };
        // What the interpreter raised and no handler took lies on the stack, above what the case says.
        let mut raised = Vec::new();
        // Whether that went round the stack.
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

impl Before {
    fn run(&self, assembled: &Assembled, state: &mut State) -> After {
        let variables = |values: &[u64]| values.iter().copied().map(AtomicU64::new).collect::<Vec<_>>();
        let values = |variables: &[AtomicU64]| {
            variables.iter().map(|value| self.word.truncate(value.load(Ordering::Relaxed))).collect()
        };
        let (locals, globals) = (variables(&self.locals), variables(&self.globals));
        let offset = self.point[0];
        let [_, id, major, minor] = self.point.map(|number| number as u32);
        let program = Program {
            word: self.word,
            code: &assembled.code,
            jmpmax: self.jmpmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: &locals,
            globals: &globals,
            excpt_log: self.excpt_log,
            autostacktrace: self.autostacktrace,
            heap: self.heap,
            point: Point { module: &self.module, offset, id, major, minor },
        };
        let entry = self.entry.as_ref().map_or(0, |label| assembled.labels[label]) as usize;
        let mut machine = self.machine.clone();
        let Outcome { end, major, minor } = run(&program, entry, state, &mut machine);
        After {
            end: match end {
                End::Exception(Exception { code, parm1, parm2 }) => {
                    format!("exception {code:#x} {parm1:#x} {parm2:#x}")
                }
                end => format!("{end:?}"),
            },
            major,
            minor,
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
            locals: values(&locals),
            globals: values(&globals),
            machine,
        }
    }
}

/// The end that a line says, in the words of [`Before::run`].
fn ending(tokens: &[String], word: Word, labels: &Labels) -> String {
    let number = |index: usize| tokens.get(index).map_or(0, |text| text::number(text, word, labels));
    match tokens[0].as_str() {
        "exit" if tokens.len() == 2 => format!("ExitTo({})", number(1)),
        "exit" => "Exit".into(),
        "abort" => "Abort".into(),
        "remove" => "Remove".into(),
        // By its code: one that `rx` raised again, whose information was on the stack already, or one masked.
        "again" => format!("exception {:#x} {:#x} {:#x}", number(1), number(2), number(3)),
        name => format!("exception {:#x} {:#x} {:#x}", code(name), number(1), number(2)),
    }
}

/// The codes of the manual's exceptions table, written out again: the crate's own constants are what is tested.
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

/// A register's index.
fn index(name: &str) -> u16 {
    Register::from_name(name).unwrap_or_else(|| panic!("no register is called {name}")) as u16
}
