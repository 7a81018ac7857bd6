//! Measures how much slower a program is while `dprobes coverage` measures its lines, over its
//! whole life.
//!
//!     cargo run --release -p dprobes-bench --bin coverage -- [REPETITIONS] [--dprobes PATH] [-- COMMAND ARGS...]
//!
//! Builds the release `dprobes`, unless one is given, and a program of 2,000 functions with some
//! 20,000 lines, compiled with -g, that computes for some seconds; a command may take its place,
//! whose program must have debug information. Each repetition (default 5) runs it unprobed and with
//! `dprobes coverage`, in turn. Prints for both the median, least and most of the times, in
//! milliseconds, from the start of the command to its end: with dprobes, that includes the reading
//! of line tables, which one row has alone: the program's life is the difference. The same in
//! processor time, of the program and dprobes together: while a thread is stopped dprobes works, so
//! on a busy machine this says more. A ratio of 1.1 is the bar. The status is 0 even if it is
//! missed, since that depends on the machine; it is 1 if the program's output changes.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use dprobes_bench::{Figures, build, cleanup, other, status};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Functions of the program.
const FUNCTIONS: u64 = 2000;
/// How often it calls each of them.
const ROUNDS: u64 = 60_000;
/// How many times as long as unprobed it may take.
const BAR: f64 = 1.1;

/// Measures how much slower a program is while its lines are measured.
#[derive(Parser)]
struct Options {
    /// How often each way is measured
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// The dprobes to measure
    #[arg(long, value_name = "PATH")]
    dprobes: Option<PathBuf>,
    /// A program with debug information, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The source of the program.
fn source() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n");
    for number in 0..FUNCTIONS {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "static unsigned f{number}(unsigned x)
{{
    if (x % 7 == {})
        x += {number};
    else
        x ^= {};
    for (unsigned i = 0; i < x % 3; i++)
        x = x * 31 + i;
    switch (x % 8) {{
    case 0: return x + 1;
    case 1: return x - 3;
    case 2: return x ^ x >> 3;
    default: return x * 5;
    }}
}}
",
            number % 7,
            number * 17
        );
    }
    let names: String = (0..FUNCTIONS).map(|number| format!("f{number}, ")).collect();
    text + &format!(
        "static unsigned (*all[])(unsigned) = {{ {names} }};
int main(int count, char **words)
{{
    unsigned x = 1;
    for (int i = 0; i < atoi(words[1]); i++)
        for (int f = 0; f < {FUNCTIONS}; f++)
            x = all[f](x);
    printf(\"%u\\n\", x);
    return 0;
}}
"
    )
}

/// Times of runs, in milliseconds.
#[derive(Default)]
struct Times {
    wall: Figures,
    /// Of the program and of dprobes together.
    processor: Figures,
}

impl Times {
    /// Runs a command; returns what it printed.
    fn run(&mut self, command: &mut Command) -> io::Result<Vec<u8>> {
        let (begin, before) = (Instant::now(), processor_time()?);
        let output = command.stdin(Stdio::null()).output()?;
        self.wall.add(begin.elapsed().as_secs_f64() * 1e3);
        self.processor.add(processor_time()? - before);
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

/// The processor time of all processes that have ended, in milliseconds.
fn processor_time() -> io::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e3)
}

/// The lines that a tracefile says are reached, and all.
fn lines(file: &Path) -> io::Result<(u64, u64)> {
    let text = std::fs::read_to_string(file)?;
    let sum = |kind: &str| {
        let values = text.lines().filter_map(|line| line.strip_prefix(kind)?.parse::<u64>().ok());
        values.sum::<u64>()
    };
    Ok((sum("LH:"), sum("LF:")))
}

fn bench(options: Options) -> io::Result<bool> {
    cleanup::on_signals()?;
    let dprobes = build::given(options.dprobes.as_deref(), true)?;
    let directory = build::target(true)?.join("bench-coverage");
    std::fs::create_dir_all(&directory)?;
    let mut words = options.command;
    if words.is_empty() {
        let (program, text) = (directory.join("computes"), directory.join("computes.c"));
        std::fs::write(&text, source())?;
        build::c_program(&[text], &["-g", "-O1"], &[], &program)?;
        words = vec![program.display().to_string(), ROUNDS.to_string()];
    }
    let file = directory.join("lines.info");
    let plain = || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    };
    let measured = |options: &[&str], words: &[String]| {
        let mut command = Command::new(&dprobes);
        command.args(["coverage", "-q", "-o"]).arg(&file).args(options).arg("--").args(words);
        command
    };
    // The same work before the command starts, for one that does nothing.
    let reading = || measured(&["-m", &words[0]], &["true".to_owned()]);
    let (mut unprobed, mut probed, mut read) = (Times::default(), Times::default(), Times::default());
    let mut is_right = true;
    for _ in 0..options.repetitions {
        let printed = unprobed.run(&mut plain())?;
        read.run(&mut reading())?;
        is_right &= probed.run(&mut measured(&[], &words))? == printed;
    }
    let (reached, all) = lines(&file)?;
    println!(
        "milliseconds, {} interleaved repetitions; {reached} of {all} lines reached",
        options.repetitions
    );
    println!("{:46} {:>8} {:>8} {:>8}", "", "median", "min", "max");
    for (what, of) in [
        ("", (|times| &times.wall) as fn(&Times) -> &Figures),
        (", processor time", |times| &times.processor),
    ] {
        let rows =
            [("unprobed", &unprobed), ("dprobes coverage", &probed), ("before the program starts", &read)];
        for (name, times) in rows {
            let (figures, name) = (of(times), format!("{name}{what}"));
            println!("{name:46} {:>8.0} {:>8.0} {:>8.0}", figures.median(), figures.min(), figures.max());
        }
        let life = (of(&probed).median() - of(&read).median()) / of(&unprobed).median();
        let verdict = if life <= BAR { "OK" } else { "OVER" };
        println!(
            "{:46} {life:>8.3}          bar {BAR}  {verdict}",
            format!("the program's life, times{what}")
        );
    }
    if !is_right {
        println!("WRONG: the program printed something else");
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    status("coverage", bench(Options::parse()))
}
