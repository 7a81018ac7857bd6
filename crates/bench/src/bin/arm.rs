//! How long arming and disarming a running process takes, and how long the process is held.
//!
//!     cargo run --release -p dprobes-bench --bin arm -- [REPETITIONS] [--only PART]...
//!
//! It builds the release `dprobes` and a program with a library of 50,000 functions, and prints for each row the median, least and
//! most of the repetitions (5, and not fewer unless told), in milliseconds, with the bar and whether the median meets it. All of it is as
//! users see it: from the command to its word that the probes are armed, from its interrupt to its end. `--only` selects the rows whose
//! names contain PART. The status is 0 even where a bar is missed: that depends on the machine. It is 1 where anything is WRONG.

use dprobes_bench::arm::{Library, Sample, measure};
use dprobes_bench::{Figures, build, cleanup, status};
use std::io;
use std::process::ExitCode;

/// Functions of the library.
const FUNCTIONS: u64 = 50_000;
/// Their groups, of 10,000 each.
const GROUPS: u64 = 5;
/// The most that arming may take in all, and disarming, in milliseconds.
const TOTAL: f64 = 2000.0;
/// The most for which the process may be held, in milliseconds.
const HOLD: f64 = 200.0;

/// What is armed.
struct Row {
    name: &'static str,
    threads: u32,
    groups: u64,
}

const ROWS: [Row; 4] = [
    Row { name: "50,000 entries, 1 thread", threads: 1, groups: 5 },
    Row { name: "10,000 entries, 1 thread", threads: 1, groups: 1 },
    Row { name: "10,000 entries, 100 threads", threads: 100, groups: 1 },
    Row { name: "50,000 entries, 100 threads", threads: 100, groups: 5 },
];

fn options() -> io::Result<(u64, Vec<String>)> {
    let usage = || io::Error::other("usage: arm [REPETITIONS] [--only PART]...");
    let (mut repetitions, mut only) = (5, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "--only" => only.push(words.next().ok_or_else(usage)?),
            _ => repetitions = word.parse().ok().filter(|count| *count > 0).ok_or_else(usage)?,
        }
    }
    Ok((repetitions, only))
}

fn print(row: &Row, samples: &[Sample]) {
    let line = |what: &str, value: fn(&Sample) -> f64, bar: Option<f64>| {
        let mut figures = Figures::default();
        samples.iter().for_each(|sample| figures.add(value(sample)));
        let verdict = bar.map_or(String::new(), |bar| {
            format!("{bar:>8.0}  {}", if figures.median() <= bar { "OK" } else { "OVER" })
        });
        let name = format!("{}: {what}", row.name);
        println!(
            "{name:58} {:>8.1} {:>8.1} {:>8.1} {verdict}",
            figures.median(),
            figures.min(),
            figures.max()
        );
    };
    line("armed after", |sample| sample.armed, Some(TOTAL));
    line("longest hold", |sample| sample.held, Some(HOLD));
    line("holds", |sample| sample.holds as f64, None);
    line("longest pause seen, arming", |sample| sample.pause, (row.threads == 1).then_some(HOLD));
    line("disarmed after", |sample| sample.disarmed, Some(TOTAL));
    line("longest pause seen, disarming", |sample| sample.pause_out, (row.threads == 1).then_some(HOLD));
    for wrong in samples.iter().filter_map(|sample| sample.wrong.as_ref()) {
        println!("{}: WRONG: {wrong}", row.name);
    }
}

/// Whether nothing was wrong in any repetition of any row.
fn is_right(samples: &[Vec<Sample>]) -> bool {
    samples.iter().flatten().all(|sample| sample.wrong.is_none())
}

fn bench() -> io::Result<bool> {
    let (repetitions, only) = options()?;
    cleanup::on_signals()?;
    let dprobes = build::dprobes(true)?;
    let directory = build::target(true)?.join("bench-arm");
    std::fs::create_dir_all(&directory)?;
    let library = Library::build(&directory, FUNCTIONS, GROUPS)?;
    let selected = |row: &&Row| only.is_empty() || only.iter().any(|part| row.name.contains(&**part));
    let rows: Vec<&Row> = ROWS.iter().filter(selected).collect();
    let mut samples: Vec<Vec<Sample>> = rows.iter().map(|_| Vec::new()).collect();
    for repetition in 1..=repetitions {
        for (row, samples) in rows.iter().zip(&mut samples) {
            eprint!("\r\x1b[Krepetition {repetition} of {repetitions}: {}", row.name);
            samples.push(measure(&dprobes, &library, row.threads, row.groups, &directory)?);
        }
    }
    eprintln!("\r\x1b[K");
    println!("milliseconds, {repetitions} interleaved repetitions");
    println!("{:58} {:>8} {:>8} {:>8} {:>8}", "", "median", "min", "max", "bar");
    rows.iter().zip(&samples).for_each(|(row, samples)| print(row, samples));
    Ok(is_right(&samples))
}

fn main() -> ExitCode {
    status("arm", bench())
}

#[cfg(test)]
mod tests {
    use super::{Sample, is_right};

    #[test]
    fn one_that_is_wrong_makes_it_all_wrong() {
        let sample = |wrong: Option<&str>| Sample {
            armed: 1.0,
            disarmed: 1.0,
            held: 1.0,
            holds: 1,
            pause: 1.0,
            pause_out: 1.0,
            wrong: wrong.map(str::to_owned),
        };
        assert!(is_right(&[vec![sample(None)], vec![sample(None), sample(None)]]));
        assert!(!is_right(&[
            vec![sample(None)],
            vec![sample(Some("2 bytes are not as before")), sample(None)]
        ]));
    }
}
