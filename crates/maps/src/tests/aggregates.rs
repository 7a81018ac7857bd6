//! Aggregates: updates on several processors amount to one value.

use std::vec;
use std::vec::Vec;

use super::{Fixture, info, key};
use crate::{Kind, MapInfo, Value};

/// The values of both an entry of a map with keys and of one without, after these updates on
/// several processors, and their number.
fn of(info: MapInfo, numbers: &[i64]) -> (Value, u64) {
    let keyless = MapInfo { key: 0, ..info };
    let fixture = Fixture::new(vec![info, keyless], 4);
    let maps = fixture.maps();
    for (place, &number) in numbers.iter().enumerate() {
        assert!(maps.update(0, &key(1), number as u64, place as u32, place as u64));
        assert!(maps.update(1, b"", number as u64, place as u32, place as u64));
    }
    let [entry] = &maps.view(0)[..] else { panic!("one entry") };
    assert_eq!(entry.key, key(1));
    assert_eq!(entry.value, maps.view(1)[0].value);
    assert_eq!(maps.load(0, &key(1)), maps.load(1, b""));
    let (mut name, mut value) = ([0; 8], [0; 16]);
    assert!(maps.next(0, 0, &mut name, &mut value) > 0);
    assert_eq!(name, key(1));
    assert_eq!(value[..8], maps.load(0, &key(1)).to_le_bytes());
    let mut fetched = [0xff; 16];
    assert!(maps.fetch(0, &key(1), &mut fetched));
    assert_eq!(fetched, value);
    (entry.value.clone(), maps.load(0, &key(1)))
}

fn signed(kind: Kind) -> MapInfo {
    MapInfo { signed: 1, ..info(kind, 8, 0, 10) }
}

fn unsigned(kind: Kind) -> MapInfo {
    info(kind, 8, 0, 10)
}

#[test]
fn sums_wrap() {
    assert_eq!(of(unsigned(Kind::Count), &[1; 9]), (Value::Number(9), 9));
    assert_eq!(of(signed(Kind::Sum), &[3, -10, 2]), (Value::Number(-5i64 as u64), -5i64 as u64));
}

#[test]
fn least_and_greatest_heed_the_sign() {
    let numbers = [5, -3, 7, 0, -1];
    assert_eq!(of(signed(Kind::Min), &numbers).1 as i64, -3);
    assert_eq!(of(signed(Kind::Max), &numbers).1 as i64, 7);
    assert_eq!(of(unsigned(Kind::Min), &numbers).1, 0);
    assert_eq!(of(unsigned(Kind::Max), &numbers).1, u64::MAX);
    for extreme in [i64::MIN, i64::MAX, 0, -1] {
        for info in [signed(Kind::Min), signed(Kind::Max), unsigned(Kind::Min), unsigned(Kind::Max)] {
            assert_eq!(of(info, &[extreme]), (Value::Number(extreme as u64), extreme as u64));
        }
    }
}

#[test]
fn averages_are_rounded_towards_zero() {
    let avg = Value::Avg { count: 3, sum: -8i64 as u64 };
    assert_eq!(of(signed(Kind::Avg), &[-1, -2, -5]), (avg, -2i64 as u64));
    let stats = Value::Stats { count: 2, sum: 7 };
    assert_eq!(of(unsigned(Kind::Stats), &[3, 4]), (stats, 3));
    let large = Value::Avg { count: 1, sum: u64::MAX };
    assert_eq!(of(unsigned(Kind::Avg), &[-1]), (large, u64::MAX));
}

#[test]
fn histograms_count_numbers() {
    let lhist = MapInfo { a: -10, b: 10, c: 5, ..signed(Kind::Lhist) };
    let numbers = [-11, -10, -6, -5, 0, 4, 9, 10, 11, i64::MIN, i64::MAX];
    assert_eq!(of(lhist, &numbers), (Value::Buckets(vec![2, 2, 1, 2, 1, 3]), 11));
    let (value, count) = of(signed(Kind::Hist), &[-1, 0, 1, 2, 3, 4, 1 << 40]);
    let Value::Buckets(buckets) = value else { panic!("buckets") };
    assert_eq!(buckets[..6], [1, 1, 1, 2, 1, 0]);
    assert_eq!((buckets[42], buckets.len(), count), (1, 65, 7));
}

fn series(kind: Kind) -> MapInfo {
    MapInfo { a: 10, b: 3, c: kind as i64, ..signed(Kind::Tseries) }
}

