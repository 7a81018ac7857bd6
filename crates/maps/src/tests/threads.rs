//! Many threads in one table: nothing that was added is missing afterwards.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::vec::Vec;

use super::{Fixture, info, key};
use crate::{Kind, Maps, Value};

const THREADS: u64 = 8;
/// What takes a second or so.
const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 500_000 };

/// Runs this on all threads, with the thread's number.
fn on_threads(run: impl Fn(u64) + Sync) {
    let run = &run;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run(thread));
        }
    });
}

/// A sequence of numbers that look random.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// The sum of a map's numbers.
fn total(maps: Maps<'_>, map: usize) -> u64 {
    let numbers = maps.view(map).into_iter().map(|entry| match entry.value {
        Value::Number(number) => number,
        Value::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")),
        Value::Avg { count, sum } => {
            assert_eq!(count, sum);
            sum
        }
        Value::Buckets(buckets) => buckets.iter().sum(),
        value => panic!("{value:?} is no number"),
    });
    numbers.sum()
}

#[test]
fn no_update_is_missing_while_entries_come_and_go() {
    // The threads' own keys crowd the table that the shared ones are made in.
    let kinds = [Kind::Count, Kind::Avg, Kind::Hist, Kind::Plain];
    let fixture = Fixture::new(kinds.map(|kind| info(kind, 8, 8, 300)).to_vec(), 2);
    let maps = fixture.maps();
    let added: Vec<AtomicU64> = kinds.iter().map(|_| AtomicU64::new(0)).collect();
    let lost = AtomicU64::new(0);
    on_threads(|thread| {
        let mut state = thread;
        for round in 0..ROUNDS {
            let map = (random(&mut state) % kinds.len() as u64) as usize;
            let shared = key(random(&mut state) % 64);
            if maps.update(map, &shared, 1, random(&mut state) as u32, 0) {
                added[map].fetch_add(1, Relaxed);
            } else {
                lost.fetch_add(1, Relaxed);
            }
            let own = key(1000 * (thread + 1) + random(&mut state) % 20);
            match round % 3 {
                0 if !maps.update(map, &own, 1, thread as u32, 0) => {
                    lost.fetch_add(1, Relaxed);
                }
                1 => {
                    maps.erase(map, &own);
                    assert!(!maps.has(map, &own));
                }
                _ => {}
            }
        }
        for (map, own) in (0..kinds.len()).flat_map(|map| (0..20).map(move |own| (map, own))) {
            maps.erase(map, &key(1000 * (thread + 1) + own));
        }
    });
    for (map, added) in added.iter().enumerate() {
        assert_eq!(total(maps, map), added.load(Relaxed), "{:?}", kinds[map]);
        assert_eq!(maps.entries(map), 64);
    }
    let counted: u64 = (0..kinds.len()).map(|map| maps.lost(map)).sum();
    assert_eq!((counted, lost.load(Relaxed)), (0, 0));
}

#[test]
fn first_insertions_at_the_same_moment_are_not_lost() {
    let infos = std::vec![info(Kind::Stacks, 1024, 0, 64), info(Kind::Count, 1024, 0, 64)];
    for round in 0..ROUNDS / 100 {
        let fixture = Fixture::new(infos.clone(), 2);
        let maps = fixture.maps();
        let updates = AtomicU64::new(0);
        on_threads(|thread| {
            // All threads come before the first one is done, or nearly so.
            updates.fetch_add(1, Relaxed);
            while updates.load(Relaxed) < THREADS {
                std::thread::yield_now();
            }
            for stack in 0..16 {
                let stack = [(round + stack) as u8; 1024];
                assert_ne!(maps.intern(0, &stack), 0);
                assert!(maps.update(1, &stack, 1, thread as u32, 0));
            }
        });
        assert_eq!((maps.lost(0), maps.lost(1)), (0, 0));
        assert_eq!((maps.entries(0), maps.entries(1), total(maps, 1)), (16, 16, 16 * THREADS));
    }
}

#[test]
fn a_key_is_there_once_however_many_insert_it() {
    let fixture = Fixture::new(std::vec![info(Kind::Plain, 8, 8, 64)], 1);
    let maps = fixture.maps();
    let made = AtomicU64::new(0);
    let erased = AtomicU64::new(0);
    on_threads(|thread| {
        let mut state = thread;
        for _ in 0..ROUNDS {
            let number = random(&mut state) % 8;
            if random(&mut state).is_multiple_of(2) {
                // What is bumped and erased at the same time may go to the next entry in that lane:
                // only whether entries are there is looked at.
                maps.bump(0, &key(number), 1);
                made.fetch_add(1, Relaxed);
            } else if maps.erase(0, &key(number)) {
                erased.fetch_add(1, Relaxed);
            }
        }
    });
    assert!(erased.load(Relaxed) > 0 && erased.load(Relaxed) <= made.load(Relaxed));
    let mut keys: Vec<_> = maps.view(0).into_iter().map(|entry| entry.key).collect();
    keys.sort();
    let all = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), all);
    assert!(all <= 8);
}

