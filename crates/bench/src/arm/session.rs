//! One session: `dprobes attach`, from the command to its end.

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

/// How long the program runs with the probes in.
const RUN: Duration = Duration::from_millis(300);
/// How long a session may take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is armed.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// The entries of so many groups of the library's functions, by a pattern.
    Entries(u64),
    /// What a program has, and how many sites that is.
    Program(&'a Path, u64),
}

/// What one session took, in milliseconds.
#[derive(Clone, Debug)]
pub struct Sample {
    /// From the command to the word that the probes are armed.
    pub armed: f64,
    /// Processor time of the command and of what it started, until then.
    pub processor: f64,
    /// From the interrupt to the end of the command.
    pub disarmed: f64,
    /// The longest time for which the process was held at once, while probes were put in or taken out.
    pub held: f64,
    /// How often it was held.
    pub holds: u64,
    /// The longest time for which a thread of the process did not run while the probes were put in, by its own clock: holds, and all else
    /// that kept it.
    pub pause: f64,
    /// The same from then on, when they were taken out.
    pub pause_out: f64,
    /// What is wrong, if anything.
    pub wrong: Option<String>,
}

/// Arms what is asked for in a process with so many threads, and disarms it.
///
/// # Errors
/// A process does not start, or does not do what it should.
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
    // What else it says is not to keep it waiting.
    let rest = std::thread::spawn(move || said.map_while(Result::ok).count());
    std::thread::sleep(RUN);
    let pause = subject.pause()?;
    let interrupted = Instant::now();
    session.signal(Signal::SIGINT);
    while session.ended()?.is_none() {
        if interrupted.elapsed() > PATIENCE {
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
    // One that has many sites says where they are.
    let sites_of = |probe: &Value| match probe["places"].as_array() {
        Some(places) => places.iter().map(|place| number(&place["sites"])).sum(),
        None => 1,
    };
    // Where the layout of the process is unlucky, some trap.
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
        changed => Some(format!("{changed} bytes are not as before")),
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

/// The processor time that a process and its children have used, those that have ended not included.
fn processor_time(pid: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may be anything: the fields from the third on; utime and stime are the 14th and 15th.
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
