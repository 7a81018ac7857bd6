//! Random operations, against a model of ordered maps.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Fixture, info};
use crate::{Kind, MapInfo, Maps, Value};

/// Bytes of a key, of a value.
const KEY: usize = 24;
const VALUE: usize = 16;

#[derive(Clone, Debug)]
enum Operation {
    Store(Vec<u8>, Vec<u8>),
    Put(Vec<u8>, u64),
    Bump(Vec<u8>, u64),
    Update(Vec<u8>, u64, u32),
    Erase(Vec<u8>),
    Clear,
    Zero,
}

/// Few keys, of all lengths, so that most operations meet an entry.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(0..3u8, 0..3),
        (0..40u64).prop_map(|number| number.to_le_bytes().to_vec()),
        (0..20u8, 9..=KEY).prop_map(|(byte, length)| std::vec![byte; length]),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        4 => (keys(), vec(any::<u8>(), 0..=VALUE)).prop_map(|(key, value)| Operation::Store(key, value)),
        4 => (keys(), any::<u64>()).prop_map(|(key, value)| Operation::Put(key, value)),
        4 => (keys(), any::<u64>()).prop_map(|(key, value)| Operation::Bump(key, value)),
        8 => (keys(), any::<u64>(), any::<u32>())
            .prop_map(|(key, value, processor)| Operation::Update(key, value, processor)),
        6 => keys().prop_map(Operation::Erase),
        1 => Just(Operation::Clear),
        1 => Just(Operation::Zero),
    ];
    vec(operation, 0..300)
}

fn first(value: &[u8; VALUE]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("values are longer"))
}

fn set_first(value: &mut [u8; VALUE], number: u64) {
    value[..8].copy_from_slice(&number.to_le_bytes());
}

/// Checks that the plain map 0 has these entries and no others.
fn check_plain(maps: Maps<'_>, model: &BTreeMap<Vec<u8>, [u8; VALUE]>) {
    for (key, value) in model {
        let mut found = [0xff; VALUE];
        assert!(maps.has(0, key) && maps.fetch(0, key, &mut found), "{key:?}");
        assert_eq!((&found, maps.load(0, key)), (value, first(value)));
    }
    assert_eq!(maps.entries(0), model.len() as u64);
    let extended = |key: &[u8]| [key, &[0; KEY][key.len()..]].concat();
    let mut expected: Vec<_> = model.iter().map(|(key, value)| (extended(key), value.to_vec())).collect();
    expected.sort();
    let mut seen = Vec::new();
    for entry in maps.view(0) {
        let Value::Bytes(value) = entry.value else { panic!("a plain map has bytes") };
        seen.push((entry.key, value));
    }
    seen.sort();
    assert_eq!(seen, expected);
    let (mut position, mut walked) = (0, Vec::new());
    loop {
        let (mut key, mut value) = ([0xff; KEY], [0xff; VALUE]);
        position = maps.next(0, position, &mut key, &mut value);
        if position == 0 {
            break;
        }
        walked.push((key.to_vec(), value.to_vec()));
    }
    walked.sort();
    assert_eq!(walked, expected);
}

/// What the model of an aggregate has of the numbers that were added to a key.
fn expected(info: &MapInfo, numbers: &[u64]) -> u64 {
    let sum = numbers.iter().fold(0, |sum: u64, number| sum.wrapping_add(*number));
    let signed = || numbers.iter().map(|&number| number as i64);
    let count = numbers.len() as u64;
    match (info.kind(), info.signed) {
        (Kind::Sum, _) => sum,
        (Kind::Min, 0) => numbers.iter().copied().min().unwrap_or(0),
        (Kind::Max, 0) => numbers.iter().copied().max().unwrap_or(0),
        (Kind::Min, _) => signed().min().unwrap_or(0) as u64,
        (Kind::Max, _) => signed().max().unwrap_or(0) as u64,
        (Kind::Avg, 0) => sum.checked_div(count).unwrap_or(0),
        (Kind::Avg, _) => (sum as i64).checked_div(count as i64).unwrap_or(0) as u64,
        _ => count,
    }
}

