//! How many records a second come from a process to a file, and at what price.
//!
//!     cargo run --release -p dprobes-bench --bin drain -- [REPETITIONS] [--only NAME]... [--option OPTION]... [--seconds N]
//!
//! A probe logs two words, and each record is written as text with process, time and processor. `paced` calls two million times
//! a second for ten seconds (once), `short` for two seconds, `flat` as fast as can be, with `--lossless`, `threads` the same on eight
//! threads. It prints the median, least and most of the repetitions (5 unless told; `paced` has one). `--option` is handed to
//! dprobes. The status is 0 even where records are lost: that depends on the machine. It is 1 where the counts do not agree.

use dprobes_bench::drain::{Drained, Task, drained};
use dprobes_bench::jump::{Program, directory};
use dprobes_bench::{Figures, build, cleanup, status};
use std::io;
use std::process::ExitCode;

/// Nanoseconds between two records at two million a second.
const GAP: u64 = 500;

struct Options {
    repetitions: u64,
    only: Vec<String>,
    options: Vec<String>,
    seconds: u64,
}

fn options() -> io::Result<Options> {
    let usage =
        || io::Error::other("usage: drain [REPETITIONS] [--only NAME]... [--option OPTION]... [--seconds N]");
    let mut options = Options { repetitions: 5, only: Vec::new(), options: Vec::new(), seconds: 10 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "--only" => options.only.push(words.next().ok_or_else(usage)?),
            "--option" => options.options.push(words.next().ok_or_else(usage)?),
            "--seconds" => {
                options.seconds = words.next().and_then(|word| word.parse().ok()).ok_or_else(usage)?;
            }
            _ => options.repetitions = word.parse().ok().filter(|count| *count > 0).ok_or_else(usage)?,
        }
    }
    Ok(options)
}

fn tasks(options: &Options) -> Vec<(Task, u64)> {
    let task = |name, gap, threads, calls, lossless: bool| {
        let more = lossless.then(|| "--lossless".to_owned());
        Task { name, gap, threads, calls, options: options.options.iter().cloned().chain(more).collect() }
    };
    let second = 1_000_000_000 / GAP;
    let all = [
        (task("paced", GAP, 1, options.seconds * second, false), 1),
        (task("short", GAP, 1, 2 * second, false), options.repetitions),
        (task("flat", 0, 1, 10_000_000, true), options.repetitions),
        (task("threads", 0, 8, 10_000_000, true), options.repetitions),
    ];
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    all.into_iter().filter(|(task, _)| wanted(task.name)).collect()
}

fn bench(options: &Options) -> io::Result<()> {
    cleanup::on_signals()?;
    let dprobes = build::dprobes(true)?;
    let directory = directory(&dprobes)?;
    let program = Program::build(&directory, "hits", &[], &[])?;
    println!(
        "{:8} {:>10} {:>10} {:>8}  {:>28}  {:>24}  {:>24}  {:>6}",
        "", "hits", "records", "lost", "million records/s", "dprobes, ns/record", "call, ns", "bytes"
    );
    for (task, repetitions) in tasks(options) {
        let mut all: Vec<Drained> = Vec::new();
        for _ in 0..repetitions {
            all.push(drained(&dprobes, &directory, &program, &task)?);
        }
        let show = |of: fn(&Drained) -> f64, places: usize| {
            let mut figures = Figures::default();
            all.iter().for_each(|each| figures.add(of(each)));
            let (median, min, max) = (figures.median(), figures.min(), figures.max());
            format!("{median:.places$} ({min:.places$} to {max:.places$})")
        };
        let sum = |of: fn(&Drained) -> u64| all.iter().map(of).sum::<u64>();
        println!(
            "{:8} {:>10} {:>10} {:>8}  {:>28}  {:>24}  {:>24}  {:>6.0}",
            task.name,
            sum(|each| each.hits),
            sum(|each| each.records),
            sum(|each| each.lost),
            show(|each| each.rate / 1e6, 2),
            show(|each| each.reader, 0),
            show(|each| each.call, 0),
            all.iter().map(|each| each.bytes).sum::<f64>() / all.len().max(1) as f64,
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    // Counts that do not agree are an error.
    status("drain", options().and_then(|options| bench(&options)).map(|()| true))
}
