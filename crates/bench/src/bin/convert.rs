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

use dprobes_bench::convert::{Bench, forms};
use dprobes_bench::{other, status};

fn bench(words: impl Iterator<Item = String>) -> io::Result<()> {
    let mut bench =
        Bench { records: 10_000_000, rounds: 3, only: Vec::new(), directory: None, parquet: true };
    let mut words = words;
    let wrong =
        |word: &str| other(format!("`{word}` makes no sense here; see the first lines of bin/convert.rs"));
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| wrong(&word));
        match word.as_str() {
            "--no-parquet" => bench.parquet = false,
            "--in" => bench.directory = Some(PathBuf::from(value()?)),
            "--repeat" => {
                bench.rounds =
                    value()?.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| wrong(&word))?
            }
            "--only" => {
                let form = value()?;
                bench.only.push(forms().find(|known| *known == form).ok_or_else(|| wrong(&form))?);
            }
            records => {
                bench.records =
                    records.parse().ok().filter(|records| *records >= 4).ok_or_else(|| wrong(&word))?;
            }
        }
    }
    bench.run()
}

fn main() -> ExitCode {
    // A form that is wrong is an error.
    status("convert", bench(std::env::args().skip(1)).map(|()| true))
}
