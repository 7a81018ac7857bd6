//! Measures how fast traces are converted, and in how much memory.
//!
//!     cargo run --release -p dprobes-bench --bin convert -- [RECORDS] [--repeat N] [--only FORM]... [--in DIR]
//!
//! Builds the release `dprobes`, and records a trace of 10 million records (or
//! RECORDS) of a real run of `tests/targets/tight.c`: entries and returns of a function in two
//! threads, each with its argument logged. Converts it to every form, and for comparison with
//! babeltrace2 to text. Prints for each form the records per second by wall clock and by processor
//! time, as median (least most) of N rounds, and the process's peak memory. The bars are 1,000,000
//! records a second and 200 MB. The status is 0 even if one is missed, since that depends on the
//! machine.
//!
//! The output is counted outside of the measured time: missing or wrong records are an error.
//! babeltrace2, DuckDB and Spark count with their own readers where installed, the latter two from
//! the Python that `DPROBES_PYTHON` names.
//!
//! The files, of one form at a time (babeltrace2's with the trace that it reads), are in DIR, by
//! default the build directory.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use dprobes_bench::convert::{Bench, forms};
use dprobes_bench::status;

/// Measures how fast traces are converted, and in how much memory.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  convert                                   ten million records, to every form, three times
  convert 1000000 --only json --only csv    a million, to two forms
  convert --in /var/tmp                     with the files there")]
struct Options {
    /// Number of records in the trace
    #[arg(default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(4..))]
    records: u64,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Convert only to this form
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(forms()))]
    only: Vec<String>,
    /// Put the files here instead of the build directory
    #[arg(long = "in", value_name = "DIR")]
    directory: Option<PathBuf>,
}

fn bench(options: Options) -> io::Result<()> {
    let Options { records, repeat, only, directory } = options;
    let only = forms().filter(|form| only.iter().any(|wanted| wanted == form)).collect();
    Bench { records, rounds: repeat as usize, only, directory }.run()
}

fn main() -> ExitCode {
    // A wrong form is returned as an error.
    status("convert", bench(Options::parse()).map(|()| true))
}