/// The series of updates at times, each on another processor.
fn timed(info: MapInfo, updates: &[(u64, i64)]) -> Vec<(i64, Option<i64>)> {
    let fixture = Fixture::new(vec![info], 2);
    let maps = fixture.maps();
    for (place, &(now, number)) in updates.iter().enumerate() {
        assert!(maps.update(0, &key(1), number as u64, place as u32, now));
    }
    let Value::Series(series) = maps.view(0)[0].value.clone() else { panic!("a series") };
    let last = series.last().and_then(|&(_, number)| number);
    assert_eq!(maps.load(0, &key(1)), last.unwrap_or(0));
    series.into_iter().map(|(start, number)| (start, number.map(|number| number as i64))).collect()
}

#[test]
fn series_have_the_last_intervals() {
    let updates = [(100, 1), (109, 4), (110, 5), (131, -9), (132, 2), (133, 4)];
    let of = |kind| timed(series(kind), &updates).iter().map(|&(_, number)| number).collect::<Vec<_>>();
    let starts = timed(series(Kind::Sum), &updates).iter().map(|&(start, _)| start).collect::<Vec<_>>();
    assert_eq!(starts, [110, 120, 130]);
    assert_eq!(of(Kind::Plain), [Some(5), None, Some(4)]);
    assert_eq!(of(Kind::Sum), [Some(5), None, Some(-3)]);
    assert_eq!(of(Kind::Avg), [Some(5), None, Some(-1)]);
    assert_eq!(of(Kind::Min), [Some(5), None, Some(-9)]);
    assert_eq!(of(Kind::Max), [Some(5), None, Some(4)]);
}

#[test]
fn a_late_update_of_a_series_is_lost() {
    let fixture = Fixture::new(vec![series(Kind::Sum)], 1);
    let maps = fixture.maps();
    assert!(maps.update(0, &key(1), 1, 0, 100));
    assert!(maps.update(0, &key(1), 1, 0, 130));
    assert!(!maps.update(0, &key(1), 1, 0, 100));
    assert_eq!(maps.lost(0), 1);
    assert!(maps.update(0, &key(1), 1, 0, u64::MAX));
}

#[test]
fn a_value_nothing_was_added_to_is_zero() {
    let all = [Kind::Count, Kind::Sum, Kind::Min, Kind::Max, Kind::Avg, Kind::Stats, Kind::Tseries];
    for kind in all {
        for signed in [0, 1] {
            let keyless = MapInfo { signed, b: 2, ..info(kind, 0, 0, 1) };
            let fixture = Fixture::new(vec![keyless], 2);
            assert_eq!(fixture.maps().load(0, b""), 0, "{kind:?}");
            fixture.maps().update(0, b"", 5, 1, 0);
            assert_eq!(fixture.maps().load(0, b""), 5, "{kind:?}");
            fixture.maps().zero(0);
            assert_eq!(fixture.maps().load(0, b""), 0, "{kind:?}");
        }
    }
}

#[test]
fn erase_and_clear_reach_all_copies() {
    let fixture = Fixture::one(Kind::Sum, 8, 0, 100);
    let maps = fixture.maps();
    let fill = || {
        for number in 0..400 {
            assert!(maps.update(0, &key(number % 100), 1, number as u32 / 100, 0));
        }
        assert_eq!(maps.entries(0), 100);
        assert!(maps.view(0).iter().all(|entry| entry.value == Value::Number(4)));
    };
    fill();
    assert!(maps.erase(0, &key(5)) && !maps.has(0, &key(5)));
    assert!(maps.update(0, &key(5), 1, 2, 0));
    assert_eq!(maps.load(0, &key(5)), 1);
    maps.clear(0);
    assert_eq!(maps.entries(0), 0);
    fill();
    maps.zero(0);
    assert_eq!(maps.entries(0), 100);
    assert!(maps.view(0).iter().all(|entry| entry.value == Value::Number(0)));
}

#[test]
fn an_aggregate_cannot_be_stored() {
    let fixture = Fixture::one(Kind::Sum, 8, 0, 10);
    let maps = fixture.maps();
    assert!(!maps.store(0, &key(1), &[1]) && !maps.put(0, &key(1), 1));
    assert_eq!((maps.bump(0, &key(1), 1), maps.entries(0), maps.lost(0)), (0, 0, 0));
}
