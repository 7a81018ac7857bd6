//! Maps as this process uses them.

use std::collections::BTreeMap;

use bpf::{Errno, Map, MapError, MapKind, MapSpec, possible_processors};

use crate::support::permitted;

fn create(spec: &MapSpec<'_>) -> Map {
    Map::create(spec).expect("this process may create maps")
}

fn hash(kind: MapKind, max_entries: u32) -> Map {
    create(&MapSpec { kind, key_size: 8, ..MapSpec::array("hash", 16, max_entries) })
}

fn value(number: u64) -> Vec<u8> {
    [number.to_ne_bytes(), (!number).to_ne_bytes()].concat()
}

#[test]
fn entries_of_a_hash_are_set_found_listed_and_removed() {
    if !permitted("entries_of_a_hash_are_set_found_listed_and_removed") {
        return;
    }
    let map = hash(MapKind::Hash, 2000);
    for number in 0..1500_u64 {
        map.update(&number.to_ne_bytes(), &value(number)).expect("there is room");
    }
    let key = 7_u64.to_ne_bytes();
    assert_eq!(map.lookup(&key), Ok(Some(value(7))));
    assert_eq!((map.delete(&key), map.delete(&key), map.lookup(&key)), (Ok(true), Ok(false), Ok(None)));
    let mut found = BTreeMap::new();
    let visit = |key: &[u8], value: &[u8]| {
        let key = u64::from_ne_bytes(key.try_into().expect("keys have 8 bytes"));
        found.insert(key, value.to_vec());
    };
    map.for_each(visit).expect("hashes can be listed");
    let expected: BTreeMap<u64, Vec<u8>> = (0..1500).filter(|n| *n != 7).map(|n| (n, value(n))).collect();
    assert!(found == expected, "{} entries", found.len());
}

#[test]
fn a_full_hash_refuses_and_a_full_lru_makes_room() {
    if !permitted("a_full_hash_refuses_and_a_full_lru_makes_room") {
        return;
    }
    let fill = |map: &Map| (0..5000_u64).find_map(|n| map.update(&n.to_ne_bytes(), &value(n)).err());
    assert_eq!(fill(&hash(MapKind::Hash, 100)), Some(MapError::Access(Errno::E2BIG)));
    let lru = hash(MapKind::LruHash, 1000);
    assert_eq!(fill(&lru), None);
    assert_eq!(lru.lookup(&4999_u64.to_ne_bytes()), Ok(Some(value(4999))));
}

#[test]
fn an_array_has_all_values_and_one_for_each_processor() {
    if !permitted("an_array_has_all_values_and_one_for_each_processor") {
        return;
    }
    let processors = possible_processors().expect("sysfs is mounted");
    let spec = MapSpec { kind: MapKind::PerCpuArray, ..MapSpec::array("cpus", 12, 3) };
    let map = create(&spec);
    assert_eq!(map.value_size(), 16 * processors);
    let bytes: Vec<u8> = (0..16 * processors).map(|n| if n % 16 < 12 { n as u8 } else { 0 }).collect();
    map.update(&1_u32.to_ne_bytes(), &bytes).expect("the element is there");
    assert_eq!(map.lookup(&1_u32.to_ne_bytes()), Ok(Some(bytes.clone())));
    assert_eq!(map.lookup(&3_u32.to_ne_bytes()), Ok(None));
    let mut found = Vec::new();
    map.for_each(|_, value| found.push(value == bytes)).expect("arrays can be listed");
    assert_eq!(found, [false, true, false]);
}

#[test]
fn shared_values_are_those_of_the_map() {
    if !permitted("shared_values_are_those_of_the_map") {
        return;
    }
    let map = create(&MapSpec { mappable: true, ..MapSpec::array("shared", 4, 3) });
    let shared = map.share().expect("the map is mappable");
    assert_eq!(shared.len(), 3);
    map.update(&2_u32.to_ne_bytes(), &77_u32.to_ne_bytes()).expect("the element is there");
    shared[1].store(5, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(shared[2].load(std::sync::atomic::Ordering::Relaxed), 77);
    assert_eq!(map.lookup(&1_u32.to_ne_bytes()), Ok(Some(5_u32.to_ne_bytes().to_vec())));
}

#[test]
fn wrong_sizes_and_kinds_are_refused() {
    if !permitted("wrong_sizes_and_kinds_are_refused") {
        return;
    }
    let map = create(&MapSpec::array("sizes", 8, 1));
    assert_eq!(map.lookup(&[0; 3]), Err(MapError::Size { found: 3, expected: 4 }));
    assert_eq!(map.update(&[0; 4], &[0; 9]), Err(MapError::Size { found: 9, expected: 8 }));
    assert_eq!(map.share().err(), Some(MapError::Kind));
    assert_eq!(map.put_map(0, &map), Err(MapError::Kind));
    let ring = Map::create(&MapSpec::ring("odd", 5000)).err();
    assert_eq!(ring, Some(MapError::Create(Errno::EINVAL)));
}
