//! Probes every instruction of real modules while they work, and checks whether the program
//! notices.
//!
//!     cargo run --release -p dprobes-bench --bin soundness -- [--quick] [--module NAME]... [--batch 10000]
//!         [--batches N] [--seed N] [--engine NAME] [--maxhits N] [--report FILE] [--dprobes COMMAND]
//!
//! The modules are libc, sqlite, libpython, python and redis. Each one's sites are shuffled
//! (`--seed`) and divided into batches of at least `--batch`, and each batch (or the first
//! `--batches`) is probed while the module's workload runs. A batch that the program notices is
//! reduced to the sites that cause it. Then hits are compared with callgrind's counts, if the
//! workload is deterministic. `--report` writes the findings as Markdown.
//!
//! `--quick` takes one batch of a few hundred sites of each module and short workloads, and builds
//! dprobes as this program is built (with or without `--release`): under a minute, for every
//! change.
//!
//! `--dprobes` uses another command instead of building one from these sources.
//!
//! With the trap engine a hit is so slow that each probe is removed after 20 hits, unless
//! `--maxhits` says otherwise (0: never).
//!
//! The status is 0 if no program noticed, 1 if one did, 2 if the test could not be run.

use clap::Parser;
use dprobes_bench::soundness::{Head, MODULES, Plan, Runner, Scale, Workload, report, run};
use dprobes_bench::{build, cleanup, machine};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Probes every instruction of real modules while they work, and checks whether the program
/// notices.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  soundness --quick                         a few hundred sites of each module
  soundness --module libc --seed 7          all of one, in another order
  soundness --engine trap --report trap.md
The status is 0 if no probed program behaved differently, 1 if one did, 2 if the work could not be done.")]
struct Options {
    /// One batch of a few hundred sites of each module, short workloads, and dprobes as this is
    /// built: for every change
    #[arg(long)]
    quick: bool,
    /// Probe only this module
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Least number of sites that are probed at once; default 10,000
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Run only the first N batches
    #[arg(long, value_name = "N")]
    batches: Option<usize>,
    /// Seed of the order of the sites
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The engine to use
    #[arg(long, value_name = "NAME", default_value = "auto")]
    engine: String,
    /// Remove each probe after N hits; 0: never. With the trap engine the default is 20
    #[arg(long, value_name = "N")]
    maxhits: Option<u64>,
    /// Write the findings as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The dprobes to test, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    dprobes: Option<PathBuf>,
}

fn work(options: &Options) -> io::Result<bool> {
    cleanup::on_signals()?;
    let release = !options.quick || !cfg!(debug_assertions);
    let built = build::target(release)?;
    let dprobes = build::given(options.dprobes.as_deref(), release)?;
    let engine = &*options.engine;
    if !build::knows_engine(&dprobes, engine)? {
        return Err(io::Error::other(format!("unknown engine `{engine}`")));
    }
    let traps = engine == "trap";
    let maxhits = match options.maxhits {
        Some(0) => None,
        Some(count) => Some(count),
        None => traps.then_some(20),
    };
    // One for each run, since several may be running.
    let name = format!("bench-soundness-{}", std::process::id());
    let directory = built.join(name);
    std::fs::create_dir_all(&directory)?;
    let directory = directory.canonicalize()?;
    let _directory = cleanup::Guard::remove_all(directory.clone());
    let runner = Runner { dprobes, engine: engine.to_owned(), maxhits, directory };
    let scale = if options.quick { Scale::Quick } else { Scale::Full };
    let seed = options.seed;
    let plan = Plan {
        batch: options.batch.map_or(if options.quick { 400 } else { 10_000 }, |batch| batch.max(1)),
        batches: options.batches.or(options.quick.then_some(1)),
        seed,
        sample: match (options.quick, traps) {
            (true, true) => (200, 20_000),
            (true, false) => (500, 1_000_000),
            (false, true) => (2000, 1_000_000),
            (false, false) => (10_000, 10_000_000),
        },
        runs: if options.quick { 30 } else { 300 },
    };
    let wanted: Vec<&str> = match &options.modules[..] {
        [] => MODULES.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let (mut shown, mut skipped) = (Vec::new(), Vec::new());
    for name in wanted {
        match Workload::new(name, scale, &runner.directory) {
            Ok(workload) => shown.push(run(&runner, workload, &plan, |line| eprintln!("{line}"))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => skipped.push(format!("{name}: {error}")),
            Err(error) => return Err(error),
        }
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.contains('/')).collect();
    let head = Head {
        command: format!("cargo run --release -p dprobes-bench --bin soundness -- {}", words.join(" "))
            .trim()
            .to_owned(),
        kernel: machine::kernel(),
        processor: machine::processor(),
        batch: plan.batch,
        seed,
        maxhits,
    };
    let text = report(&head, &shown, &skipped);
    match &options.report {
        Some(file) => std::fs::write(file, &text)?,
        None => print!("{text}"),
    }
    Ok(shown.iter().all(|shown| shown.sound()))
}

fn main() -> ExitCode {
    match work(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("soundness: a probed program behaved differently, or counts differ");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("soundness: {error}");
            ExitCode::from(2)
        }
    }
}
