//! Makes a snapshot: gives names and labels their form, keeps names apart, and keeps the limit.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::{Family, Kind, Series, Snapshot, Value};
use crate::names;

/// Makes a snapshot.
#[derive(Debug)]
pub struct Builder {
    /// How many series are still allowed, as Prometheus counts them: one for each line.
    room: usize,
    /// The names of families, and of their samples.
    taken: HashSet<String>,
    families: Vec<Family>,
    /// How many entries were left out, by the metric and the reason.
    left_out: BTreeMap<(String, &'static str), u64>,
}

/// The reason of the limit.
const LIMIT: &str = "limit";

impl Builder {
    /// A snapshot of at most `most` series.
    pub fn new(most: usize) -> Builder {
        let name = LEFT_OUT.to_owned();
        Builder { room: most, taken: HashSet::from([name]), families: Vec::new(), left_out: BTreeMap::new() }
    }

    /// Adds a family. Its name and its labels may be any text. Series beyond the limit are left
    /// out, the last ones first; so are values that are not of its kind. Those of the same labels
    /// become one. Returns the name that it has got.
    pub fn add(&mut self, family: Family) -> String {
        let Family { name, help, kind, series } = family;
        let name = self.name(&names::metric(&name), &kind);
        let mut places: HashMap<Vec<(String, String)>, usize> = HashMap::new();
        let mut kept: Vec<Series> = Vec::new();
        let mut beyond = 0;
        for Series { labels, value } in series.into_iter().filter(|series| kind.has(&series.value)) {
            let keys = names::labels(labels.iter().map(|(name, _)| &**name));
            let values = labels.iter().map(|(_, value)| names::value(value));
            let labels: Vec<(String, String)> = keys.into_iter().zip(values).collect();
            if let Some(&place) = places.get(&labels) {
                kind.merge(&mut kept[place].value, &value);
            } else if self.room < kind.lines() {
                beyond += 1;
            } else {
                self.room -= kind.lines();
                places.insert(labels.clone(), kept.len());
                kept.push(Series { labels, value });
            }
        }
        self.leave_out(&name, LIMIT, beyond);
        self.families.push(Family { name: name.clone(), help, kind, series: kept });
        name
    }

    /// Says that entries are left out of a metric.
    pub fn leave_out(&mut self, metric: &str, reason: &'static str, entries: u64) {
        if entries > 0 {
            *self.left_out.entry((metric.to_owned(), reason)).or_default() += entries;
        }
    }

    /// The snapshot. Times are nanoseconds since 1970.
    pub fn finish(self, start: u64, time: u64) -> Snapshot {
        let Builder { mut families, left_out, .. } = self;
        let series = left_out.into_iter().map(|((metric, reason), entries)| Series {
            labels: vec![("metric".to_owned(), metric), ("reason".to_owned(), reason.to_owned())],
            value: Value::Number(entries.into()),
        });
        let series: Vec<Series> = series.collect();
        families.push(Family {
            name: LEFT_OUT.to_owned(),
            help: "Entries that are not exported, by metric and reason.".to_owned(),
            kind: Kind::Gauge,
            series,
        });
        families.retain(|family| !family.series.is_empty());
        Snapshot { start, time, families }
    }

    /// A free name: the name itself, or with a number.
    fn name(&mut self, name: &str, kind: &Kind) -> String {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut all = [name.to_owned()].into_iter().chain(numbered);
        let is_free = |name: &String| samples(name, kind).iter().all(|sample| !self.taken.contains(sample));
        let name = all.find(is_free).unwrap_or_default();
        self.taken.extend(samples(&name, kind));
        name
    }
}

/// The metric of what is left out. It is always there if there is something, beyond the limit.
const LEFT_OUT: &str = "dprobes_export_left_out_entries";

/// The names that a family takes.
fn samples(name: &str, kind: &Kind) -> Vec<String> {
    let suffixes: &[&str] = match kind {
        Kind::Counter => &["", "_total"],
        Kind::Gauge => &[""],
        Kind::Summary { .. } => &["", "_sum", "_count"],
        Kind::Histogram(_) => &["", "_bucket", "_sum", "_count"],
    };
    suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, kind: Kind, series: Vec<Series>) -> Family {
        Family { name: name.to_owned(), help: String::new(), kind, series }
    }

    fn number(key: &str, value: i128) -> Series {
        Series { labels: vec![("key".to_owned(), key.to_owned())], value: Value::Number(value) }
    }

    #[test]
    fn no_two_families_share_a_name_of_a_sample() {
        let mut builder = Builder::new(100);
        let summary = Value::Summary { count: 1, sum: 2 };
        let summary = Series { labels: Vec::new(), value: summary };
        assert_eq!(builder.add(family("m", Kind::Counter, vec![number("a", 1)])), "m");
        assert_eq!(builder.add(family("m_total", Kind::Gauge, vec![number("a", 1)])), "m_total_2");
        assert_eq!(builder.add(family("n", Kind::Summary { signed: false }, vec![summary])), "n");
        assert_eq!(builder.add(family("n_count", Kind::Gauge, vec![number("a", 1)])), "n_count_2");
        let hostile = "dprobes_export_left_out_entries";
        assert_ne!(builder.add(family(hostile, Kind::Gauge, vec![number("a", 1)])), hostile);
        assert_eq!(builder.finish(1, 2).families.len(), 5);
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let mut builder = Builder::new(2);
        builder.add(family("m", Kind::Gauge, (0..5).map(|key| number(&key.to_string(), key)).collect()));
        builder.leave_out("@text", "not a number", 3);
        let snapshot = builder.finish(1, 2);
        let [family, left] = &*snapshot.families else { panic!("{snapshot:?}") };
        assert_eq!((family.series.len(), &family.series[0]), (2, &number("0", 0)));
        let of = |metric: &str, reason: &str, value| Series {
            labels: vec![("metric".into(), metric.into()), ("reason".into(), reason.into())],
            value: Value::Number(value),
        };
        assert_eq!(left.series, [of("@text", "not a number", 3), of("m", "limit", 3)]);
    }

    #[test]
    fn series_of_the_same_labels_become_one() {
        let mut builder = Builder::new(100);
        // They are shown as the same text.
        let keys = ["a\n", "a\\x0a"];
        builder.add(family("m", Kind::Counter, keys.map(|key| number(key, 2)).into()));
        builder.add(family("g", Kind::Gauge, keys.map(|key| number(key, 2)).into()));
        let histogram = |count| Series {
            labels: Vec::new(),
            value: Value::Histogram { counts: vec![count, 1], sum: 1.5 },
        };
        builder.add(family("h", Kind::Histogram(vec![7]), vec![histogram(1), histogram(2)]));
        let snapshot = builder.finish(1, 2);
        let value = |index: usize| snapshot.families[index].series[0].value.clone();
        assert_eq!(value(0), Value::Number(4));
        assert_eq!(value(1), Value::Number(2));
        assert_eq!(value(2), Value::Histogram { counts: vec![3, 2], sum: 3.0 });
        assert!(snapshot.families.iter().all(|family| family.series.len() == 1));
    }
}
