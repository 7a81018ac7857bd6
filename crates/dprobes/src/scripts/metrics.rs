//! The maps of a running script as metrics.
//!
//! | map | metric |
//! |---|---|
//! | `@x = count()`, `sum()` of what is not negative | counter `dprobes_map_x_total` |
//! | other numbers | gauge `dprobes_map_x` |
//! | `avg()`, `stats()` | summary: `dprobes_map_x_count`, `dprobes_map_x_sum` |
//! | `hist()`, `lhist()` | histogram: `dprobes_map_x_bucket`, `_count`, `_sum` |
//! | text, structures, time series | left out, and counted |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use export::{Answerer, Bound, Builder, Exporters, Family, Series, Snapshot, Value};
use maps::Kind;
use printout::{Measure, Reader};
use script::Map;

use super::world::World;
use crate::Failure;
use crate::arguments::Export;
use crate::messages::tell;
use crate::sleeper::Sleeper;

/// The metrics of a script.
#[derive(Debug)]
pub(super) struct Metrics {
    /// What is exported to, until it is started.
    bound: Option<Bound>,
    running: Option<(Exporters, Answerer)>,
    /// What the parts of keys are called in the script.
    key_names: BTreeMap<String, Vec<String>>,
    /// The most series.
    most: usize,
    /// How often they are sent.
    every: Duration,
    /// Since when it counts: nanoseconds since 1970.
    start: u64,
    /// Whether the tracer may be interrupted: a signal disturbs the kernel while it checks
    /// programs.
    may_wake: Arc<AtomicBool>,
    /// The buckets of each histogram that have ever had a number, of all its entries together.
    /// Which buckets are shown only grows, as rates of them need.
    buckets: BTreeMap<usize, (usize, usize)>,
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Metrics {
    /// Binds what is exported to, if something is. Nothing is probed yet.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(super) fn prepare(
        arguments: &Export,
        key_names: BTreeMap<String, Vec<String>>,
    ) -> Result<Option<Metrics>, Failure> {
        if arguments.export.is_empty() {
            return Ok(None);
        }
        let bound = Some(Bound::new(&arguments.export).map_err(Failure::new)?);
        Ok(Some(Metrics {
            bound,
            running: None,
            key_names,
            most: arguments.export_series,
            every: arguments.export_every,
            start: now(),
            may_wake: Arc::default(),
            buckets: BTreeMap::new(),
        }))
    }

    /// Starts the exporters' threads. The calling thread is the one that answers.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let Some(bound) = self.bound.take() else { return Ok(()) };
        bound.announcements().iter().for_each(|line| tell(line));
        let (may_wake, tracer) = (Arc::clone(&self.may_wake), Sleeper::this());
        let wake = move || {
            // The exporters end before the thread.
            if may_wake.load(Ordering::Relaxed) {
                tracer.interrupt();
            }
        };
        let running = bound.start(self.every, tell, wake);
        self.running =
            Some(running.map_err(|error| Failure::new(format!("a thread cannot be started: {error}")))?);
        self.start = now();
        Ok(())
    }

    /// The probes are in.
    pub(super) fn begun(&self) {
        self.may_wake.store(true, Ordering::Relaxed);
    }

    /// Gives the metrics to who asks for them. `lost`: events for which there was no room.
    pub(super) fn answer(&mut self, reader: &Reader<'_>, world: &mut World<'_>, lost: u64) {
        let Some((_, answerer)) = &mut self.running else { return };
        if answerer.is_asked() {
            let (names, buckets) = (&self.key_names, &mut self.buckets);
            let (most, start) = (self.most, self.start);
            answerer.answer(|| snapshot(reader, world, (most, start, lost), names, buckets));
        }
    }
}

impl Metrics {
    /// Sends the last values, where they are sent.
    pub(super) fn end(mut self, reader: &Reader<'_>, world: &mut World<'_>, lost: u64) {
        let Some((exporters, _)) = self.running.take() else { return };
        if exporters.want_last() {
            let counted = (self.most, self.start, lost);
            exporters.end(snapshot(reader, world, counted, &self.key_names, &mut self.buckets));
        }
    }
}

/// All that is exported, now.
fn snapshot(
    reader: &Reader<'_>,
    world: &mut World<'_>,
    (most, start, lost): (usize, u64, u64),
    key_names: &BTreeMap<String, Vec<String>>,
    buckets: &mut BTreeMap<usize, (usize, usize)>,
) -> Snapshot {
    let mut builder = Builder::new(most);
    let one = |value: u64| Series { labels: Vec::new(), value: Value::Number(value.into()) };
    builder.add(Family {
        name: "dprobes_lost_events".to_owned(),
        help: "What handlers printed and for which there was no room.".to_owned(),
        kind: export::Kind::Counter,
        series: vec![one(lost)],
    });
    let compiled = world.compiled;
    let maps = || compiled.maps.iter().enumerate();
    if let Some(memory) = world.memory.get() {
        let of = |map: &script::Map, number: u64| {
            let labels = vec![("map".to_owned(), shown(map))];
            Series { labels, value: Value::Number(number.into()) }
        };
        let evicting = maps().filter(|(_, map)| map.info.is_evicting());
        let evicted: Vec<Series> =
            evicting.map(|(index, map)| of(map, memory.maps().evicted(index))).collect();
        if !evicted.is_empty() {
            builder.add(Family {
                name: "dprobes_map_evicted_entries".to_owned(),
                help: "Entries of maps that made room for others.".to_owned(),
                kind: export::Kind::Counter,
                series: evicted,
            });
        }
        let series = maps().map(|(index, map)| of(map, memory.maps().lost(index)));
        builder.add(Family {
            name: "dprobes_map_lost_updates".to_owned(),
            help: "Updates of maps for which there was no room.".to_owned(),
            kind: export::Kind::Counter,
            series: series.collect(),
        });
    }
    for (index, map) in maps() {
        let Some(measures) = reader.measures(index, world) else { continue };
        let names = key_names.get(&map.name).map_or(&[][..], Vec::as_slice);
        let series = measures.rows.into_iter().map(|(key, value)| (labels(key, names), value)).collect();
        let (kind, series) = family(map, series, buckets.entry(index).or_insert((usize::MAX, 0)));
        let name = builder.add(Family { name: metric(map), help: help(map), kind, series });
        builder.leave_out(&name, "no number", measures.others);
    }
    builder.finish(start, now())
}

