//! Writes counts and variables as JSON (docs/stats.md).

use std::collections::BTreeMap;
use std::path::Path;

use engine::{OfProcess, OfUser, PlaceReport, Report};
use serde::Serialize;

use crate::targets::TargetCounts;
use crate::{Failure, outfile};

#[derive(Serialize)]
struct Stats<'a> {
    probes: Vec<Probe<'a>>,
    locals: &'a [u64],
    globals: &'a [u64],
    /// Absent if all processes are of one user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    users: Vec<User<'a>>,
    /// Absent unless hits are counted by process, as the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<Process<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unassigned: Option<&'a [u64]>,
    holds: Holds,
    /// How often a buffer was cleared because its process had written invalid data into it.
    nonsense: u64,
    /// How often a module was armed by copying the arming of another process.
    copied: u64,
    targets: Vec<Target<'a>>,
}

/// What became of the records of a target.
#[derive(Serialize)]
struct Target<'a> {
    target: &'a str,
    written: u64,
    lost: u64,
}

/// How long processes were held while jumps were inserted and removed, in microseconds.
#[derive(Serialize)]
struct Holds {
    count: usize,
    least: u128,
    median: u128,
    greatest: u128,
}

/// A probe's counts. Its fields are those of the JSON object.
#[derive(Serialize)]
struct Probe<'a> {
    module: &'a str,
    point: &'a str,
    /// Hexadecimal; null if the probe was placed nowhere.
    address: Option<String>,
    major: u32,
    minor: u32,
    engine: &'a str,
    /// How the jump was made to fit; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    tactic: Option<&'a str>,
    /// Why one of its sites traps; absent if none does, or if no jump was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_trapped: Option<&'a str>,
    #[serde(skip_serializing_if = "Sites::is_empty")]
    sites: Sites<'a>,
    hits: u64,
    runs: u64,
    ignored: u64,
    missed: u64,
    logged: u64,
    dropped: u64,
    state: &'a str,
    /// Hits by function, for points of functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<Vec<PlaceStats<'a>>>,
}

/// What the processes of one user have counted by jumps, if there are several users.
#[derive(Serialize)]
struct User<'a> {
    name: &'a str,
    hits: &'a [u64],
    locals: &'a [u64],
    globals: &'a [u64],
}

/// The hits of one process.
#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    name: &'a str,
    hits: &'a [u64],
}

fn process(process: &OfProcess) -> Process<'_> {
    Process { pid: process.pid, name: &process.name, hits: &process.hits }
}

fn user(user: &OfUser) -> User<'_> {
    User { name: &user.name, hits: &user.hits, locals: &user.locals, globals: &user.globals }
}

/// Numbers of sites: jumps by tactic, traps by reason, and those of the kernel by kind.
#[derive(Serialize)]
struct Sites<'a> {
    jump: &'a BTreeMap<&'static str, usize>,
    trap: &'a BTreeMap<String, usize>,
    /// Absent with other engines.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    kernel: &'a BTreeMap<&'static str, usize>,
}

impl Sites<'_> {
    fn is_empty(&self) -> bool {
        self.jump.is_empty() && self.trap.is_empty() && self.kernel.is_empty()
    }
}

#[derive(Serialize)]
struct PlaceStats<'a> {
    module: &'a str,
    function: &'a str,
    sites: usize,
    hits: u64,
}

fn place_stats(place: &PlaceReport) -> PlaceStats<'_> {
    PlaceStats { module: &place.module, function: &place.function, sites: place.sites, hits: place.hits }
}

/// Writes a report to a file.
pub(crate) fn write(report: &Report, targets: &[TargetCounts], path: &Path) -> Result<(), Failure> {
    let probes = report.probes.iter().map(|probe| Probe {
        module: &probe.module,
        point: &probe.point,
        address: probe.address.map(|address| format!("{address:#x}")),
        major: probe.major,
        minor: probe.minor,
        engine: probe.engine,
        tactic: probe.tactic,
        why_trapped: probe.why_trapped.as_deref(),
        sites: Sites { jump: &probe.sites.jumps, trap: &probe.sites.traps, kernel: &probe.sites.kernel },
        hits: probe.counts.hits,
        runs: probe.counts.runs,
        ignored: probe.counts.ignored,
        missed: probe.counts.missed,
        logged: probe.counts.logged,
        dropped: probe.counts.dropped,
        state: probe.state.name(),
        places: probe.places.as_ref().map(|places| places.iter().map(place_stats).collect()),
    });
    let holds = Holds {
        count: report.holds.count,
        least: report.holds.least.as_micros(),
        median: report.holds.median.as_micros(),
        greatest: report.holds.greatest.as_micros(),
    };
    let targets =
        targets.iter().map(|taken| Target { target: &taken.name, written: taken.written, lost: taken.lost });
    let stats = Stats {
        probes: probes.collect(),
        locals: &report.locals,
        globals: &report.globals,
        holds,
        targets: targets.collect(),
        users: report.users.iter().map(user).collect(),
        processes: report.processes.as_ref().map(|of| of.processes.iter().map(process).collect()),
        unassigned: report.processes.as_ref().map(|of| &*of.unassigned),
        nonsense: report.nonsense,
        copied: report.copied,
    };
    let failed = |cause: &dyn std::fmt::Display| Failure::new(format!("{}: {cause}", printable::path(path)));
    let mut text = serde_json::to_string_pretty(&stats).map_err(|error| failed(&error))?;
    text.push('\n');
    let text = plain(&text);
    outfile::write_whole(path, text.as_bytes()).map_err(|error| failed(&error))
}

/// Escapes everything in JSON that is not visible; such characters occur only in its strings, apart
/// from line breaks between members, which stay.
pub(crate) fn plain(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' => text.push('\n'),
            _ if printable::is_plain(character) => text.push(character),
            _ => character
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|code| text.push_str(&format!("\\u{code:04x}"))),
        }
    }
    text
}
