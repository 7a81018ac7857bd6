//! A hostile process: whatever the words contain, operations end, and none leaves the map.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Fixture, info, key};
use crate::{Kind, MapInfo, Maps};

const KINDS: [Kind; 11] = [
    Kind::Plain,
    Kind::Count,
    Kind::Sum,
    Kind::Min,
    Kind::Max,
    Kind::Avg,
    Kind::Stats,
    Kind::Hist,
    Kind::Lhist,
    Kind::Tseries,
    Kind::Stacks,
];

/// A map of each kind with keys, one of each without, and one of each that evicts.
fn fixture() -> Fixture {
    let with = |kind, key| MapInfo { a: 3, b: 40, c: 5, signed: 1, ..info(kind, key, 24, 12) };
    let infos = KINDS
        .iter()
        .flat_map(|&kind| [with(kind, 16), with(kind, 0), MapInfo { evicts: 1, ..with(kind, 16) }]);
    Fixture::new(infos.collect(), 2)
}

/// Words as they may be: control words of few tags, lengths, anything.
fn garbage() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        0..32u64,
        any::<u64>(),
        Just(0x80_8080_8080_8080),
        (1..255u64).prop_map(|byte| byte * 0x01_0101_0101_0101),
    ]
}

/// Everything that can be done to a map.
fn everything(maps: Maps<'_>, map: usize, number: u64) {
    let info = &maps.infos[map];
    let key = [&key(number)[..], &key(7)[..]].concat();
    let key = &key[..(number as usize % 17).min(info.key as usize)];
    let mut bytes = [0; 64];
    maps.update(map, key, number, number as u32, number);
    maps.update(map, key, 1, 0, u64::MAX);
    maps.fetch(map, key, &mut bytes);
    maps.store(map, key, &bytes);
    maps.load(map, key);
    maps.put(map, key, number);
    maps.bump(map, key, number);
    maps.has(map, key);
    maps.intern(map, key);
    maps.entries(map);
    maps.lost(map);
    let (mut position, mut steps) = (number % 100, 0);
    loop {
        position = maps.next(map, position, &mut bytes[..16], &mut [0; 24]);
        if position == 0 {
            break;
        }
        steps += 1;
        assert!(steps <= 1000);
    }
    maps.next(map, u64::MAX - number, &mut [], &mut []);
    let entries = maps.view(map);
    assert!(entries.len() <= 7 * (12 / 4 + 1));
    for entry in &entries {
        assert_eq!(entry.key.len(), info.key as usize);
    }
    let stack = maps.stack(map, number).map_or(0, |stack| stack.len());
    assert!(stack <= info.key as usize);
    if number.is_multiple_of(3) {
        maps.erase(map, key);
        maps.zero(map);
    }
    if number.is_multiple_of(5) {
        maps.clear(map);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn words_may_contain_anything(garbage in vec(garbage(), 1..200), number in any::<u64>()) {
        let fixture = fixture();
        let maps = fixture.maps();
        for map in 0..maps.infos.len() {
            let info = &maps.infos[map];
            let start = info.place as usize;
            let end = start + (info.words * info.copies) as usize;
            let mark = |word: usize| garbage[word % garbage.len()];
            for (place, word) in maps.words.iter().enumerate() {
                word.store(if (start..end).contains(&place) { mark(place) } else { 0x5a }, Relaxed);
            }
            for step in 0..8 {
                everything(maps, map, number >> step);
            }
            let outside = maps.words[..start].iter().chain(&maps.words[end..]);
            assert!(outside.map(|word| word.load(Relaxed)).all(|word| word == 0x5a));
        }
    }

    #[test]
    fn maps_that_do_not_fit_their_words_are_refused(
        numbers in vec(any::<u32>(), 8),
        parameters in vec(any::<i64>(), 3),
        small in any::<bool>(),
    ) {
        let of = |place: usize| if small { numbers[place] % 64 } else { numbers[place] };
        let info = MapInfo {
            kind: numbers[0] % 12,
            signed: numbers[1] % 2,
            key: of(2),
            value: of(3),
            entries: of(4),
            copies: numbers[5] % 5,
            place: of(6),
            words: of(7),
            evicts: numbers[1] / 2 % 2,
            a: parameters[0],
            b: parameters[1],
            c: parameters[2],
        };
        // A reader's buffers are as large as its maps say: those of maps that were not planned
        // could be anything.
        let words: Vec<_> = (0..512).map(|_| 0x81.into()).collect();
        let maps = Maps { infos: &[info], words: &words };
        maps.update(0, &key(1), 1, 9, 5);
        maps.store(0, &key(1), &[1; 20]);
        maps.put(0, b"", 1);
        maps.next(0, 0, &mut [0; 9], &mut [0; 9]);
        maps.intern(0, &[5; 30]);
        maps.load(0, &key(1));
        maps.erase(0, &key(1));
        maps.zero(0);
        maps.clear(0);
    }
}

#[test]
fn words_may_change_at_any_moment() {
    let fixture = fixture();
    let maps = fixture.maps();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 1u64;
            while !end.load(Relaxed) {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let place = (state >> 33) as usize % maps.words.len();
                let word = if state >> 32 & 1 == 0 { state } else { state >> 32 & 0x80_81_80_81 };
                maps.words[place].store(word, Relaxed);
            }
        });
        for number in 0..60 {
            (0..maps.infos.len()).for_each(|map| everything(maps, map, number));
        }
        end.store(true, Relaxed);
    });
}