#[test]
fn values_of_many_words_are_read_whole() {
    let fixture = Fixture::new(std::vec![info(Kind::Plain, 8, 64, 8), info(Kind::Plain, 0, 64, 1)], 1);
    let maps = fixture.maps();
    let read = AtomicU64::new(0);
    on_threads(|thread| {
        for round in 0..ROUNDS {
            let (map, number) = ((round % 2) as usize, key(round % 4));
            let name = if map == 0 { &number[..] } else { &[] };
            let byte = (round * THREADS + thread) as u8;
            let mut value = [0xaa; 64];
            let mut name_read = [0; 8];
            match round % 8 {
                0 | 1 => {
                    maps.store(map, name, &[byte; 64]);
                }
                2 if thread == 0 => maps.zero(map),
                3 if thread == 0 => {
                    maps.erase(map, name);
                }
                4 | 5 => {
                    if maps.next(map, 0, &mut name_read, &mut value) != 0 {
                        read.fetch_add(1, Relaxed);
                        assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
                    }
                }
                _ => {
                    if maps.fetch(map, name, &mut value) {
                        read.fetch_add(1, Relaxed);
                    }
                    assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
                }
            }
        }
    });
    assert!(read.load(Relaxed) > ROUNDS / 2);
}

#[test]
fn a_new_entry_has_its_value_at_once() {
    let fixture = Fixture::new(std::vec![info(Kind::Plain, 8, 8, 8)], 1);
    let maps = fixture.maps();
    on_threads(|thread| {
        for round in 0..ROUNDS {
            // Each key is one thread's; the others read it.
            if thread < THREADS / 2 {
                maps.put(0, &key(thread), 100 + thread);
                maps.erase(0, &key(thread));
            } else {
                let number = round % (THREADS / 2);
                let mut value = [0; 8];
                if maps.fetch(0, &key(number), &mut value) {
                    assert_eq!(value, key(100 + number));
                }
            }
        }
    });
}

#[test]
fn maps_are_cleared_while_they_are_updated() {
    let kinds = [Kind::Sum, Kind::Avg, Kind::Max];
    let fixture = Fixture::new(kinds.map(|kind| info(kind, 8, 0, 100)).to_vec(), 2);
    let maps = fixture.maps();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let end = &end;
            scope.spawn(move || {
                let mut state = thread;
                while !end.load(Relaxed) {
                    let number = random(&mut state) % 100;
                    let map = (random(&mut state) % kinds.len() as u64) as usize;
                    maps.update(map, &key(number), 1, thread as u32, 0);
                }
            });
        }
        for round in 0..500 {
            for map in 0..kinds.len() {
                if round % 2 == 0 {
                    maps.clear(map)
                } else {
                    maps.zero(map)
                }
                let keys = maps.view(map).into_iter().map(|entry| entry.key);
                for key in keys {
                    let number = u64::from_le_bytes(*key.first_chunk().expect("8 bytes"));
                    assert!(number < 100);
                }
            }
        }
        end.store(true, Relaxed);
    });
    for map in 0..kinds.len() {
        maps.clear(map);
        assert_eq!((maps.entries(map), maps.view(map).len()), (0, 0));
        assert!(maps.update(map, &key(1), 1, 0, 0) && maps.update(map, &key(1), 1, 1, 0));
        assert_eq!(maps.load(map, &key(1)), [2, 1, 1][map]);
    }
}

#[test]
fn a_stack_has_one_number() {
    let fixture = Fixture::new(std::vec![info(Kind::Stacks, 64, 0, 200)], 1);
    let maps = fixture.maps();
    let numbers: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
    on_threads(|thread| {
        let mut state = thread;
        for _ in 0..ROUNDS {
            let stack = random(&mut state) % 100;
            let number = maps.intern(0, &[stack as u8; 48]);
            if number != 0 {
                numbers[stack as usize].store(number, Relaxed);
            }
        }
    });
    for (stack, number) in numbers.iter().enumerate() {
        assert_eq!(maps.stack(0, number.load(Relaxed)), Some(std::vec![stack as u8; 48]));
    }
}
