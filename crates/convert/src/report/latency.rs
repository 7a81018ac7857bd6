//! Times from one point to another: from a function's entry to its return, and between points that
//! the user names.

use super::histogram::Histogram;
use crate::event::Event;
use crate::facts::Side;
use crate::map::{Map, Set};
use crate::plural::counted;
use crate::spans::{Losses, Spans, Step};

/// Most functions whose times are counted.
const MAX_FUNCTIONS: usize = 4096;
/// Most threads with a pending start between two points.
const MAX_THREADS: usize = 1 << 16;

/// Two points to time, each as probes by program and number.
#[derive(Clone, Debug, Default)]
pub struct Between {
    /// The pair's name.
    pub name: String,
    /// Where the time starts.
    pub from: Vec<(u32, u32)>,
    /// Where it ends.
    pub to: Vec<(u32, u32)>,
}

/// Times between two points.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    /// The name of the points.
    pub(crate) name: String,
    /// The times.
    pub(crate) times: Histogram,
    /// Starts without an end, for points that the user names.
    pub(crate) open: u64,
}

#[derive(Debug)]
struct Pair {
    name: String,
    /// A pattern may match any number of probes.
    from: Set<(u32, u32)>,
    to: Set<(u32, u32)>,
    times: Histogram,
    started: Map<(u32, u32), u64>,
    open: u64,
}

/// Collects all times.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    spans: Spans,
    functions: Map<u32, Histogram>,
    pairs: Vec<Pair>,
    /// Calls not timed because there are too many functions.
    uncounted: u64,
    /// Times between two points that are not counted, since records may have been lost in between.
    unsure: u64,
}

impl Latencies {
    pub(super) fn new(between: Vec<Between>, losses: Losses) -> Latencies {
        let pair = |between: Between| Pair {
            name: between.name,
            from: between.from.into_iter().collect(),
            to: between.to.into_iter().collect(),
            times: Histogram::default(),
            started: Map::default(),
            open: 0,
        };
        let pairs = between.into_iter().map(pair).collect();
        Latencies { pairs, spans: Spans::with(losses), ..Latencies::default() }
    }

    pub(super) fn record(&mut self, event: &Event<'_>) {
        let record = event.record;
        let thread = (record.pid, record.tid);
        if let Some(function) = event.place.function {
            let step = match event.place.side {
                Side::Entry => self.spans.enter(thread, function, record.time, record.esp),
                Side::Return => self.spans.leave(thread, function, record.time, record.esp),
                Side::Inside => Step::Lone,
            };
            if let Step::End(span) = step {
                if self.functions.len() >= MAX_FUNCTIONS && !self.functions.contains_key(&function) {
                    self.uncounted += 1;
                } else {
                    self.functions.entry(function).or_default().add(span.length);
                }
            }
        }
        let probe = (event.place.program, event.place.probe);
        for pair in &mut self.pairs {
            // A point may be both the end of one time and the start of the next.
            if pair.to.contains(&probe)
                && let Some(start) = pair.started.remove(&thread)
            {
                match self.spans.losses.any(start, record.time) {
                    true => self.unsure += 1,
                    false => pair.times.add(record.time.saturating_sub(start)),
                }
            }
            if pair.from.contains(&probe) {
                let is_full = pair.started.len() >= MAX_THREADS && !pair.started.contains_key(&thread);
                if is_full || pair.started.insert(thread, record.time).is_some() {
                    pair.open += 1;
                }
            }
        }
    }

    /// The results: first the points that the user names, then functions in descending order of
    /// their total time; and remarks.
    pub(super) fn end(&mut self, names: &[String]) -> (Vec<Latency>, Vec<String>) {
        let mut all: Vec<Latency> = Vec::new();
        for pair in self.pairs.drain(..) {
            let open = pair.open + pair.started.len() as u64;
            all.push(Latency { name: pair.name, times: pair.times, open });
        }
        let mut functions: Vec<(u32, Histogram)> = self.functions.drain().collect();
        functions.sort_by_key(|(number, times)| (std::cmp::Reverse(times.sum), *number));
        all.extend(functions.into_iter().map(|(number, times)| Latency {
            name: format!("{}, entry to return", names.get(number as usize).map_or("?", String::as_str)),
            times,
            open: 0,
        }));
        let mut remarks = Vec::new();
        let open = self.spans.end().len() as u64;
        for (count, one, many) in [
            (
                self.spans.entries,
                "call ended without a return hit and is not timed",
                "calls ended without a return hit and are not timed",
            ),
            (
                open,
                "call had not returned when the trace ended",
                "calls had not returned when the trace ended",
            ),
            (
                self.spans.unsure + self.unsure,
                "time spans lost records and is not counted: its ends may be of different calls",
                "times span lost records and are not counted: their ends may be of different calls",
            ),
            (
                self.spans.returns,
                "return has no entry in the trace and is not timed",
                "returns have no entry in the trace and are not timed",
            ),
            (
                self.spans.beyond + self.uncounted,
                "call is not timed: too many functions, or calls nested too deeply",
                "calls are not timed: too many functions, or calls nested too deeply",
            ),
        ] {
            if count > 0 {
                remarks.push(counted(count, one, many));
            }
        }
        (all, remarks)
    }
}
