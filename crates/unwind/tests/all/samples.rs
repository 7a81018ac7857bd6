//! Stacks as gdb sees them: reads what `sample.py` has written, and compares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{Scratch, output};
use unwind::{Index, Module, Registers, Row, Table, build, walk, walk_frame_pointers};

/// gdb's reason of the outermost frame: `UNWIND_OUTERMOST`.
const OUTERMOST: u64 = 2;

/// Functions of gcc's startup files. They have no unwinding information, and gdb reads their code
/// wrongly.
const STARTUP: [&str; 6] =
    ["__do_global_dtors_aux", "deregister_tm_clones", "register_tm_clones", "frame_dummy", "_init", "_fini"];

/// `lea rsp, [r10 - 8]`: how gcc leaves a function that has aligned its stack. It has restored rbp,
/// but gcc's information says that it has not, and gdb leaves frames out. Its stack at the next
/// instruction is right.
const LEAVE_ALIGNED: [u8; 4] = [0x49, 0x8d, 0x62, 0xf8];

/// What to sample.
pub(crate) struct Plan<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a str],
    /// A function to run to first, or nothing.
    pub(crate) start: &'a str,
    /// A breakpoint, and how many hits of it to skip.
    pub(crate) from: (&'a str, u64),
    /// How many samples.
    pub(crate) steps: u64,
    /// How many instructions from one to the next; 0: to the next hit of the breakpoint.
    pub(crate) every: u64,
}

/// A state of a program.
pub(crate) struct Sample {
    rip: u64,
    all: [u64; 16],
    /// Four bytes at `rip`.
    code: Vec<u8>,
    /// The functions of gdb's frames, with spaces between.
    pub(crate) names: String,
    /// gdb's frames.
    pub(crate) expected: Vec<u64>,
    /// Whether gdb has found the outermost one.
    pub(crate) is_whole: bool,
    /// Pieces of memory.
    memory: Vec<(u64, Vec<u8>)>,
    /// The block of words with the modules of that time.
    index: usize,
}

/// The samples of a program.
pub(crate) struct Samples {
    pub(crate) list: Vec<Sample>,
    indices: Vec<Vec<u64>>,
}

/// Runs a program under gdb.
pub(crate) fn samples(plan: &Plan<'_>) -> Samples {
    let scratch = Scratch::new();
    let out = scratch.path().join("samples");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/sample.py");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-iex", "set debug-file-directory /nonexistent", "-x"]).arg(script);
    gdb.arg("--args").arg(plan.program).args(plan.arguments);
    gdb.env("SAMPLE_OUT", &out)
        .env("SAMPLE_START", plan.start)
        .env("SAMPLE_BREAK", plan.from.0)
        .env("SAMPLE_SKIP", plan.from.1.to_string());
    gdb.env("SAMPLE_STEPS", plan.steps.to_string()).env("SAMPLE_EVERY", plan.every.to_string());
    // Linkage tables are bound as they are called.
    gdb.env_remove("LD_BIND_NOW")
        .env("PYTHONHASHSEED", "1")
        .env("PYTHONMALLOC", "malloc")
        .stdin(std::process::Stdio::null());
    let said = output(&mut gdb);
    let text = std::fs::read_to_string(&out).unwrap_or_else(|error| panic!("{gdb:?}: {error}\n{said}"));
    Reader::default().read(&text)
}

/// The modules of a process as the samples name them.
#[derive(Default)]
struct Reader {
    /// First and last address by path.
    ranges: BTreeMap<PathBuf, (u64, u64)>,
    tables: BTreeMap<PathBuf, Table>,
    is_new: bool,
    samples: Vec<Sample>,
    indices: Vec<Vec<u64>>,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("a number")
}

