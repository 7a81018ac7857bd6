//! Since when a series counts.
//!
//! A number that only grows counts since tracing began. A script may clear its map: then the number
//! is less than before, and counts since it was last read, as OTLP has it.

use std::collections::HashMap;

use crate::model::{Family, Kind, Series, Snapshot, Value};

/// A series: the name of its family, and its labels.
type Key = (String, Vec<(String, String)>);

/// What was read last.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    last: HashMap<Key, Seen>,
    /// When.
    time: u64,
}

/// A number that only grows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start: u64,
    count: i128,
}

impl Resets {
    /// Takes a snapshot; returns the beginning of each series, family by family.
    pub(crate) fn starts(&mut self, snapshot: &Snapshot) -> Vec<Vec<u64>> {
        let mut next = HashMap::new();
        let mut start = |family: &Family, series: &Series| {
            let Some(count) = count(&family.kind, &series.value) else { return snapshot.start };
            let key = (family.name.clone(), series.labels.clone());
            let start = match self.last.get(&key) {
                Some(seen) if count < seen.count => self.time,
                Some(seen) => seen.start,
                None => snapshot.start,
            };
            next.insert(key, Seen { start, count });
            start
        };
        let starts = snapshot.families.iter();
        let starts =
            starts.map(|family| family.series.iter().map(|series| start(family, series)).collect()).collect();
        self.last = next;
        self.time = snapshot.time;
        starts
    }
}

/// How much has been counted; `None` if it does not only grow.
fn count(kind: &Kind, value: &Value) -> Option<i128> {
    match value {
        Value::Number(_) if *kind == Kind::Gauge => None,
        Value::Number(number) => Some(*number),
        Value::Summary { count, .. } => Some((*count).into()),
        Value::Histogram { counts, .. } => Some(counts.iter().map(|count| i128::from(*count)).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_falls_counts_since_it_was_last_read() {
        let snapshot = |time, numbers: &[i128]| {
            let family = |kind, number: i128| Family {
                name: "m".to_owned(),
                help: String::new(),
                kind,
                series: vec![Series { labels: Vec::new(), value: Value::Number(number) }],
            };
            let families = numbers.iter().map(|number| family(Kind::Counter, *number));
            let families = families.chain([family(Kind::Gauge, -(time as i128))]).collect();
            Snapshot { start: 5, time, families }
        };
        let mut resets = Resets::default();
        assert_eq!(resets.starts(&snapshot(10, &[3])), [[5], [5]]);
        assert_eq!(resets.starts(&snapshot(20, &[4])), [[5], [5]]);
        assert_eq!(resets.starts(&snapshot(30, &[1])), [[20], [5]]);
        assert_eq!(resets.starts(&snapshot(40, &[1])), [[20], [5]]);
        // What was gone begins anew.
        assert_eq!(resets.starts(&snapshot(50, &[])), [[5]]);
        assert_eq!(resets.starts(&snapshot(60, &[1])), [[5], [5]]);
    }
}
