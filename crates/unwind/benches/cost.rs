//! Measures tables and the walker: `cargo bench -p dprobes-unwind [FILE]...`.
//!
//! For each file (by default the C library, libcrypto, python3 and what else is large): the bytes of
//! its unwinding information and of its table, and the time to build it. For a python3 stopped amid
//! a recursion: nanoseconds for each frame, with its own tables as modules and as an index, and by
//! frame pointers in a stack that has them.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use unwind::{Index, Lookup, Module, Registers, Row, Rule, Saved, Table, build, walk, walk_frame_pointers};

const FILES: [&str; 6] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/bin/python3",
    "/usr/bin/sqlite3",
    "/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/chromium/chromium",
];
const ROUNDS: usize = 9;
const WALKS: usize = 2000;

/// Calls C functions which call back, then waits.
const PROGRAM: &str = "
import sys, time
def f(n):
    if n:
        return max([n], key=lambda x: f(n - 1) or 0)
    print('ready', flush=True)
    time.sleep(60)
f(40)
";

/// The least of several times, in seconds.
fn least<T>(rounds: usize, mut what: impl FnMut() -> T) -> f64 {
    let time = |_| {
        let begin = Instant::now();
        black_box(what());
        begin.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

fn tables(files: &[PathBuf]) {
    println!("{:44} {:>8} {:>9} {:>11} {:>8} {:>8}", "file", "rows", "bytes", "unsupported", "no rbp", "ms");
    for file in files {
        let Ok(bytes) = std::fs::read(file) else { continue };
        let table = match Table::read(&bytes) {
            Ok(table) => table,
            Err(error) => {
                println!("{}: {error}", file.display());
                continue;
            }
        };
        let seconds = least(3, || Table::read(&bytes));
        let rows = table.rows.len();
        // Bytes of code between other functions have none, and that is no fault.
        let unsupported = table.rows.iter().filter(|row| Rule::unpack(row.rule) == Rule::Unsupported).count();
        let lost = |row: &&Row| matches!(Rule::unpack(row.rule), Rule::Frame { rbp: Saved::Lost, .. });
        let lost = table.rows.iter().filter(lost).count();
        let milliseconds = seconds * 1e3;
        println!(
            "{:44} {rows:8} {:9} {unsupported:11} {lost:8} {milliseconds:8.1}",
            file.display(),
            8 * rows
        );
    }
}

/// A stopped process: its registers, its modules and its stack.
struct Process {
    rip: u64,
    all: [u64; 16],
    ranges: BTreeMap<PathBuf, (u64, u64)>,
    stack: (u64, Vec<u64>),
}

impl Process {
    fn python() -> Option<Process> {
        let mut python = Command::new("/usr/bin/python3");
        let mut child = python.args(["-c", PROGRAM]).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        let process = Process::read(child.id());
        let _ = child.kill();
        let _ = child.wait();
        process
    }

    fn read(id: u32) -> Option<Process> {
        let pid = Pid::from_raw(id.cast_signed());
        ptrace::attach(pid).ok()?;
        waitpid(pid, None).ok()?;
        let it = ptrace::getregs(pid).ok()?;
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).ok()?;
        let mut ranges: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
        let mut stack = (0, Vec::new());
        for line in maps.lines() {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
            if (start..end).contains(&it.rsp) {
                let mut bytes = vec![0; (end - it.rsp) as usize];
                std::fs::File::open(format!("/proc/{id}/mem"))
                    .ok()?
                    .read_exact_at(&mut bytes, it.rsp)
                    .ok()?;
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a word"));
                stack = (it.rsp, bytes.chunks_exact(8).map(word).collect());
            }
            if let Some(at) = rest.find('/') {
                let range = ranges.entry(PathBuf::from(&rest[at..])).or_insert((start, end));
                *range = (range.0.min(start), range.1.max(end));
            }
        }
        let all = [
            it.rax, it.rdx, it.rcx, it.rbx, it.rsi, it.rdi, it.rbp, it.rsp, it.r8, it.r9, it.r10, it.r11,
            it.r12, it.r13, it.r14, it.r15,
        ];
        Some(Process { rip: it.rip, all, ranges, stack })
    }

    fn registers(&self) -> Registers<'_> {
        Registers { rip: self.rip, rsp: self.all[7], rbp: self.all[6], all: Some(&self.all) }
    }
}

fn word((base, words): &(u64, Vec<u64>), address: u64) -> Option<u64> {
    words.get(usize::try_from(address.wrapping_sub(*base) / 8).ok()?).copied()
}

/// A stack of so many frames of 64 bytes with frame pointers.
fn with_frame_pointers(count: u64) -> (u64, Vec<u64>) {
    let base = 0x7fff_0000_0000;
    let mut words = vec![0; 8 * count as usize];
    for at in 0..count {
        let place = 8 * at as usize;
        (words[place], words[place + 1]) = (base + 64 * (at + 1), 0x40_0000 + at);
    }
    (base, words)
}

fn report(name: &str, mut one: impl FnMut(&mut [u64]) -> usize) {
    let mut frames = [0; 512];
    let count = one(&mut frames);
    let seconds = least(ROUNDS, || (0..WALKS).map(|_| one(black_box(&mut frames))).sum::<usize>());
    println!("{name:44} {count:8} frames {:8.1} ns each", seconds * 1e9 / (WALKS * count) as f64);
}

/// Looks rows up at addresses all over the code, in no order that a processor could learn.
fn lookups(modules: &[Module<'_>], words: &[u64]) {
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut address = || {
        let module = &modules[random(modules.len())];
        module.bias + u64::from(module.table[random(module.table.len())].address) + 1
    };
    let addresses: Vec<u64> = (0..1 << 16).map(|_| address()).collect();
    let index = Index::new(words, 0);
    let found = || addresses.iter().filter(|address| index.rule(**address, true).is_some()).count();
    let seconds = least(ROUNDS, found);
    println!("{:44} {:8} rows   {:8.1} ns each", "lookups", found(), seconds * 1e9 / addresses.len() as f64);
}

fn main() {
    // Cargo gives an option of its own.
    let named: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|name| name != "--bench").map(PathBuf::from).collect();
    tables(&if named.is_empty() { FILES.map(PathBuf::from).to_vec() } else { named });
    let Some(process) = Process::python() else {
        return println!("there is no python3, or it cannot be traced");
    };
    let read = |path: &Path| std::fs::read(path).ok().and_then(|bytes| Table::read(&bytes).ok());
    let tables: Vec<_> =
        process.ranges.iter().filter_map(|(path, range)| Some((*range, read(path)?))).collect();
    let mut modules: Vec<Module<'_>> = tables
        .iter()
        .map(|((start, end), table)| Module { start: *start, end: *end, bias: *start, table: &table.rows })
        .collect();
    modules.sort_by_key(|module| module.start);
    let words = build(&modules);
    println!("\n{} modules, an index of {} bytes", modules.len(), 8 * words.len());
    let registers = process.registers();
    let read = |address| word(&process.stack, address);
    report("by rows, modules", |frames| walk(&registers, modules.as_slice(), read, frames));
    report("by rows, an index", |frames| walk(&registers, &Index::new(&words, 0), read, frames));
    lookups(&modules, &words);
    let stack = with_frame_pointers(100);
    let registers = Registers { rip: 0x40_0000, rsp: stack.0, rbp: stack.0, all: None };
    let read = |address| word(&stack, address);
    report("by frame pointers", |frames| walk_frame_pointers(&registers, read, frames));
}
