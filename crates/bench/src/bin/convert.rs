//! How fast traces are converted, and in how much memory.
//!
//!     cargo run --release -p dprobes-bench --bin convert -- [RECORDS] [--repeat N] [--only FORM]... [--in DIR] [--no-parquet]
//!
//! It builds the release `dprobes`, with Parquet, records a trace of 10 million records (or RECORDS) of a real run of `tests/targets/tight.c`, entries and
//! returns of a function in two threads, with its argument logged at each, and converts it to every form, beside babeltrace2's own conversion of the
//! same trace to text. For each, it prints records a second by the wall clock and by processor time, the median (least most) of N rounds, and the
//! greatest memory that the process had. The bars are 1,000,000 records a second and 200 MB. The status is 0 even where one is missed: that depends on
//! the machine.
//!
//! What came out is counted, outside of the time: a form without all records, or with others, is an error. babeltrace2, DuckDB and Spark count with
//! their own readers where they are to be had, the latter two from the Python that `DPROBES_PYTHON` names.
//!
//! The files, of which there is one form's at a time (babeltrace2's with the trace that it reads), are below DIR, by itself the directory of the
//! build.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use dprobes_bench::convert::{Bench, forms};
use dprobes_bench::status;

/// How fast traces are converted, and in how much memory.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  convert                                   ten million records, to every form, three times
  convert 1000000 --only json --only csv    a million, to two forms
  convert --no-parquet --in /var/tmp        without Parquet, which takes long to build")]
struct Options {
    /// Records of the trace
    #[arg(default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(4..))]
    records: u64,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Only this form
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(forms()))]
    only: Vec<String>,
    /// Where the files are, in place of the directory of the build
    #[arg(long = "in", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Build dprobes without Parquet
    #[arg(long)]
    no_parquet: bool,
}

fn bench(options: Options) -> io::Result<()> {
    let Options { records, repeat, only, directory, no_parquet } = options;
    let only = forms().filter(|form| only.iter().any(|wanted| wanted == form)).collect();
    Bench { records, rounds: repeat as usize, only, directory, parquet: !no_parquet }.run()
}

fn main() -> ExitCode {
    // A form that is wrong is an error.
    status("convert", bench(Options::parse()).map(|()| true))
}
