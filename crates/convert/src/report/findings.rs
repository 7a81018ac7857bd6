//! The results of a report.

use trace::store::{About, Counts};

use super::functions::Function;
use super::latency::Latency;
use super::talkers::Process;
use super::timeline::{Axis, Timeline};

/// A probe and its records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Its module and probepoint.
    pub(crate) name: String,
    /// Number of records.
    pub(crate) records: u64,
    /// The counts of the tracer; `None` if the trace did not end cleanly.
    pub(crate) counts: Option<Counts>,
    /// When its records came.
    pub(crate) timeline: Timeline,
}

/// A place of one or several probes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Where {
    /// Its module and symbol.
    pub(crate) name: String,
    /// Number of records.
    pub(crate) records: u64,
}

/// The results of a report on a trace. Its fields are the parts of the report.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The name of the trace.
    pub(crate) name: String,
    /// Where and how the trace was made.
    pub(crate) about: About,
    /// Number of records.
    pub records: u64,
    /// The least and the greatest time of a record; `None` if there are no records.
    pub(crate) times: Option<(u64, u64)>,
    /// Records dropped while the trace was made.
    pub(crate) dropped: u64,
    /// Whether the trace ended cleanly.
    pub(crate) complete: bool,
    /// The time axis of all timelines.
    pub(crate) axis: Axis,
    /// When records came.
    pub(crate) timeline: Timeline,
    /// The probes, in descending order of records.
    pub(crate) probes: Vec<Probe>,
    /// The places, in descending order of records, if there are more places than probes.
    pub(crate) places: Vec<Where>,
    /// Times between points: first those asked for, then functions in descending order of their
    /// total time.
    pub(crate) latencies: Vec<Latency>,
    /// The functions of which entries and returns were probed.
    pub(crate) functions: Vec<Function>,
    /// The processes that logged, in descending order of records.
    pub(crate) processes: Vec<Process>,
    /// Records of threads that were not counted individually, since there were too many.
    pub(crate) others: u64,
    /// The variables that are not 0, at the end: name and value.
    pub(crate) variables: Vec<(String, u64)>,
    /// Messages of the tracer: nanoseconds since the start, and the text.
    pub(crate) notes: Vec<(u64, String)>,
    /// Remarks on the numbers.
    pub(crate) remarks: Vec<String>,
}

impl Findings {
    /// Whether calls of functions were timed.
    pub fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// The time from the first to the last record, in nanoseconds.
    pub(crate) fn length(&self) -> u64 {
        self.times.map_or(0, |(least, greatest)| greatest - least)
    }

    /// The rate of so many records, per second.
    pub(crate) fn rate(&self, records: u64) -> f64 {
        match self.length() {
            0 => 0.0,
            length => records as f64 * 1e9 / length as f64,
        }
    }
}
