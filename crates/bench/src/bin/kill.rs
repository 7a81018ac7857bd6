//! Kills the tracer at random moments, and reports whether a program was harmed.
//!
//!     cargo run -p dprobes-bench --bin kill -- [KILLS] [--engine ENGINE]... [--way WAY]... [--phase PHASE]... [--seed N]
//!         [--keep DIR] [--dprobes PATH]
//!
//! Makes KILLS kills (default 100) for each engine (default `jump` and `trap`), of programs run in
//! random ways and in random phases (default: all of them). `--keep` puts the core of each program
//! that dies in a directory of its own; `--dprobes` uses a command already built. Prints for each
//! engine and phase how many kills there were, how many programs were harmed, and how many continue
//! with working probes in their code. The status is 1 if a program was harmed by a kill of the jump
//! engine's tracer, or by more than 1 of 100 of the trap engine's.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use dprobes_bench::kill::{Kill, Outcome, PHASES, Random, WAYS};
use dprobes_bench::{build, cleanup, status};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Kills the tracer at random moments, and reports whether a program was harmed.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  kill                                          a hundred kills for each engine
  kill 1000 --engine jump --phase arming        while the probes are put in
  kill 500 --seed 7 --keep /tmp/cores           keeps the core of each program that dies")]
struct Options {
    /// Number of kills for each engine
    #[arg(default_value_t = 100)]
    kills: u64,
    /// An engine to test
    #[arg(long = "engine", value_name = "ENGINE", default_values = ["jump", "trap"])]
    engines: Vec<String>,
    /// What programs do; one of these at random
    #[arg(long = "way", value_name = "WAY", value_parser = PossibleValuesParser::new(WAYS), default_values = WAYS, hide_default_value = true)]
    ways: Vec<String>,
    /// What the tracer does when it is killed; one of these at random
    #[arg(long = "phase", value_name = "PHASE", value_parser = PossibleValuesParser::new(PHASES), default_values = PHASES, hide_default_value = true)]
    phases: Vec<String>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep the core of each program that dies in a directory below this one
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The dprobes to test, instead of building it from these sources
    #[arg(long, value_name = "PATH")]
    dprobes: Option<PathBuf>,
}

/// The counts of a phase.
#[derive(Clone, Copy, Default)]
struct Count {
    kills: u64,
    late: u64,
    harmed: u64,
    changed: u64,
}

fn kill_all() -> io::Result<bool> {
    let options = Options::parse();
    cleanup::on_signals()?;
    let dprobes = build::given(options.dprobes.as_deref(), false)?;
    let directory = build::target(false)?.join(format!("bench-kill-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let _removed = cleanup::Guard::remove_all(directory.clone());
    let program = directory.join("mortal");
    let source = build::repository().join("tests/targets/mortal.c");
    build::c_program(&[source], &[], &["-ldl"], &program)?;
    let program = program.canonicalize()?;
    let mut random = Random::new(options.seed);
    let mut good = true;
    println!(
        "{:8} {:10} {:>7} {:>9} {:>7} {:>9}",
        "engine", "phase", "kills", "too late", "harmed", "probes in"
    );
    for engine in &options.engines {
        let mut counts = [Count::default(); PHASES.len()];
        for number in 0..options.kills {
            let phase = &*options.phases[random.below(options.phases.len() as u64) as usize];
            let way = &*options.ways[random.below(options.ways.len() as u64) as usize];
            let most = if phase == "running" { 20_000 } else { 150_000 };
            let delay = Duration::from_micros(random.below(most));
            let core = options.keep.as_ref().map(|keep| keep.join(format!("{engine}-{number}")));
            let core = core.as_deref();
            let kill = Kill { dprobes: &dprobes, program: &program, engine, way, phase, delay, core };
            let count = &mut counts[PHASES.iter().position(|known| *known == phase).unwrap_or(0)];
            count.kills += 1;
            match kill.run()? {
                Outcome::Well { changed } => count.changed += u64::from(changed > 0),
                Outcome::TooLate => count.late += 1,
                Outcome::Harmed(harm) => {
                    count.harmed += 1;
                    println!("{engine}: kill {number}, {way}, {phase}, after {delay:?}: {harm}");
                }
            }
        }
        for (phase, count) in PHASES.iter().zip(&counts) {
            let Count { kills, late, harmed, changed } = count;
            println!("{engine:8} {phase:10} {kills:>7} {late:>9} {harmed:>7} {changed:>9}");
        }
        let harmed: u64 = counts.iter().map(|count| count.harmed).sum();
        good &= if engine == "jump" { harmed == 0 } else { harmed * 100 <= options.kills };
    }
    Ok(good)
}

fn main() -> ExitCode {
    status("kill", kill_all())
}
