//! What a report has found.

use trace::store::{About, Counts};

use super::latency::Latency;
use super::talkers::Process;
use super::timeline::{Axis, Timeline};

/// A probe, as the records show it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Its module and probepoint.
    pub(crate) name: String,
    /// Its records.
    pub(crate) records: u64,
    /// What was counted when the trace was made; none if it did not come to a clean end.
    pub(crate) counts: Option<Counts>,
    /// When its records came.
    pub(crate) timeline: Timeline,
}

/// A place that several probes, or one probe with others, are at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Where {
    /// Its module and symbol.
    pub(crate) name: String,
    /// Its records.
    pub(crate) records: u64,
}

/// What a trace shows.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The name of the trace.
    pub(crate) name: String,
    /// Where and how it was made.
    pub(crate) about: About,
    /// Records.
    pub records: u64,
    /// The least and the greatest time of a record; none if there is none.
    pub(crate) times: Option<(u64, u64)>,
    /// Records that were dropped while it was made.
    pub(crate) dropped: u64,
    /// Whether it came to a clean end.
    pub(crate) complete: bool,
    /// The parts of time of all timelines.
    pub(crate) axis: Axis,
    /// When records came.
    pub(crate) timeline: Timeline,
    /// The probes, the most records first.
    pub(crate) probes: Vec<Probe>,
    /// The places, the most records first, where there are more than probes.
    pub(crate) places: Vec<Where>,
    /// Times between points: those that were asked for, then functions, the most time first.
    pub(crate) latencies: Vec<Latency>,
    /// Who has logged, the most first.
    pub(crate) processes: Vec<Process>,
    /// Processes and threads that were too many to be counted one by one: their records.
    pub(crate) others: u64,
    /// The variables that are not 0, at the end: name and value.
    pub(crate) variables: Vec<(String, u64)>,
    /// Messages of the tracing: nanoseconds since it began, and the text.
    pub(crate) notes: Vec<(u64, String)>,
    /// What should be known about the numbers.
    pub(crate) remarks: Vec<String>,
}

impl Findings {
    /// The time from the first to the last record, in nanoseconds.
    pub(crate) fn length(&self) -> u64 {
        self.times.map_or(0, |(least, greatest)| greatest - least)
    }

    /// Records a second, of so many.
    pub(crate) fn rate(&self, records: u64) -> f64 {
        match self.length() {
            0 => 0.0,
            length => records as f64 * 1e9 / length as f64,
        }
    }
}
