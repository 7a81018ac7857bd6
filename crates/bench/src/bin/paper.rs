//! Measures the five experiments of the paper of 2001 on this machine.
//!
//!     cargo run --release -p dprobes-bench --bin paper -- [REPETITIONS]
//!
//! Builds the release `dprobes` and `subject/paper.c`. Prints a table: the time of an iteration of
//! the loop in the paper, and here with each engine, as medians. The status is 1 if a count was
//! wrong.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dprobes_bench::paper::{ENGINES, EXPERIMENTS, Row, subject, time};
use dprobes_bench::{build, status};

/// Measures the five experiments of the paper of 2001 on this machine.
#[derive(Parser)]
struct Options {
    /// How often each is measured
    #[arg(default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Measure this command instead of the one of these sources
    #[arg(long, value_name = "FILE")]
    dprobes: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    status("paper", bench(&options))
}

fn bench(options: &Options) -> io::Result<bool> {
    let dprobes = build::given(options.dprobes.as_deref(), true)?;
    let directory = build::target(true)?.join("bench-paper");
    std::fs::create_dir_all(&directory)?;
    let subject = subject(&directory)?;
    let mut rows = EXPERIMENTS.map(|_| Row::default());
    for repetition in 1..=options.repetitions {
        eprint!("\rrepetition {repetition} of {}", options.repetitions);
        for (experiment, row) in EXPERIMENTS.iter().zip(&mut rows) {
            experiment.measure(&dprobes, &subject, &directory, row)?;
        }
    }
    eprintln!();
    let engines: Vec<String> = ENGINES.iter().map(|(name, _)| format!("{name} engine")).collect();
    println!(
        "| an iteration | 2001 | {} | count |\n|---|---|{}---|",
        engines.join(" | "),
        "---|".repeat(ENGINES.len())
    );
    for (experiment, row) in EXPERIMENTS.iter().zip(&rows) {
        let here: Vec<String> = row.engines.iter().map(|figures| time(figures.median())).collect();
        let count = if row.wrong == 0 { "exact".to_owned() } else { format!("{} wrong", row.wrong) };
        println!("| {} | {} | {} | {count} |", experiment.name, time(experiment.paper), here.join(" | "));
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}
