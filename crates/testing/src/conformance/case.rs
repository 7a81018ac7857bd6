//! A conformance case: a program, its machine, and the expected outcome. Format:
//! `tests/conformance/README.md`.

use super::assembler::{Assembled, assemble};
use super::execution::Execution;
use super::machine::{Region, TestMachine, ThreadFacts};
use super::outcome::After;
use super::tables::{Tables, contents};
use super::text::{self, Labels};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use vm::{DEFAULT_MASK, ProbepointInfo, Program, Register, Word};

/// A case as written in its file.
#[derive(Debug, Default)]
pub struct Case {
    /// Its file, line and name.
    pub name: String,
    /// The name of its test: file without suffix, and name.
    pub title: String,
    /// The word sizes that it applies to.
    pub words: Vec<Word>,
    /// The rules of the manual that it demonstrates, besides its instructions: `stack wraps`,
    /// `JMP_MAX taken`.
    pub shows: Vec<String>,
    pub(crate) setup: Vec<Vec<String>>,
    program: Vec<String>,
    pub(crate) expected: Vec<Vec<String>>,
}

/// The start of a run.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) word: Word,
    pub(crate) mask: u16,
    pub(crate) locals: Vec<u64>,
    pub(crate) globals: Vec<u64>,
    pub(crate) machine: TestMachine,
    pub(crate) tables: Tables,
    jmpmax: u32,
    insmax: u32,
    logmax: usize,
    excpt_log: usize,
    autostacktrace: bool,
    heap: usize,
    module: Vec<u8>,
    /// The probepoint's offset, the program's number, the major and the minor code.
    point: [u64; 4],
    entry: Option<String>,
}

/// The folder of the case files.
pub fn folder() -> PathBuf {
    crate::repository().join("tests/conformance")
}

/// All cases of all files.
pub fn all() -> Vec<Case> {
    let entries = std::fs::read_dir(folder()).expect("the folder of the cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

/// Reads the cases of a file.
pub fn read(path: &Path) -> Vec<Case> {
    let source = std::fs::read_to_string(path).expect("a case file");
    let file = path.file_name().expect("a file").to_string_lossy();
    let stem = path.file_stem().expect("a file").to_string_lossy();
    let mut cases: Vec<Case> = Vec::new();
    let mut part = "";
    for (number, line) in source.lines().enumerate() {
        let tokens = text::tokens(line);
        let Some(first) = tokens.first() else { continue };
        if first == "NAME" {
            let name = format!("{file}:{}: {}", number + 1, tokens[1..].join(" "));
            let title = format!("{stem}: {}", tokens[1..].join(" "));
            cases.push(Case { name, title, words: vec![Word::W4, Word::W8], ..Case::default() });
            part = "SETUP";
            continue;
        }
        let case = cases.last_mut().expect("a file starts with a NAME");
        match (first.as_str(), part) {
            ("PROG", "SETUP") => part = "PROG",
            ("EXPECT", "PROG") => part = "EXPECT",
            ("SHOWS", "SETUP") => case.shows.push(tokens[1..].join(" ")),
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
    pub fn assemble(&self, word: Word) -> Assembled {
        assemble(&self.program, word)
    }

    /// Runs the case with one execution and checks the outcome.
    ///
    /// # Errors
    ///
    /// The case's name, the expected and the actual outcome.
    pub fn check(&self, word: Word, way: &mut dyn Execution) -> Result<(), String> {
        let assembled = self.assemble(word);
        let mut before = self.before(word, &assembled.labels);
        let after = before.run(&assembled, way);
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

    /// The name of the exception that must end the run, if any: raised by the interpreter and not
    /// handled.
    pub fn ends_with(&self) -> Option<&str> {
        let end = self.expected.iter().find(|line| line[0] == "end")?;
        end.get(1)
            .map(String::as_str)
            .filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    }

    /// The start of a run of the case.
    fn before(&self, word: Word, labels: &Labels) -> Before {
        let mut before = Before {
            word,
            jmpmax: 256,
            insmax: vm::INSTRUCTIONS,
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
            tables: Tables::default(),
        };
        for line in &self.setup {
            let number = |index: usize| text::number(&line[index], word, labels);
            match line[0].as_str() {
                "JMPMAX" => before.jmpmax = number(1) as u32,
                "INSMAX" => before.insmax = number(1) as u32,
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
                // A field has 64 bits in 32-bit programs too.
                "FIELD" => before.machine.fields.push(text::number(&line[1], Word::W8, labels)),
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
                "MAP" => before.tables.add_map(line, labels),
                "TEXT" => before.tables.add_text(line, word, labels),
                "TID" | "NSECS" | "RAND" | "IDS" | "PARENT" | "COMM" | "STACK" => {
                    know(&mut before.machine.thread, line, labels);
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
}

impl Before {
    /// Runs the program with one execution.
    fn run(&mut self, assembled: &Assembled, way: &mut dyn Execution) -> After {
        let variables = |values: &[u64]| values.iter().copied().map(AtomicU64::new).collect::<Vec<_>>();
        let values = |variables: &[AtomicU64]| {
            variables.iter().map(|value| self.word.truncate(value.load(Ordering::Relaxed))).collect()
        };
        let (locals, globals) = (variables(&self.locals), variables(&self.globals));
        let words = self.tables.words();
        let maps = vm::Maps { infos: &self.tables.infos, words: &words };
        let constants = self.tables.constants();
        let offset = self.point[0];
        let [_, id, major, minor] = self.point.map(|number| number as u32);
        let program = Program {
            word: self.word,
            code: &assembled.code,
            jmpmax: self.jmpmax,
            insmax: self.insmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: &locals,
            globals: &globals,
            excpt_log: self.excpt_log,
            autostacktrace: self.autostacktrace,
            heap: self.heap,
            maps,
            constants: vm::Constants(&constants),
            point: ProbepointInfo { module: &self.module, offset, id, major, minor },
        };
        let entry = self.entry.as_ref().map_or(0, |label| assembled.labels[label]) as usize;
        let mut machine = self.machine.clone();
        let ran = way.run(&program, entry, &mut machine);
        After::new(ran, values(&locals), values(&globals), machine, contents(&maps))
    }
}

/// Notes what a line says of the thread.
fn know(thread: &mut ThreadFacts, line: &[String], labels: &Labels) {
    // Whatever the word, they have their own sizes.
    let number = |place: usize| text::number(&line[place], Word::W8, labels);
    match line[0].as_str() {
        "TID" => thread.id = Some(number(1)),
        "NSECS" => thread.times[number(1) as usize] = Some(number(2)),
        "RAND" => thread.random = Some(number(1) as u32),
        "IDS" => thread.ids = Some((number(1) as u32, number(2) as u32)),
        "PARENT" => thread.parent = Some(number(1) as u32),
        "COMM" => {
            let mut name = text::bytes(&line[1..], Word::W8, labels);
            name.resize(16, 0);
            thread.name = name.first_chunk().copied();
        }
        _ => thread.stack = Some(text::numbers(&line[1..], Word::W8, labels)),
    }
}

/// A register's index.
pub(crate) fn index(name: &str) -> u16 {
    Register::from_name(name).unwrap_or_else(|| panic!("no register is called {name}")) as u16
}