proptest! {
    #[test]
    fn a_plain_map_is_an_ordered_map(operations in operations()) {
        let fixture = Fixture::one(Kind::Plain, KEY as u32, VALUE as u32, 80);
        let maps = fixture.maps();
        let mut model: BTreeMap<Vec<u8>, [u8; VALUE]> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Store(key, value) => {
                    assert!(maps.store(0, &key, &value));
                    let mut stored = [0; VALUE];
                    stored[..value.len()].copy_from_slice(&value);
                    model.insert(key, stored);
                }
                Operation::Put(key, number) => {
                    assert!(maps.put(0, &key, number));
                    set_first(model.entry(key).or_default(), number);
                }
                Operation::Bump(key, number) => {
                    let value = model.entry(key.clone()).or_default();
                    assert_eq!(maps.bump(0, &key, number), first(value));
                    set_first(value, first(value).wrapping_add(number));
                }
                Operation::Update(key, number, processor) => {
                    assert!(maps.update(0, &key, number, processor, 0));
                    let value = model.entry(key).or_default();
                    set_first(value, first(value).wrapping_add(number));
                }
                Operation::Erase(key) => {
                    assert_eq!(maps.erase(0, &key), model.remove(&key).is_some());
                    assert!(!maps.has(0, &key));
                }
                Operation::Clear => {
                    maps.clear(0);
                    model.clear();
                }
                Operation::Zero => {
                    maps.zero(0);
                    model.values_mut().for_each(|value| *value = [0; VALUE]);
                }
            }
        }
        check_plain(maps, &model);
        assert_eq!(maps.lost(0), 0);
    }

    #[test]
    fn aggregates_amount_to_what_was_added(operations in operations()) {
        let signed = |signed, kind| MapInfo { signed, ..info(kind, KEY as u32, 0, 80) };
        let mut infos = std::vec![signed(0, Kind::Count), signed(1, Kind::Sum), signed(1, Kind::Hist)];
        for kind in [Kind::Min, Kind::Max, Kind::Avg] {
            infos.extend([signed(0, kind), signed(1, kind)]);
        }
        // Counts are of calls: the programs add 1.
        let added = |map: usize, number| if map == 0 { 1 } else { number };
        let fixture = Fixture::new(infos, 3);
        let maps = fixture.maps();
        let mut model: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Update(key, number, processor) => {
                    for map in 0..maps.infos.len() {
                        assert!(maps.update(map, &key, added(map, number), processor, 0));
                    }
                    model.entry(key).or_default().push(number);
                }
                Operation::Erase(key) => {
                    let was = model.remove(&key).is_some();
                    assert!((0..maps.infos.len()).all(|map| maps.erase(map, &key) == was));
                }
                Operation::Clear => {
                    (0..maps.infos.len()).for_each(|map| maps.clear(map));
                    model.clear();
                }
                Operation::Zero => {
                    (0..maps.infos.len()).for_each(|map| maps.zero(map));
                    model.values_mut().for_each(Vec::clear);
                }
                _ => {}
            }
        }
        for (map, info) in maps.infos.iter().enumerate() {
            assert_eq!(maps.entries(map), model.len() as u64);
            assert_eq!(maps.view(map).len(), model.len());
            for (key, numbers) in &model {
                assert!(maps.has(map, key));
                assert_eq!(maps.load(map, key), expected(info, numbers), "{map} {info:?}");
            }
            let (mut key, mut value, mut position, mut count) = ([0; KEY], [0; 8], 0, 0);
            loop {
                position = maps.next(map, position, &mut key, &mut value);
                if position == 0 {
                    break;
                }
                count += 1;
                let number = u64::from_le_bytes(value);
                let extended = |its: &[u8]| [its, &[0; KEY][its.len()..]].concat();
                let mut same = model.iter().filter(|(its, _)| extended(its) == key);
                assert!(same.any(|(_, numbers)| expected(info, numbers) == number));
            }
            assert_eq!(count, model.len());
        }
    }
}
