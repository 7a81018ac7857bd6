//! Measures nanoseconds per hit of dprobes, compared with hand-written trampolines and other
//! installed tracers.
//!
//!     cargo run --release -p dprobes-bench --bin jump -- [REPETITIONS] [--engine NAME] [--only PART]...
//!
//! Builds the release `dprobes` and a subject. Prints for each row the median, least and most of
//! the repetitions (default 5), by wall clock and in processor time, whether all hits
//! were counted or logged every time, and for dprobes' rows the bar and whether it is met. `--only`
//! selects the rows whose names contain PART; `--engine` is passed to dprobes (default `auto`). The
//! status is 0 even if a bar is missed, since that depends on the machine; it is 1 if dprobes'
//! counts or logs are wrong, or it could not be measured. Losses of other tracers are only
//! reported.

use clap::Parser;
use dprobes_bench::jump::{Program, Results, Setting, directory, head, line, measure, prepare, rows};
use dprobes_bench::{build, cleanup, status};
use std::io;
use std::process::ExitCode;

/// Measures nanoseconds per hit of dprobes, compared with hand-written trampolines and other
/// installed tracers.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  jump                          all rows, five times
  jump 9 --only count           the rows that count, nine times
  jump --engine trap --only 'dprobes: count'")]
struct Options {
    /// How often each row is measured
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// The engine that dprobes uses
    #[arg(long, value_name = "NAME", default_value = "auto")]
    engine: String,
    /// Only the rows whose names contain this
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

fn bench(options: &Options) -> io::Result<bool> {
    // Before any thread starts: it may change the mount namespace, which is per thread.
    let no_uprobes = prepare().err().map(|error| error.to_string());
    cleanup::on_signals()?;
    let dprobes = build::dprobes(true)?;
    if !build::knows_engine(&dprobes, &options.engine)? {
        return Err(io::Error::other(format!("unknown engine `{}`", options.engine)));
    }
    let directory = directory(&dprobes)?;
    let program = Program::build(&directory, "hits", &[], &[])?;
    let setting = Setting { dprobes, engine: options.engine.clone(), directory, program, no_uprobes };
    let (rows, missing) = rows(&setting, &options.only)?;
    let mut results = vec![Results::default(); rows.len()];
    for repetition in 1..=options.repetitions {
        for (row, results) in rows.iter().zip(&mut results) {
            if results.failed.is_some() {
                continue;
            }
            eprint!("\r\x1b[Krepetition {repetition} of {}: {}", options.repetitions, row.name);
            match measure(row, &setting) {
                Ok(sample) => results.add(sample),
                Err(error) => results.failed = Some(error.to_string()),
            }
        }
    }
    eprintln!("\r\x1b[K");
    print!("{}", head(options.repetitions));
    for (row, results) in rows.iter().zip(&results) {
        println!("{}", line(row, results));
    }
    for name in missing {
        println!("skipped: {name}");
    }
    Ok(rows.iter().zip(&results).all(|(row, results)| !row.is_ours() || results.is_right()))
}

fn main() -> ExitCode {
    status("jump", bench(&Options::parse()))
}
