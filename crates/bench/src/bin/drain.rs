//! Measures how many records a second get from a process to a file, and at what cost.
//!
//!     cargo run --release -p dprobes-bench --bin drain -- [REPETITIONS] [--only NAME]... [--option OPTION]... [--seconds N]
//!
//! A probe logs two words, and each record is written with process, time and processor: as text, or
//! to a trace store. `paced` makes two million calls a second for ten seconds (once), `short` for
//! two seconds, `flat` calls as fast as possible with `--lossless`, `threads` the same on eight
//! threads. LTTng-UST and uftrace, if installed, see the same calls. Prints the median, least and
//! most of the repetitions (default 5; `paced` has one), which take turns. `--only` selects the
//! rows whose names contain NAME; `--option` is passed to dprobes. The status is 0 even if records
//! are lost, since that depends on the machine; it is 1 if the counts do not agree.

use clap::Parser;
use dprobes_bench::drain::{Drained, Task, drained};
use dprobes_bench::jump::{Program, Row, Setting, Shape, directory, measure, rows};
use dprobes_bench::{Figures, build, cleanup, status};
use std::io;
use std::process::ExitCode;

/// Nanoseconds between two records at two million per second.
const GAP: u64 = 500;

/// Measures how many records a second get from a process to a file, and at what cost.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  drain                         all rows, five times
  drain 3 --only paced          two million records a second, for ten seconds
  drain 3 --only flat --option=--buffer=64M")]
struct Options {
    /// How often each row is measured; `paced` only once
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Only the rows whose names contain this
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Option to pass to dprobes
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Duration of `paced`, in seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
}

/// A row to measure.
enum What {
    /// A row of dprobes.
    Ours(Task),
    /// A row of another tracer.
    Other(Box<Row>),
}

impl What {
    fn name(&self) -> &str {
        match self {
            What::Ours(task) => &task.name,
            What::Other(row) => &row.name,
        }
    }
}

/// Calls of a row without a pace.
const CALLS: u64 = 10_000_000;
/// Threads of a row with several.
const THREADS: u32 = 8;

/// The rows of dprobes, and how often each is measured.
fn ours(options: &Options) -> Vec<(What, u64)> {
    let task = |name: &str, gap, threads, calls, lossless: bool, store: bool| {
        let more = lossless.then(|| "--lossless".to_owned());
        let options = options.options.iter().cloned().chain(more).collect();
        What::Ours(Task { name: name.to_owned(), gap, threads, calls, store, options })
    };
    let second = 1_000_000_000 / GAP;
    let times = options.repetitions;
    vec![
        (task("paced, text", GAP, 1, options.seconds * second, false, false), 1),
        (task("short, text", GAP, 1, 2 * second, false, false), times),
        (task("short, store", GAP, 1, 2 * second, false, true), times),
        (task("flat, text", 0, 1, CALLS, true, false), times),
        (task("flat, store", 0, 1, CALLS, true, true), times),
        (task("threads, text", 0, THREADS, CALLS, true, false), times),
        (task("threads, store", 0, THREADS, CALLS, true, true), times),
    ]
}

/// The rows of other tracers: each at the pace of `short`, flat, and on as many threads. They lose
/// records that do not fit.
fn others(options: &Options, setting: &Setting) -> io::Result<Vec<(What, u64)>> {
    let shapes = [
        ("short", Shape { threads: 1, gap: GAP, burst: 0, pause: 0 }),
        ("flat", Shape::flat(1)),
        ("threads", Shape::flat(THREADS)),
    ];
    let mut all = Vec::new();
    let peers = ["uftrace", "LTTng"];
    for (name, shape) in shapes {
        let (rows, missing) = rows(setting, &peers.map(str::to_owned))?;
        let missing = missing.iter().filter(|text| peers.iter().any(|peer| text.starts_with(peer)));
        if name == "short" {
            missing.for_each(|text| println!("skipped: {text}"));
        }
        for mut row in rows {
            let tracer = row.name.split(':').next().unwrap_or_default().to_owned();
            let calls = if shape.gap > 0 { 2_000_000_000 / GAP } else { CALLS / u64::from(shape.threads) };
            // As many calls as dprobes' rows, however long they take.
            (row.calls, row.seconds) = (calls, f64::from(u16::MAX));
            (row.name, row.shape) = (format!("{name}, {tracer}"), shape);
            all.push((What::Other(Box::new(row)), options.repetitions));
        }
    }
    Ok(all)
}

