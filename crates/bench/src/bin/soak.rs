//! Probes servers under load at random with both engines, with random signals and random kills of
//! the tracer, and checks whether a client notices.
//!
//!     cargo run --release -p dprobes-bench --bin soak -- [--minutes 30] [--server NAME]... [--seed N] [--engine NAME]...
//!         [--no-kills] [--report FILE] [--dprobes COMMAND]
//!
//! The servers are redis, nginx and PostgreSQL, one after the other, each for the given minutes.
//! `--report` writes the findings as Markdown. `--no-kills` ends every session as a user would.
//! `--dprobes` uses another command instead of building one from these sources.
//!
//! The status is 0 if nothing went wrong, 1 if something did, 2 if the test could not be run.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use dprobes_bench::soak::{Head, Plan, SERVERS, report, run};
use dprobes_bench::{build, cleanup, machine};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The possible engines.
const ENGINES: [&str; 3] = ["auto", "jump", "trap"];

/// Probes servers under load at random with both engines, with random signals and random kills of
/// the tracer, and checks whether a client notices.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  soak                                      each server for half an hour
  soak --server redis --minutes 2           one of them, shortly
  soak --no-kills --report soak.md          sessions end as a user ends them
The status is 0 if nothing went wrong, 1 if something did, 2 if the work could not be done.")]
struct Options {
    /// How many minutes each server is probed
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Probe only this server
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// An engine to use
    #[arg(long = "engine", value_name = "NAME", value_parser = PossibleValuesParser::new(ENGINES), default_values = ["auto", "trap"])]
    engines: Vec<String>,
    /// End every session as a user would
    #[arg(long)]
    no_kills: bool,
    /// Write the findings as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The dprobes to test, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    dprobes: Option<PathBuf>,
}

fn work(options: &Options) -> io::Result<bool> {
    cleanup::on_signals()?;
    let dprobes = build::given(options.dprobes.as_deref(), true)?;
    // A directory that any user may read, since one of the servers runs as another user.
    let directory = std::env::temp_dir().join(format!("dprobes-soak-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let directory = directory.canonicalize()?;
    let _directory = cleanup::Guard::remove_all(directory.clone());
    let plan = Plan {
        dprobes,
        time: Duration::from_secs(60 * options.minutes),
        seed: options.seed,
        engines: ENGINES.into_iter().filter(|engine| options.engines.iter().any(|it| it == engine)).collect(),
        kills: !options.no_kills,
        directory,
    };
    let wanted: Vec<&str> = match &options.servers[..] {
        [] => SERVERS.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let (mut tallies, mut skipped) = (Vec::new(), Vec::new());
    for name in wanted {
        match run(name, &plan, |line| eprintln!("{line}")) {
            Ok(tally) => tallies.push(tally),
            Err(error) if error.kind() == io::ErrorKind::NotFound => skipped.push(format!("{name}: {error}")),
            Err(error) => return Err(error),
        }
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.contains('/')).collect();
    let command = format!("cargo run --release -p dprobes-bench --bin soak -- {}", words.join(" "));
    let head = Head {
        command: command.trim().to_owned(),
        kernel: machine::kernel(),
        processor: machine::processor(),
        minutes: options.minutes,
    };
    let text = report(&head, &tallies, &skipped);
    match &options.report {
        Some(file) => std::fs::write(file, &text)?,
        None => print!("{text}"),
    }
    Ok(tallies.iter().all(|tally| tally.wrong.is_empty()))
}

fn main() -> ExitCode {
    match work(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("soak: a check failed; see the report");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}
