//! Measures nanoseconds per hit of the trap engine, compared with the two classic ways to stop at
//! an instruction.
//!
//!     cargo run --release -p dprobes-bench --bin trap -- [REPETITIONS]
//!
//! Builds the release `dprobes` and `tests/targets/tight.c`. Prints for each way the median, least
//! and most of the repetitions (default 7, at least 5) in nanoseconds per hit beyond the unprobed
//! call, the median's ratio to the minimal ptrace breakpoint, and whether the count was exact every
//! time. The status is 1 if dprobes' count was not.

use clap::Parser;
use dprobes_bench::{Figures, Subject, build, classic, status, ways};
use std::io;
use std::process::ExitCode;

/// Calls per repetition of the unprobed function.
const UNPROBED_CALLS: u64 = 20_000_000;

/// Measures nanoseconds per hit of the trap engine, compared with the two classic ways to stop at
/// an instruction.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  trap          seven times
  trap 21       more often")]
struct Options {
    /// How often each way is measured, at least 5
    #[arg(default_value_t = 7)]
    repetitions: u64,
    /// The minimal breakpoint, at an address of a process: the bench starts itself with this
    /// option, since a tracer is a process of its own
    #[arg(long, value_names = ["PID", "ADDRESS"], num_args = 2, hide = true)]
    classic: Option<Vec<u64>>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.classic.as_deref() {
        Some(&[pid, address]) => classic(pid as i32, address).map(|hits| {
            println!("{hits}");
            true
        }),
        _ => bench(options.repetitions.max(5)),
    };
    status("trap", result)
}

fn bench(repetitions: u64) -> io::Result<bool> {
    let dprobes = build::dprobes(true)?;
    let itself = std::env::current_exe()?;
    let directory = build::target(true)?.join("bench-trap");
    std::fs::create_dir_all(&directory)?;
    let (ways, missing) = ways(&dprobes, &itself, &directory);
    let mut subject = Subject::start(&directory)?;
    let mut unprobed = Figures::default();
    let mut figures = vec![Figures::default(); ways.len()];
    let mut lost = vec![0; ways.len()];
    for repetition in 1..=repetitions {
        eprint!("\rrepetition {repetition} of {repetitions}");
        unprobed.add(subject.round(UNPROBED_CALLS, 1)?.nanoseconds);
        for (place, way) in ways.iter().enumerate() {
            let (nanoseconds, hits) = way.measure(&mut subject)?;
            figures[place].add(nanoseconds - unprobed.median());
            lost[place] += way.calls.abs_diff(hits);
        }
    }
    eprintln!();
    let baseline = ways.iter().position(|way| way.name.starts_with("ptrace"));
    let baseline = baseline.map_or(0.0, |place| figures[place].median());
    println!("ns per hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:42} {:>10} {:>10} {:>10} {:>7}  count", "", "median", "min", "max", "ratio");
    let row = |name: &str, each: &Figures, ratio: &str, count: &str| {
        println!(
            "{name:42} {:>10.0} {:>10.0} {:>10.0} {ratio:>7}  {count}",
            each.median(),
            each.min(),
            each.max()
        );
    };
    for (place, way) in ways.iter().enumerate() {
        let ratio = format!("{:.2}", figures[place].median() / baseline);
        let count = if lost[place] == 0 { "exact".to_string() } else { format!("{} wrong", lost[place]) };
        row(way.name, &figures[place], &ratio, &count);
    }
    println!(
        "{:42} {:>10.2} {:>10.2} {:>10.2}",
        "the unprobed call",
        unprobed.median(),
        unprobed.min(),
        unprobed.max()
    );
    for name in missing {
        println!("skipped: {name} is not installed");
    }
    // Wrong counts of other tools are only reported.
    Ok(ways.iter().zip(&lost).all(|(way, lost)| !way.is_ours() || *lost == 0))
}
