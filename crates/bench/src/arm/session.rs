//! One session of `dprobes attach`, from start to end.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, sysconf};
use serde_json::Value;

use super::subject::{Library, Subject};
use crate::cleanup::Started;
use crate::other;

/// How long the program runs while armed.
const RUN: Duration = Duration::from_millis(300);
/// How long a session may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// What to arm.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// The function entries of this many groups of the library, by a pattern.
    Entries(u64),
    /// The probes of a program, and their number of sites.
    Program(&'a Path, u64),
}

/// The measurements of one session, in milliseconds.
#[derive(Clone, Debug)]
pub struct Sample {
    /// From starting the command until it prints that the probes are armed.
    pub armed: f64,
    /// Processor time of the command and its children until then.
    pub processor: f64,
    /// From the interrupt to the end of the command.
    pub disarmed: f64,
    /// The longest single hold of the process while probes were inserted or removed.
    pub held: f64,
    /// The number of holds.
    pub holds: u64,
    /// The longest time for which a thread of the process did not run while probes were inserted,
    /// by its own clock: holds and other delays.
    pub pause: f64,
    /// The same while they were removed.
    pub pause_out: f64,
    /// What is wrong, if anything.
    pub wrong: Option<String>,
}

/// Arms `what` in a process with this many threads, and disarms it.
///
/// # Errors
/// If a process does not start, or misbehaves.
pub fn measure(
    dprobes: &Path,
    library: &Library,
    threads: u32,
    asked: Asked<'_>,
    directory: &Path,
) -> io::Result<Sample> {
    let stats = directory.join("arm.stats");
    let mut subject = Subject::start(library, threads)?;
    subject.pause()?;
    let mut command = Command::new(dprobes);
    command.args(["attach", "-p", &subject.pid().to_string()]);
    match asked {
        Asked::Entries(groups) => command.arg("--at").arg(format!("libmany.so:f[0-{}]_*:entry", groups - 1)),
        Asked::Program(path, _) => command.arg(path),
    };
    command.arg("--stats").arg(&stats);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn()?;
    let stderr = child.stderr.take().ok_or_else(|| other("no pipe from dprobes"))?;
    let mut session = Started::gently(child);
    let mut said = BufReader::new(stderr).lines();
    let mut lines = Vec::new();
    let armed = loop {
        let line = said.next().ok_or_else(|| other(format!("not armed: {}", lines.join(" / "))))??;
        if line.contains(" armed in ") {
            break began.elapsed();
        }
        lines.push(line);
    };
    let processor = processor_time(session.pid());
    // Drain further output, so that the command does not block.
    let rest = std::thread::spawn(move || said.map_while(Result::ok).count());
    std::thread::sleep(RUN);
    let pause = subject.pause()?;
    let interrupted = Instant::now();
    session.signal(Signal::SIGINT);
    while session.ended()?.is_none() {
        if interrupted.elapsed() > END_TIMEOUT {
            return Err(other("dprobes does not end"));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let disarmed = interrupted.elapsed();
    let _ = rest.join();
    let changed = subject.changed()?;
    let pause_out = subject.end()?;
    let stats: Value = serde_json::from_reader(BufReader::new(File::open(&stats)?))?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let probes = stats["probes"].as_array().map_or(&[][..], Vec::as_slice);
    // A probe with many sites lists them.
    let sites_of = |probe: &Value| match probe["places"].as_array() {
        Some(places) => places.iter().map(|place| number(&place["sites"])).sum(),
        None => 1,
    };
    // With an unlucky memory layout some sites trap.
    let is_armed = |probe: &&Value| {
        let is_alone = probe["places"].is_null() && probe["engine"] == "trap";
        is_alone || matches!(probe["engine"].as_str(), Some("jump" | "jump+trap"))
    };
    let sites: u64 = probes.iter().filter(is_armed).map(sites_of).sum();
    let wanted = match asked {
        Asked::Entries(groups) => library.functions(groups),
        Asked::Program(_, sites) => sites,
    };
    let wrong = match changed {
        0 if sites == wanted => None,
        0 => Some(format!("{sites} of {wanted} sites")),
        1 => Some("1 byte was not restored".to_owned()),
        changed => Some(format!("{changed} bytes were not restored")),
    };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Sample {
        armed: milliseconds(armed),
        processor: milliseconds(processor),
        disarmed: milliseconds(disarmed),
        held: number(&stats["holds"]["greatest"]) as f64 / 1e3,
        holds: number(&stats["holds"]["count"]),
        pause,
        pause_out,
        wrong,
    })
}

/// The processor time of a process and its running descendants.
fn processor_time(pid: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Skip the name, which may contain anything; the rest begins with field 3. utime and stime are
    // fields 14 and 15.
    let fields = own.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(1).max(1) as u64;
    let own = Duration::from_millis(ticks * 1000 / second);
    children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .map(processor_time)
        .fold(own, |sum, it| sum + it)
}
