//! Probes in a program that is started for it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::finding::{Finding, State};
use crate::scripts::program_named;

/// The counts go to standard output, to which the program itself writes nothing.
const STATS: &str = "--stats=/dev/stdout";

/// Tries to probe a new program and a running one, as a user would.
pub(super) fn findings() -> Vec<Finding> {
    let own = std::env::current_exe();
    match own {
        Ok(own) => vec![new_program(&own), running_program(&own)],
        Err(error) => vec![Finding::new(State::Fails, "trial", format!("dprobes' own file: {error}"))],
    }
}

/// What is said where another program is missing, as in an image that has dprobes alone.
fn not_tried(subject: &'static str, name: &str) -> Option<Finding> {
    let is_there = program_named(OsStr::new(name)).is_some_and(|path| path.is_file());
    let text =
        format!("not tried: there is no program `{name}` here; `dprobes doctor -p PID` examines a process");
    (!is_there).then(|| Finding::new(State::Lacking, subject, text))
}

/// Probes the end of `true`.
fn new_program(own: &Path) -> Finding {
    if let Some(finding) = not_tried("new program", "true") {
        return finding;
    }
    let mut command = Command::new(own);
    command.args(["run", "--at", "::exit:entry", STATS, "--", "true"]);
    match finish(&mut command) {
        Ok((1.., engine)) => {
            Finding::new(State::Works, "new program", format!("`true` was probed, by a {engine}"))
        }
        Ok(_) => Finding::new(State::Lacking, "new program", "`true` was probed, and has no function `exit`"),
        Err(why) => Finding::new(State::Fails, "new program", why),
    }
}

/// A child that is killed with its owner.
struct Sleeper(Child);

impl Sleeper {
    /// Waits until the program has begun and sleeps; not for long.
    fn wait_until_asleep(&self) {
        let begin = Instant::now();
        let sleeps = || ::process::Status::read(self.0.id() as i32).is_ok_and(|status| status.state == 'S');
        while !sleeps() && begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Probes `sleep` while it sleeps.
fn running_program(own: &Path) -> Finding {
    let subject = "running program";
    if let Some(finding) = not_tried(subject, "sleep") {
        return finding;
    }
    let sleeper = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut sleeper = match sleeper {
        Ok(child) => Sleeper(child),
        Err(error) => {
            return Finding::new(State::Fails, subject, format!("`sleep` cannot be started: {error}"));
        }
    };
    sleeper.wait_until_asleep();
    let mut command = Command::new(own);
    command.args([
        "attach",
        "-p",
        &sleeper.0.id().to_string(),
        "--at",
        "::exit:entry",
        "--for",
        "50ms",
        STATS,
    ]);
    match finish(&mut command) {
        Ok(_) if sleeper.0.try_wait().is_ok_and(|ended| ended.is_none()) => {
            Finding::new(State::Works, subject, "`sleep` was probed, and sleeps on")
        }
        Ok(_) => Finding::new(State::Fails, subject, "`sleep` was probed, and has ended"),
        Err(why) => Finding::new(State::Fails, subject, why),
    }
}

/// Runs dprobes; the hits and the engine of its probe.
fn finish(command: &mut Command) -> Result<(u64, String), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stderr);
    let said = || {
        let mut errors = told.lines().filter_map(|line| line.strip_prefix("dprobes: error: "));
        errors.next_back().unwrap_or("dprobes said nothing").to_owned()
    };
    if !output.status.success() {
        return Err(said());
    }
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| said())?;
    let probe = &stats["probes"][0];
    let engine = probe["engine"].as_str().unwrap_or("trap").to_owned();
    Ok((probe["hits"].as_u64().unwrap_or(0), engine))
}
