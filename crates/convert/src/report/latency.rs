//! Times from one point to another: from a function's entry to its return, and between points that
//! the user names.

use super::functions::Function;
use super::histogram::Histogram;
use crate::event::Event;
use crate::map::{Map, Set};
use crate::remarks::on_calls;
use crate::spans::{Losses, Span, Spans, Step};

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

/// The calls of a function.
#[derive(Debug, Default)]
struct Calls {
    times: Histogram,
    /// The time of the outermost calls.
    total: u64,
    /// The time outside of other calls.
    own: u64,
}

impl Calls {
    fn add(&mut self, span: &Span) {
        self.times.add(span.length);
        self.own = self.own.saturating_add(span.own);
        if span.is_outermost {
            self.total = self.total.saturating_add(span.length);
        }
    }
}

/// Collects all times.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    spans: Spans,
    functions: Map<u32, Calls>,
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
        if let (Some(Step::End(span)), Some(function)) = (self.spans.step(event), event.place.function) {
            if self.functions.len() >= MAX_FUNCTIONS && !self.functions.contains_key(&function) {
                self.uncounted += 1;
            } else {
                self.functions.entry(function).or_default().add(&span);
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
    /// their total time; the table of functions; and remarks.
    pub(super) fn end(&mut self, names: &[String]) -> (Vec<Latency>, Vec<Function>, Vec<String>) {
        let mut all: Vec<Latency> = Vec::new();
        for pair in self.pairs.drain(..) {
            let open = pair.open + pair.started.len() as u64;
            all.push(Latency { name: pair.name, times: pair.times, open });
        }
        let mut functions: Vec<(u32, Calls)> = self.functions.drain().collect();
        functions.sort_by_key(|(number, calls)| (std::cmp::Reverse(calls.total), *number));
        let mut table = Vec::new();
        for (number, calls) in functions {
            let name = names.get(number as usize).map_or("?", String::as_str);
            table.push(Function::new(name, &calls.times, calls.total, calls.own));
            all.push(Latency { name: format!("{name}, entry to return"), times: calls.times, open: 0 });
        }
        let open = self.spans.end().len();
        let remarks = on_calls(&self.spans, open, self.unsure, self.uncounted);
        (all, table, remarks)
    }
}