/// A map as the script has it.
fn shown(map: &Map) -> String {
    match map.info.kind == Kind::Stacks as u32 {
        true => "stacks".to_owned(),
        false => format!("@{}", map.name),
    }
}

/// The name of a map's metric.
fn metric(map: &Map) -> String {
    match map.name.is_empty() {
        true => "dprobes_map".to_owned(),
        false => format!("dprobes_map_{}", map.name),
    }
}

/// What a map's metric is.
fn help(map: &Map) -> String {
    let (name, kind) = (shown(map), Kind::from_number(map.info.kind));
    match kind {
        Some(Kind::Hist | Kind::Lhist) => {
            format!("{name} of the script; the sum is estimated by the buckets.")
        }
        _ => format!("{name} of the script."),
    }
}

/// The labels of an entry. A part of the key that has no name in the script is `key`.
fn labels(key: Vec<String>, names: &[String]) -> Vec<(String, String)> {
    let is_one = key.len() == 1;
    let label = |(index, value): (usize, String)| {
        let name = names.get(index).filter(|name| !name.is_empty()).cloned();
        let number = || if is_one { "key".to_owned() } else { format!("key{}", index + 1) };
        (name.unwrap_or_else(number), value)
    };
    key.into_iter().enumerate().map(label).collect()
}

/// Labels with a value.
type Row = (Vec<(String, String)>, Measure);

/// The kind of a map's metric, and its series.
fn family(map: &Map, rows: Vec<Row>, buckets: &mut (usize, usize)) -> (export::Kind, Vec<Series>) {
    let kind = match Kind::from_number(map.info.kind) {
        Some(Kind::Hist | Kind::Lhist) => return histogram(map, rows, buckets),
        Some(Kind::Avg | Kind::Stats) => export::Kind::Summary { signed: map.info.signed != 0 },
        Some(Kind::Count) => export::Kind::Counter,
        Some(Kind::Sum) if map.info.signed == 0 => export::Kind::Counter,
        _ => export::Kind::Gauge,
    };
    let series = rows.into_iter().filter_map(|(labels, value)| {
        let value = match value {
            Measure::Number(number) => Value::Number(number),
            Measure::Sum { count, sum } => Value::Summary { count, sum },
            Measure::Buckets(_) => return None,
        };
        Some(Series { labels, value })
    });
    (kind, series.collect())
}

/// A histogram. All its series have the same buckets.
fn histogram(map: &Map, rows: Vec<Row>, seen: &mut (usize, usize)) -> (export::Kind, Vec<Series>) {
    let counts = |row: &Row| match &row.1 {
        Measure::Buckets(counts) => counts.clone(),
        _ => Vec::new(),
    };
    let all: Vec<Vec<u64>> = rows.iter().map(counts).collect();
    for counts in &all {
        let filled = |count: &u64| *count > 0;
        if let (Some(first), Some(last)) = (counts.iter().position(filled), counts.iter().rposition(filled)) {
            *seen = (seen.0.min(first), seen.1.max(last));
        }
    }
    let ranges = printout::bounds(map, all.iter().map(Vec::len).max().unwrap_or(0));
    // The last bucket of a linear histogram has no bound: its numbers are in the last interval.
    let is_shown = |index: usize| (seen.0..=seen.1).contains(&index);
    let bounded = ranges.iter().enumerate().filter(|(index, _)| is_shown(*index));
    let (indices, bounds): (Vec<usize>, Vec<i128>) =
        bounded.filter_map(|(index, (_, most))| Some((index, (*most)?))).unzip();
    let series = rows.into_iter().zip(all).map(|((labels, _), counts)| {
        let mut shown: Vec<u64> =
            indices.iter().map(|index| counts.get(*index).copied().unwrap_or(0)).collect();
        let beyond = counts.iter().enumerate().filter(|(index, _)| !indices.contains(index));
        shown.push(beyond.fold(0, |sum, (_, count)| sum.saturating_add(*count)));
        let middle = |(low, most): &(Option<i128>, Option<i128>)| match (low, most) {
            (Some(low), Some(most)) => (*low as f64 + *most as f64) / 2.0,
            (Some(one), None) | (None, Some(one)) => *one as f64,
            (None, None) => 0.0,
        };
        // Without counts there is no -0.
        let sum = ranges.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let sum = sum.map(|(range, count)| middle(range) * *count as f64).fold(0.0, |sum, each| sum + each);
        Series { labels, value: Value::Histogram { counts: shown, sum } }
    });
    (export::Kind::Histogram(bounds), series.collect())
}
