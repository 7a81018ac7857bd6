//! Maps in which a new key takes the place of one that was not used for long.

use super::{Fixture, info, key};
use crate::{Kind, MapInfo};

fn evicting(kind: Kind, value: u32, entries: u32) -> Fixture {
    Fixture::new(std::vec![MapInfo { evicts: 1, ..info(kind, 8, value, entries) }], 4)
}

#[test]
fn it_has_at_most_its_entries_and_counts_what_it_evicts() {
    for entries in [1, 2, 3, 7, 8, 9, 20, 100, 1000, 4096] {
        let fixture = evicting(Kind::Plain, 8, entries);
        let maps = fixture.maps();
        let all = 10 * u64::from(entries);
        for number in 0..all {
            assert!(maps.put(0, &key(number), number + 1), "{entries}: {number}");
            assert_eq!(maps.load(0, &key(number)), number + 1, "what is new is there");
        }
        let there = maps.entries(0);
        assert!(there <= u64::from(entries) && there >= u64::from(entries) * 3 / 4, "{entries}: {there}");
        assert_eq!((maps.evicted(0), maps.lost(0)), (all - there, 0), "{entries}");
        let found = (0..all).filter(|number| maps.load(0, &key(*number)) == number + 1).count();
        assert_eq!(found as u64, there, "values belong to their keys");
    }
}

#[test]
fn of_few_entries_the_one_that_was_not_used_for_the_longest_time_goes() {
    let fixture = evicting(Kind::Plain, 16, 7);
    let maps = fixture.maps();
    (0..7).for_each(|number| assert!(maps.store(0, &key(number), &[number as u8 + 1; 16])));
    // Reading, testing and changing are uses.
    assert_eq!(maps.load(0, &key(0)), 0x0101_0101_0101_0101);
    assert!(maps.has(0, &key(2)));
    maps.bump(0, &key(4), 1);
    for number in 7..11 {
        assert!(maps.put(0, &key(number), 1));
        // What is in use goes on to be.
        [0, 2, 4].into_iter().for_each(|number| assert!(maps.has(0, &key(number))));
    }
    let there: std::vec::Vec<u64> = (0..11).filter(|number| maps.has(0, &key(*number))).collect();
    assert_eq!(there, [0, 2, 4, 7, 8, 9, 10]);
    assert_eq!(maps.evicted(0), 4);
}

#[test]
fn of_many_entries_those_that_are_used_stay() {
    let fixture = evicting(Kind::Count, 8, 1000);
    let maps = fixture.maps();
    for number in 0..20_000 {
        assert!(maps.update(0, &key(1_000_000 + number), 1, number as u32, 0));
        assert!(maps.update(0, &key(number % 50), 1, number as u32, 0));
    }
    // Each of the 50 was counted at each of its uses, so none was evicted.
    for number in 0..50 {
        assert_eq!(maps.load(0, &key(number)), 400, "{number}");
    }
    assert!(maps.evicted(0) > 15_000);
}

#[test]
fn threads_find_room_at_the_same_time() {
    let fixture = evicting(Kind::Plain, 8, 20);
    let maps = fixture.maps();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for number in 0..5000u64 {
                    let number = number * 4 + thread;
                    maps.put(0, &key(number), number);
                    let found = maps.load(0, &key(number));
                    assert!(found == number || found == 0, "{number} has the value of {found}");
                }
            });
        }
    });
    let there = maps.view(0);
    assert!(there.len() <= 20 && !there.is_empty(), "{}", there.len());
    for entry in there {
        assert_eq!(crate::Value::Bytes(entry.key.clone()), entry.value);
    }
}

#[test]
fn a_map_without_keys_evicts_nothing() {
    let fixture = Fixture::new(std::vec![MapInfo { evicts: 1, ..info(Kind::Plain, 0, 8, 1) }], 4);
    let maps = fixture.maps();
    assert!(maps.put(0, &[], 5));
    assert_eq!((maps.load(0, &[]), maps.evicted(0)), (5, 0));
}
