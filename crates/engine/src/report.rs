//! The counts and variables that a session reports.

use std::time::Duration;

use crate::counts::{Counts, SiteCounts, State};
use crate::hold::HoldTimes;
use crate::site_hits::PlaceReport;

pub(crate) mod sources;

/// The counts and variables at the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry for each probepoint, in the order of the programs.
    pub probes: Vec<ProbeReport>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
    /// How long processes were held to arm and disarm jumps.
    pub holds: HoldTimes,
    /// The counts of each user's processes; empty if all are of one domain.
    pub users: Vec<OfUser>,
    /// The hits of each process, if they were counted so.
    pub processes: Option<OfProcesses>,
    /// How often a ring was emptied because its process had written something that no handler
    /// writes.
    pub nonsense: u64,
    /// About how much processor time the hits by traps have taken.
    pub trap_time: Duration,
    /// How often an arming was copied from another process, without planning it anew.
    pub copied: u64,
}

/// What the processes of one trust domain have counted by jumps, and the values of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfUser {
    /// The name of the domain.
    pub name: String,
    /// Hits by jumps, one number for each probe, program after program.
    pub hits: Vec<u64>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
}

/// The hits of each process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfProcesses {
    /// The processes, the most hits first.
    pub processes: Vec<OfProcess>,
    /// Hits that are not among those of the processes, since there was no room for more: one number
    /// for each probe.
    pub unassigned: Vec<u64>,
}

/// The hits of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfProcess {
    /// Its number.
    pub pid: u32,
    /// The name of the thread that hit a probe first.
    pub name: String,
    /// Hits, one number for each probe, program after program.
    pub hits: Vec<u64>,
}

/// The counts of one probepoint, in all processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The module, as the program names it.
    pub module: String,
    /// The probepoint, as the program writes it.
    pub point: String,
    /// The first address where it was placed.
    pub address: Option<u64>,
    /// Its major code.
    pub major: u32,
    /// Its minor code.
    pub minor: u32,
    /// The engine of its sites: `jump`, `trap`, or `jump+trap` if it has both.
    pub engine: &'static str,
    /// The tactic of its jump, if it has one.
    pub tactic: Option<&'static str>,
    /// Why a site of it traps, if a jump was tried.
    pub why_trapped: Option<String>,
    /// How its sites fire: how many, and why.
    pub sites: SiteCounts,
    /// Its counts.
    pub counts: Counts,
    /// Its state.
    pub state: State,
    /// For points of functions: where it was placed, and the hits there, the most hits first.
    pub places: Option<Vec<PlaceReport>>,
}
