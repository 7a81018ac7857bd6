//! One row for the two ends of a function: a probe at its entry and one at its returns.

use trace::store::Counts;

use super::findings::Probe;
use crate::map::Map;

/// The function of a probe's name, and whether the probe is at its returns: `a.out:f:return` and
/// `a.out:"f":return` are of `a.out:f`, as are `a.out:f:entry` and `a.out:f`.
fn end(name: &str) -> (String, bool) {
    let (function, kind) = name.rsplit_once(':').unwrap_or((name, ""));
    let is = |wanted: &str| kind.trim().eq_ignore_ascii_case(wanted);
    let function = if is("entry") || is("return") { function } else { name };
    (function.replace('"', "").trim().to_owned(), is("return"))
}

/// Joins the probes at the entry and at the returns of a function, where there is one of each.
pub(super) fn joined(probes: Vec<Probe>) -> Vec<Probe> {
    let mut ends: Map<String, [Vec<usize>; 2]> = Map::default();
    for (number, probe) in probes.iter().enumerate() {
        let (function, is_return) = end(&probe.name);
        ends.entry(function).or_default()[usize::from(is_return)].push(number);
    }
    let mut probes: Vec<Option<Probe>> = probes.into_iter().map(Some).collect();
    for (function, [entries, returns]) in ends {
        let ([entry], [leaving]) = (entries.as_slice(), returns.as_slice()) else { continue };
        let leaving = probes[*leaving].take();
        if let (Some(entry), Some(leaving)) = (probes[*entry].as_mut(), leaving) {
            entry.name = format!("{function} (entry, return)");
            entry.add(&leaving);
        }
    }
    probes.into_iter().flatten().collect()
}

impl Probe {
    fn add(&mut self, other: &Probe) {
        self.records += other.records;
        for (part, count) in self.timeline.0.iter_mut().zip(&other.timeline.0) {
            *part += count;
        }
        self.counts = self.counts.take().zip(other.counts.as_ref()).map(|(own, other)| Counts {
            hits: own.hits.saturating_add(other.hits),
            runs: own.runs.saturating_add(other.runs),
            ignored: own.ignored.saturating_add(other.ignored),
            missed: own.missed.saturating_add(other.missed),
            logged: own.logged.saturating_add(other.logged),
            dropped: own.dropped.saturating_add(other.dropped),
            ..own
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_function_are_one_row() {
        let probe = |name: &str, records| Probe {
            name: name.to_owned(),
            records,
            counts: Some(Counts { hits: records + 1, missed: 1, dropped: 2, ..Counts::default() }),
            ..Probe::default()
        };
        let names = [
            "a.out:f:entry",
            "a.out:\"g\":return",
            "a.out:f:RETURN",
            "a.out:g",
            "libc:f:return",
            "a.out:h:entry",
            "a.out:h",
            "a.out:h:return",
            "a.out:f+0x4",
        ];
        let probes = names.iter().zip(1..).map(|(name, records)| probe(name, records)).collect();
        let rows: Vec<(String, u64, u64)> = joined(probes)
            .into_iter()
            .map(|probe| (probe.name, probe.records, probe.counts.map_or(0, |counts| counts.hits)))
            .collect();
        let alone = |number: usize| (names[number].to_owned(), number as u64 + 1, number as u64 + 2);
        assert_eq!(
            rows,
            [
                ("a.out:f (entry, return)".to_owned(), 4, 6),
                ("a.out:g (entry, return)".to_owned(), 6, 8),
                alone(4),
                alone(5),
                alone(6),
                alone(7),
                alone(8),
            ],
            "two entries of one function are two probes of their own"
        );
    }
}
