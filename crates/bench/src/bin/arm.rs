//! Measures how long arming and disarming a running process takes, and how long the process is
//! held.
//!
//!     cargo run --release -p dprobes-bench --bin arm -- [REPETITIONS] [--only PART]...
//!
//! Builds the release `dprobes` and a program with a library of 50,000 functions (binutils find its
//! instructions). Prints for each row the median, least and most of the repetitions (default 5), in
//! milliseconds, with the bar and whether the median meets it. Times are as users see them: from
//! starting the command until it prints that the probes are armed, and from its interrupt to its
//! end. `--only` selects the rows whose names contain PART. The status is 0 even if a bar is
//! missed, since that depends on the machine; it is 1 if anything is WRONG.

use clap::Parser;
use dprobes_bench::arm::{Asked, Execs, Library, Sample, again, execs, measure, random_program};
use dprobes_bench::{Figures, build, cleanup, status};
use std::io;
use std::process::ExitCode;

/// Functions in the library.
const FUNCTIONS: u64 = 50_000;
/// Their groups, of 10,000 each.
const GROUPS: u64 = 5;
/// The bar for arming, and for disarming, in milliseconds.
const TOTAL: f64 = 2000.0;
/// The bar for holding the process, in milliseconds.
const HOLD: f64 = 200.0;
/// Instructions that are probed individually.
const RANDOM: u64 = 300_000;
/// The bar for an exec of a module with that many probes, in milliseconds.
const EXEC: f64 = 20.0;
/// Its row.
const EXEC_NAME: &str = "300,000 random instructions, exec of a known module";

/// What to arm, with its bars.
struct Row {
    name: &'static str,
    threads: u32,
    /// How many groups of functions to probe at their entries; `None`: random instructions.
    groups: Option<u64>,
}

const ROWS: [Row; 5] = [
    Row { name: "50,000 entries, 1 thread", threads: 1, groups: Some(5) },
    Row { name: "10,000 entries, 1 thread", threads: 1, groups: Some(1) },
    Row { name: "10,000 entries, 100 threads", threads: 100, groups: Some(1) },
    Row { name: "50,000 entries, 100 threads", threads: 100, groups: Some(5) },
    Row { name: "300,000 random instructions, 1 thread", threads: 1, groups: None },
];

/// Measures how long arming and disarming a running process takes, and how long the process is
/// held.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  arm                           all rows, five times
  arm 9 --only '1 thread'       some rows, nine times")]
struct Options {
    /// How often each row is measured
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Only the rows whose names contain this
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
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
    line("processor time until then", |sample| sample.processor, None);
    line("longest hold", |sample| sample.held, Some(HOLD));
    line("holds", |sample| sample.holds as f64, None);
    line("longest pause seen, arming", |sample| sample.pause, (row.threads == 1).then_some(HOLD));
    line("disarmed after", |sample| sample.disarmed, Some(TOTAL));
    line("longest pause seen, disarming", |sample| sample.pause_out, (row.threads == 1).then_some(HOLD));
    for wrong in samples.iter().filter_map(|sample| sample.wrong.as_ref()) {
        println!("{}: WRONG: {wrong}", row.name);
    }
}

/// Prints what probed execs cost beyond unprobed ones.
fn print_execs(unprobed: &Execs, probed: &Execs) {
    let mut base = Figures::default();
    unprobed.wall.iter().for_each(|wall| base.add(*wall));
    let (mut wall, mut processor) = (Figures::default(), Figures::default());
    probed.wall.iter().for_each(|one| wall.add(one - base.median()));
    probed.processor.iter().for_each(|one| processor.add(*one));
    for (what, figures, bar) in [("", &wall, Some(EXEC)), (", the tracer's processor time", &processor, None)]
    {
        let verdict = bar.map_or(String::new(), |bar| {
            format!("{bar:>8.0}  {}", if figures.median() <= bar { "OK" } else { "OVER" })
        });
        let (median, min, max) = (figures.median(), figures.min(), figures.max());
        println!("{:58} {median:>8.1} {min:>8.1} {max:>8.1} {verdict}", format!("{EXEC_NAME}{what}"));
    }
}

/// Whether nothing was wrong in any repetition of any row.
fn is_right(samples: &[Vec<Sample>]) -> bool {
    samples.iter().flatten().all(|sample| sample.wrong.is_none())
}

fn bench(Options { repetitions, only }: Options) -> io::Result<bool> {
    cleanup::on_signals()?;
    let dprobes = build::dprobes(true)?;
    let directory = build::target(true)?.join("bench-arm");
    std::fs::create_dir_all(&directory)?;
    let library = Library::build(&directory, FUNCTIONS, GROUPS)?;
    let selected = |row: &&Row| only.is_empty() || only.iter().any(|part| row.name.contains(&**part));
    let rows: Vec<&Row> = ROWS.iter().filter(selected).collect();
    let has_execs = only.is_empty() || only.iter().any(|part| EXEC_NAME.contains(&**part));
    let random = match has_execs || rows.iter().any(|row| row.groups.is_none()) {
        true => random_program(&library, RANDOM as usize, &directory)?,
        false => directory.clone(),
    };
    let again = again(&library, &directory)?;
    let (mut unprobed, mut probed) = (Execs::default(), Execs::default());
    let mut samples: Vec<Vec<Sample>> = rows.iter().map(|_| Vec::new()).collect();
    for repetition in 1..=repetitions {
        for (row, samples) in rows.iter().zip(&mut samples) {
            eprint!("\r\x1b[Krepetition {repetition} of {repetitions}: {}", row.name);
            let asked = row.groups.map_or(Asked::Program(&random, RANDOM), Asked::Entries);
            samples.push(measure(&dprobes, &library, row.threads, asked, &directory)?);
        }
        if has_execs {
            eprint!("\r\x1b[Krepetition {repetition} of {repetitions}: {EXEC_NAME}");
            for (all, probes) in [(&mut unprobed, None), (&mut probed, Some((&*dprobes, &*random)))] {
                let found = execs(&again, probes)?;
                all.wall.extend(found.wall);
                all.processor.extend(found.processor);
            }
        }
    }
    eprintln!("\r\x1b[K");
    println!("milliseconds, {repetitions} interleaved repetitions");
    println!("{:58} {:>8} {:>8} {:>8} {:>8}", "", "median", "min", "max", "bar");
    rows.iter().zip(&samples).for_each(|(row, samples)| print(row, samples));
    if has_execs {
        print_execs(&unprobed, &probed);
    }
    Ok(is_right(&samples))
}

fn main() -> ExitCode {
    status("arm", bench(Options::parse()))
}

#[cfg(test)]
mod tests {
    use super::{Sample, is_right};

    #[test]
    fn one_that_is_wrong_makes_it_all_wrong() {
        let sample = |wrong: Option<&str>| Sample {
            armed: 1.0,
            processor: 1.0,
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
            vec![sample(Some("2 bytes were not restored")), sample(None)]
        ]));
    }
}
