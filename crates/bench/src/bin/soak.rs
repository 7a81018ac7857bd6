//! Servers under load, probed at random by both engines, with random signals and random kills of the tracer: can a client tell?
//!
//!     cargo run --release -p dprobes-bench --bin soak -- [--minutes 30] [--server NAME]... [--seed N] [--engine NAME]...
//!         [--no-kills] [--report FILE] [--dprobes COMMAND]
//!
//! The servers are redis, nginx and PostgreSQL, one after the other, each for so many minutes. `--report` writes what was found as
//! Markdown. `--no-kills` ends every session as a user would. `--dprobes` probes with another command than the one that is built from
//! these sources.
//!
//! The status is 0 if nothing went wrong, 1 if something did, 2 if the work could not be done.

use dprobes_bench::soak::{Head, Plan, SERVERS, report, run};
use dprobes_bench::{build, cleanup, machine, other};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The engines.
const ENGINES: [&str; 2] = ["auto", "trap"];

#[derive(Default)]
struct Options {
    minutes: Option<u64>,
    servers: Vec<String>,
    seed: Option<u64>,
    engines: Vec<&'static str>,
    no_kills: bool,
    report: Option<PathBuf>,
    dprobes: Option<PathBuf>,
}

fn options() -> io::Result<Options> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--no-kills" {
            options.no_kills = true;
            continue;
        }
        let bad = || other(format!("{word}: see the first lines of crates/bench/src/bin/soak.rs"));
        let value = words.next().ok_or_else(bad)?;
        match &*word {
            "--minutes" => options.minutes = Some(value.parse().map_err(|_| bad())?),
            "--seed" => options.seed = Some(value.parse().map_err(|_| bad())?),
            "--server" => options.servers.push(value),
            "--engine" => {
                let known = ["auto", "jump", "trap"].into_iter().find(|engine| *engine == value);
                options.engines.push(known.ok_or_else(bad)?);
            }
            "--report" => options.report = Some(value.into()),
            "--dprobes" => options.dprobes = Some(PathBuf::from(value).canonicalize()?),
            _ => return Err(bad()),
        }
    }
    Ok(options)
}

fn work(options: &Options) -> io::Result<bool> {
    cleanup::on_signals()?;
    let dprobes = match &options.dprobes {
        Some(dprobes) => dprobes.clone(),
        None => build::dprobes(true)?,
    };
    // Where any user may look: one of the servers runs as another one.
    let directory = std::env::temp_dir().join(format!("dprobes-soak-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let directory = directory.canonicalize()?;
    let _directory = cleanup::Guard::remove_all(directory.clone());
    let minutes = options.minutes.unwrap_or(30);
    let plan = Plan {
        dprobes,
        time: Duration::from_secs(60 * minutes),
        seed: options.seed.unwrap_or(1),
        engines: if options.engines.is_empty() { ENGINES.to_vec() } else { options.engines.clone() },
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
        minutes,
    };
    let text = report(&head, &tallies, &skipped);
    match &options.report {
        Some(file) => std::fs::write(file, &text)?,
        None => print!("{text}"),
    }
    Ok(tallies.iter().all(|tally| tally.wrong.is_empty()))
}

fn main() -> ExitCode {
    match options().and_then(|options| work(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("soak: something went wrong");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}