fn bytes(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

impl Reader {
    fn read(mut self, text: &str) -> Samples {
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("a kind");
            let mut words = rest.split(' ');
            match kind {
                "M" | "V" if !self.is_new => {
                    self.ranges.clear();
                    self.is_new = true;
                    self.mapping(kind, words);
                }
                "M" | "V" => self.mapping(kind, words),
                "P" => {
                    if std::mem::take(&mut self.is_new) {
                        self.index();
                    }
                    let numbers: Vec<u64> = words.map(hex).collect();
                    let all = numbers[1..].try_into().expect("16 registers");
                    let index = self.indices.len() - 1;
                    self.samples.push(Sample {
                        rip: numbers[0],
                        all,
                        code: Vec::new(),
                        names: String::new(),
                        expected: Vec::new(),
                        is_whole: false,
                        memory: Vec::new(),
                        index,
                    });
                }
                _ => {
                    let last = self.samples.last_mut().expect("a state before its frames");
                    match kind {
                        "C" => last.code = bytes(rest),
                        "N" => last.names = rest.to_owned(),
                        "F" => last.expected = words.map(hex).collect(),
                        "U" => last.is_whole = hex(rest) == OUTERMOST,
                        "S" => {
                            let start = hex(words.next().expect("a start"));
                            last.memory.push((start, bytes(words.next().expect("bytes"))));
                        }
                        _ => panic!("{line}"),
                    }
                }
            }
        }
        self.samples.retain(|sample| !sample.names.split(' ').any(|name| STARTUP.contains(&name)));
        self.samples.iter_mut().for_each(Sample::settle);
        for at in 1..self.samples.len() {
            let (before, after) = self.samples.split_at_mut(at);
            let (last, next) = (&mut before[at - 1], &after[0]);
            if last.code == LEAVE_ALIGNED {
                last.expected = [&[last.rip], &next.expected[1..]].concat();
                last.is_whole = next.is_whole;
            }
        }
        Samples { list: self.samples, indices: self.indices }
    }

    fn mapping<'a>(&mut self, kind: &str, mut words: impl Iterator<Item = &'a str>) {
        let start = hex(words.next().expect("a start"));
        if kind == "V" {
            let image = bytes(words.next().expect("bytes"));
            let table = Table::read(&image).expect("the vdso is sound");
            assert!(!table.rows.is_empty(), "the vdso has unwinding information");
            self.ranges.insert("[vdso]".into(), (start, start + image.len() as u64));
            self.tables.insert("[vdso]".into(), table);
            return;
        }
        let end = hex(words.next().expect("an end"));
        let path = PathBuf::from(words.skip(1).collect::<Vec<_>>().join(" "));
        let range = self.ranges.entry(path).or_insert((start, end));
        *range = (range.0.min(start), range.1.max(end));
    }

    fn index(&mut self) {
        for path in self.ranges.keys() {
            // Other files than modules are mapped, too.
            if !self.tables.contains_key(path) {
                let file = std::fs::read(path).unwrap_or_default();
                self.tables.insert(path.clone(), Table::read(&file).unwrap_or_default());
            }
        }
        let module = |(path, &(start, end)): (&PathBuf, &(u64, u64))| {
            let table: &[Row] = &self.tables[path].rows;
            (!table.is_empty()).then_some(Module { start, end, bias: start, table })
        };
        let modules: Vec<Module<'_>> = self.ranges.iter().filter_map(module).collect();
        self.indices.push(build(&modules));
    }
}

impl Sample {
    /// A stack that ends with the return address 0 is whole, and 0 is no frame.
    fn settle(&mut self) {
        if self.expected.last() == Some(&0) {
            self.expected.pop();
            self.is_whole = true;
        }
    }

    /// The word at an address, if gdb has read it.
    fn word(&self, address: u64) -> Option<u64> {
        let (start, bytes) = self
            .memory
            .iter()
            .find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address))?;
        let at = (address - start) as usize;
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    }

    /// Our frames by frame pointers alone.
    pub(crate) fn by_frame_pointers(&self) -> Vec<u64> {
        let mut frames = [0; 200];
        let count = walk_frame_pointers(&self.registers(), |address| self.word(address), &mut frames);
        frames[..count].to_vec()
    }

    fn registers(&self) -> Registers<'_> {
        Registers { rip: self.rip, rsp: self.all[7], rbp: self.all[6], all: Some(&self.all) }
    }
}

impl Samples {
    /// Our frames of a sample.
    pub(crate) fn frames(&self, sample: &Sample) -> Vec<u64> {
        let mut frames = [0; 200];
        let index = Index::new(&self.indices[sample.index], 0);
        let count = walk(&sample.registers(), &index, |address| sample.word(address), &mut frames);
        frames[..count].to_vec()
    }

    /// Compares all stacks that gdb knows to their outermost frame, and returns how many there are,
    /// and how many it does not know. Where it does not, ours begin as its do.
    ///
    /// # Panics
    /// If one differs.
    pub(crate) fn compare(&self, name: &str) -> (usize, usize) {
        let mut wrong = String::new();
        let mut count = 0;
        for (at, sample) in self.list.iter().enumerate() {
            let found = self.frames(sample);
            let is_right =
                if sample.is_whole { found == sample.expected } else { found.starts_with(&sample.expected) };
            if !is_right {
                count += 1;
                if count <= 5 {
                    let whole = if sample.is_whole { "" } else { ", where it does not go on" };
                    wrong += &format!(
                        "sample {at} in {}: ours {found:x?}\n  gdb's{whole} {:x?}\n",
                        sample.names, sample.expected
                    );
                }
            }
        }
        assert!(count == 0, "{name}: {count} of {} differ\n{wrong}", self.list.len());
        let whole = self.list.iter().filter(|sample| sample.is_whole).count();
        println!("{name}: {whole} whole, {} not", self.list.len() - whole);
        (whole, self.list.len() - whole)
    }
}
