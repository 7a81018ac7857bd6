//! Time series: the intervals that are shown.

/// A time series: beginnings of intervals in nanoseconds, and their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) points: Vec<Point>,
    /// Whether the values may be negative.
    pub(crate) signed: bool,
}

/// An interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Its beginning in nanoseconds since 1970.
    pub(crate) time: i128,
    /// Its value; `None`: nothing happened.
    pub(crate) value: Option<i128>,
}

/// The most intervals that are shown.
const MOST: i64 = 100_000;

/// The last interval with a value.
pub(crate) fn last(points: &[(i64, Option<u64>)]) -> Option<i64> {
    points.iter().filter(|(_, value)| value.is_some()).map(|(start, _)| *start).max()
}

/// The series from its first value to `last`, with at most as many intervals as the map has.
pub(crate) fn shown(
    points: &[(i64, Option<u64>)],
    last: i64,
    (interval, intervals): (i64, i64),
    signed: bool,
    time: &mut dyn FnMut(i64) -> i128,
) -> Series {
    let interval = interval.max(1);
    let reach = interval.saturating_mul(intervals.clamp(1, MOST) - 1);
    let first_possible = last.saturating_sub(reach);
    let number = |value: u64| if signed { value.cast_signed().into() } else { i128::from(value) };
    let mut known: Vec<(i64, i128)> = points
        .iter()
        .filter(|(start, _)| (first_possible..=last).contains(start))
        .filter_map(|(start, value)| Some((*start, number((*value)?))))
        .collect();
    known.sort();
    known.dedup_by_key(|(start, _)| *start);
    let mut points = Vec::new();
    if let Some((first, _)) = known.first() {
        let mut at = *first;
        while at <= last && points.len() < MOST as usize {
            let found = known.binary_search_by_key(&at, |(start, _)| *start).ok();
            points.push(Point { time: time(at), value: found.map(|index| known[index].1) });
            let Some(next) = at.checked_add(interval) else { break };
            at = next;
        }
    }
    Series { points, signed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_without_a_value_are_shown_between_others() {
        let points = [(0, Some(9)), (30, Some(1)), (50, Some(u64::MAX)), (40, None)];
        let series = shown(&points, 60, (10, 4), true, &mut |start| i128::from(start) + 1000);
        let values: Vec<_> = series.points.iter().map(|point| (point.time, point.value)).collect();
        assert_eq!(values, [(1030, Some(1)), (1040, None), (1050, Some(-1)), (1060, None)]);
        assert_eq!(last(&points), Some(50));
    }

    #[test]
    fn hostile_times_end() {
        let points = [(i64::MIN, Some(1)), (i64::MAX, Some(1)), (i64::MAX, Some(2))];
        let series = shown(&points, i64::MAX, (i64::MAX, i64::MAX), false, &mut i128::from);
        assert!(series.points.len() < 3);
        assert!(shown(&points, i64::MAX, (1, i64::MAX), false, &mut i128::from).points.len() == 1);
        assert!(shown(&[], 0, (0, 0), false, &mut i128::from).points.is_empty());
    }
}
