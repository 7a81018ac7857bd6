//! Statistics of a trace: how often each probe fired and when, the times from one point to another,
//! and the processes of the records.
//!
//! [`Report`] is a [`Form`]: it reads the records once, and keeps counts. Its result is a
//! [`Findings`], shown as text or as a self-contained HTML page.

mod chart;
mod ends;
mod findings;
mod functions;
mod heat;
mod histogram;
mod html;
mod latency;
mod numbers;
mod overview;
mod page;
mod plain;
mod talkers;
mod timeline;

use std::io;

use trace::store::{Info, Lookup, point_name};

use crate::event::{Event, Form};
use crate::facts::{Side, TraceFacts};
use crate::map::Map;
pub use findings::Findings;
pub use functions::{Sort, functions};
pub use html::html;
pub use latency::Between;
pub(crate) use numbers::{aligned, count_of, percent};
pub use numbers::{duration, grouped, rate};
pub use overview::Overview;
pub use plain::text;

use findings::{Probe, Where};
use latency::Latencies;
use talkers::Talkers;
use timeline::Axis;

use crate::spans::Losses;

/// Most probes counted individually.
const MAX_PROBES: usize = 1 << 14;

/// Counts the records of a trace.
#[derive(Debug)]
pub struct Report {
    found: Findings,
    functions: Vec<String>,
    /// The index of each probe in `found.probes`, by program and number.
    numbers: Map<(u32, u32), usize>,
    places: Vec<Where>,
    latencies: Latencies,
    talkers: Talkers,
}

impl Report {
    /// A report on a trace. `name` is the trace's name, `between` the points to time, `range` the
    /// selected time range, if not all.
    pub fn new(
        name: &str,
        info: &Info,
        known: &TraceFacts,
        between: Vec<Between>,
        range: (Option<u64>, Option<u64>),
    ) -> Report {
        let (least, greatest) = info.times.unwrap_or_default();
        let start = range.0.map_or(least, |from| from.max(least));
        let end = range.1.map_or(greatest, |to| to.min(greatest));
        let mut found = Findings {
            name: name.to_owned(),
            about: info.about.clone(),
            dropped: info.dropped(),
            complete: info.complete,
            axis: Axis::new(start, end),
            variables: variables(known),
            ..Findings::default()
        };
        let since = |time: u64| time.saturating_sub(info.about.start);
        found.notes = info.notes.iter().map(|note| (since(note.time), note.text.clone())).collect();
        let (lookup, mut numbers) = (Lookup::new(info), Map::default());
        for probe in info.probes.iter().take(MAX_PROBES) {
            numbers.insert((probe.program, probe.number), found.probes.len());
            let counts = lookup.counts(probe.program, probe.number).cloned();
            found.probes.push(Probe { name: lookup.probe_name(probe), counts, ..Probe::default() });
        }
        Report {
            found,
            functions: known.function_names().to_vec(),
            numbers,
            places: Vec::new(),
            latencies: Latencies::new(between, Losses::of(&info.gaps())),
            talkers: Talkers::default(),
        }
    }

    /// The results, once all records are read.
    pub fn findings(self) -> Findings {
        self.found
    }

    /// The index of a record's probe in `found.probes`; `None` if there are too many.
    fn probe(&mut self, event: &Event<'_>) -> Option<usize> {
        let key = (event.place.program, event.place.probe);
        if let Some(&number) = self.numbers.get(&key) {
            return Some(number);
        }
        // The facts about this probe were lost.
        let number = self.found.probes.len();
        if number >= MAX_PROBES {
            return None;
        }
        let name = match event.place.point.is_empty() {
            true => format!("program {}, probe {}", key.0, key.1),
            false => event.place.probe_name(),
        };
        self.found.probes.push(Probe { name, ..Probe::default() });
        self.numbers.insert(key, number);
        Some(number)
    }
}

impl Form for Report {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let time = event.record.time;
        let part = self.found.axis.part_of(time);
        self.found.records += 1;
        self.found.timeline.0[part] += 1;
        self.found.times = Some(match self.found.times {
            None => (time, time),
            Some((least, greatest)) => (least.min(time), greatest.max(time)),
        });
        if let Some(number) = self.probe(event) {
            let probe = &mut self.found.probes[number];
            probe.records += 1;
            probe.timeline.0[part] += 1;
        }
        if let Some(number) = event.place.number {
            let number = number as usize;
            if self.places.len() <= number {
                self.places.resize(number + 1, Where::default());
            }
            let place = &mut self.places[number];
            if place.records == 0 {
                let own = event.place;
                let name = if own.side == Side::Return { own.function_name() } else { own.name() };
                place.name = point_name(&own.module, name);
            }
            place.records += 1;
        }
        self.latencies.record(event);
        self.talkers.record(event);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        let found = &mut self.found;
        found.probes = ends::joined(std::mem::take(&mut found.probes));
        found.probes.sort_by(|one, other| (other.records, &one.name).cmp(&(one.records, &other.name)));
        let mut places = std::mem::take(&mut self.places);
        // The same symbol may have been mapped at several addresses, and a function returns in
        // several places.
        places.sort_by(|one, other| one.name.cmp(&other.name));
        places.dedup_by(|next, kept| {
            let same = next.name == kept.name;
            kept.records += if same { next.records } else { 0 };
            same
        });
        places.retain(|place| place.records > 0);
        places.sort_by(|one, other| (other.records, &one.name).cmp(&(one.records, &other.name)));
        let fired = found.probes.iter().filter(|probe| probe.records > 0).count();
        found.places = if places.len() > fired { places } else { Vec::new() };
        (found.latencies, found.functions, found.remarks) = self.latencies.end(&self.functions);
        (found.processes, found.others) = self.talkers.end();
        Ok(found.remarks.clone())
    }
}

/// The variables that are not 0.
fn variables(known: &TraceFacts) -> Vec<(String, u64)> {
    let named = known.variables.iter().flat_map(|variables| {
        let owner = variables.program.map(|program| known.program(program).unwrap_or("?"));
        variables.values.iter().enumerate().filter(|(_, value)| **value != 0).map(move |(index, &value)| {
            match owner {
                Some(owner) => (format!("{owner} lv[{index}]"), value),
                None => (format!("gv[{index}]"), value),
            }
        })
    });
    named.take(1000).collect()
}
