//! Checks that programs inserted and removed in a session leave nothing behind.
//!
//!     cargo run --release -p dprobes-bench --bin cycles -- [CYCLES] [--all-every N] [--show-every N] [--minutes N]
//!         [--engine ENGINE] [--dprobes PATH]
//!
//! Runs 10,000 cycles by default, or as many as there is time for, every 50th at all functions of
//! libc. The status is 0 if the session and the process use no more resources in the end than after
//! the first thousand cycles, give or take a few pages, and all results of the process were right.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::Parser;
use dprobes_bench::cycles::{Load, Session, Taken};
use dprobes_bench::kill::Program;
use dprobes_bench::{build, cleanup, status};

/// The number of cycles after which resource use must be stable.
const WARM: u64 = 1000;
/// How long to observe an idle session.
const IDLE: Duration = Duration::from_secs(5);
/// How many KiB the session may grow: threads that serve requests have heaps of their own.
const GROWS: u64 = 2048;
/// How many KiB the process may grow: pages that were touched.
const TOUCHES: u64 = 1024;

/// Checks that programs inserted and removed in a session leave nothing behind.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cycles                        ten thousand
  cycles 1000000 --minutes 30   as many as there is time for
  cycles --all-every 0          never at every function of libc")]
struct Options {
    /// Number of cycles
    #[arg(default_value_t = 10_000)]
    cycles: u64,
    /// In each Nth cycle probe every function of libc; 0: never
    #[arg(long, value_name = "N", default_value_t = 50)]
    all_every: u64,
    /// Print each Nth cycle
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    show_every: u64,
    /// End after N minutes
    #[arg(long, value_name = "N", default_value_t = u64::MAX / 60, hide_default_value = true)]
    minutes: u64,
    /// The engine to use
    #[arg(long, default_value = "auto")]
    engine: String,
    /// The dprobes to test, instead of building it from these sources
    #[arg(long, value_name = "PATH")]
    dprobes: Option<PathBuf>,
}

fn work() -> io::Result<bool> {
    let options = Options::parse();
    cleanup::on_signals()?;
    let dprobes = build::given(options.dprobes.as_deref(), true)?;
    let directory = std::env::temp_dir().join(format!("dprobes-cycles-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let _directory = cleanup::Guard::remove_all(directory.clone());
    let program = directory.join("mortal");
    build::c_program(&[build::repository().join("tests/targets/mortal.c")], &[], &["-ldl"], &program)?;
    let program = program.canonicalize()?;
    let process = Program::begin(&program, "loop", None)?;
    let session = Session::begin(&dprobes, &directory, process.pid(), &program, &options.engine)?;
    println!("idle at first: {:.2} ms of processor time a second", session.idle(IDLE)?);
    println!(
        "{:>7} {:>6} {:>6} {:>12} {:>12} {:>9} {:>12} {:>9}",
        "cycle", "sites", "traps", "session KiB", "process KiB", "mappings", "mapped KiB", "ms each"
    );
    let (start, mut told) = (Instant::now(), (Instant::now(), 0));
    let mut first: Option<Taken> = None;
    let mut last = Taken::default();
    let mut done = 0;
    let cycle = |load, shows: bool| -> io::Result<_> {
        session.insert(load)?;
        let ways = if shows { Some(session.ways()?) } else { None };
        session.remove()?;
        Ok(ways)
    };
    while done < options.cycles && start.elapsed() < Duration::from_secs(60 * options.minutes) {
        done += 1;
        let load =
            if options.all_every > 0 && done % options.all_every == 0 { Load::All } else { Load::Some };
        if let Some(ways) = cycle(load, done == 1 || done % options.show_every == 0)? {
            let each = told.0.elapsed().as_secs_f64() * 1e3 / (done - told.1) as f64;
            told = (Instant::now(), done);
            last = session.taken()?;
            println!(
                "{done:>7} {:>6} {:>6} {:>12} {:>12} {:>9} {:>12} {each:>9.1}",
                ways.sites, ways.traps, last.session, last.process, last.mappings.0, last.mappings.1
            );
            if done >= WARM {
                first.get_or_insert(last);
            }
        }
    }
    println!("idle at the end: {:.2} ms of processor time a second", session.idle(IDLE)?);
    session.end()?;
    let first = first.unwrap_or(last);
    let mut good = true;
    let mut want = |holds: bool, what: &str| {
        if !holds {
            println!("wrong: {what}");
            good = false;
        }
    };
    want(last.session <= first.session + GROWS, "the session has grown");
    want(last.process <= first.process + TOUCHES, "the process's memory has grown");
    want(last.mappings == first.mappings, "the process's mappings have changed");
    match process.end()? {
        Ok(()) => {}
        Err(harm) => want(false, &harm),
    }
    println!("{done} cycles");
    Ok(good)
}

fn main() -> ExitCode {
    status("cycles", work())
}