/// Measures a row of another tracer.
fn other(row: &Row, setting: &Setting) -> io::Result<Drained> {
    let sample = measure(row, setting)?;
    if let Some(wrong) = sample.wrong {
        return Err(io::Error::other(format!("{}: {wrong}", row.name)));
    }
    let records = sample.seen;
    Ok(Drained {
        hits: sample.calls,
        records,
        lost: sample.calls - records,
        rate: sample.rate * records as f64 / sample.calls.max(1) as f64,
        reader: sample.reader.map_or(f64::NAN, |time| time.as_nanos() as f64 / records.max(1) as f64),
        call: 1e9 * f64::from(row.shape.threads) / sample.rate,
        bytes: sample.bytes as f64 / records.max(1) as f64,
    })
}

fn bench(options: &Options) -> io::Result<()> {
    cleanup::on_signals()?;
    let dprobes = build::dprobes(true)?;
    let directory = directory(&dprobes)?;
    let program = Program::build(&directory, "hits", &[], &[])?;
    let setting = Setting {
        dprobes,
        engine: "auto".to_owned(),
        directory,
        program,
        no_uprobes: Some("not wanted here".to_owned()),
    };
    let mut all = ours(options);
    all.extend(others(options, &setting)?);
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.contains(&**only));
    all.retain(|(what, _)| wanted(what.name()));
    let mut found: Vec<Vec<Drained>> = vec![Vec::new(); all.len()];
    for repetition in 0..options.repetitions {
        for ((what, repetitions), found) in all.iter().zip(&mut found) {
            if repetition >= *repetitions {
                continue;
            }
            eprint!("\r\x1b[Krepetition {} of {}: {}", repetition + 1, options.repetitions, what.name());
            found.push(match what {
                What::Ours(task) => drained(&setting.dprobes, &setting.directory, &setting.program, task)?,
                What::Other(row) => other(row, &setting)?,
            });
        }
    }
    eprint!("\r\x1b[K");
    println!(
        "{:18} {:>10} {:>10} {:>9}  {:>24}  {:>18}  {:>18}  {:>6}",
        "", "hits", "records", "lost", "million records/s", "reader, ns/record", "call, ns", "bytes"
    );
    for ((what, _), found) in all.iter().zip(&found) {
        print(what.name(), found);
    }
    Ok(())
}

fn print(name: &str, all: &[Drained]) {
    let show = |of: fn(&Drained) -> f64, places: usize| {
        let mut figures = Figures::default();
        all.iter().for_each(|each| figures.add(of(each)));
        let (median, min, max) = (figures.median(), figures.min(), figures.max());
        if median.is_nan() {
            "-".to_owned()
        } else {
            format!("{median:.places$} ({min:.places$} to {max:.places$})")
        }
    };
    let sum = |of: fn(&Drained) -> u64| all.iter().map(of).sum::<u64>();
    println!(
        "{name:18} {:>10} {:>10} {:>9}  {:>24}  {:>18}  {:>18}  {:>6.0}",
        sum(|each| each.hits),
        sum(|each| each.records),
        sum(|each| each.lost),
        show(|each| each.rate / 1e6, 2),
        show(|each| each.reader, 0),
        show(|each| each.call, 0),
        all.iter().map(|each| each.bytes).sum::<f64>() / all.len().max(1) as f64,
    );
}

fn main() -> ExitCode {
    // Counts that do not agree are returned as an error.
    status("drain", bench(&Options::parse()).map(|()| true))
}
