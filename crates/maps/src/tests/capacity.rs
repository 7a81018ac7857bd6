//! How many keys have room.

use super::{Fixture, key};
use crate::{Kind, MapInfo, TooLarge, plan};

#[test]
fn a_map_has_room_for_its_entries() {
    for entries in [1, 2, 7, 8, 20, 100, 1000, 4096, 20_000] {
        for seed in 0..(100_000 / entries).min(150) {
            let fixture = Fixture::one(Kind::Plain, 8, 8, entries);
            let maps = fixture.maps();
            for number in 0..u64::from(entries) {
                // Keys as programs have them: neighbours, multiples, addresses.
                let number = match seed % 3 {
                    0 => number + u64::from(seed),
                    1 => number * 4096 * u64::from(seed + 1),
                    _ => 0x7fff_0000_0000 + number * 64 * u64::from(seed),
                };
                assert!(maps.put(0, &key(number), 1), "{entries} {seed}");
            }
            assert_eq!(maps.entries(0), u64::from(entries));
        }
    }
}

#[test]
fn what_has_no_room_is_counted() {
    let fixture = Fixture::one(Kind::Sum, 8, 0, 50);
    let maps = fixture.maps();
    let added = (0..1000).filter(|&number| maps.update(0, &key(number), 1, number as u32, 0)).count();
    assert!((50..200).contains(&added), "{added}");
    assert_eq!(maps.entries(0), added as u64);
    assert_eq!(maps.lost(0), 1000 - added as u64);
    assert!((0..1000).filter(|&number| maps.has(0, &key(number))).count() == added);
}

#[test]
fn copies_fit_the_budget() {
    let info = |entries| MapInfo { kind: Kind::Sum as u32, key: 8, entries, ..MapInfo::default() };
    let mut infos = [info(10_000), info(10), MapInfo { kind: 0, key: 3, value: 9, ..info(5) }];
    let all = plan(&mut infos, 64, usize::MAX).expect("this is small");
    assert_eq!(infos.map(|info| info.copies), [64, 64, 1]);
    assert_eq!((infos[2].key, infos[2].value), (8, 16));
    let less = plan(&mut infos, 64, all / 3).expect("this is small");
    assert_eq!(infos.map(|info| info.copies), [16, 64, 1]);
    assert!(less <= all / 3);
    let mut end = 0;
    for info in infos {
        assert_eq!(info.place as usize, end);
        end += (info.copies * info.words) as usize;
    }
    assert_eq!(end, less);
    plan(&mut infos, 64, 0).expect("this is small");
    assert_eq!(infos.map(|info| info.copies), [1, 1, 1]);
}

#[test]
fn what_cannot_be_addressed_is_refused() {
    let mut infos = [MapInfo { key: 8, value: 8, entries: u32::MAX, ..MapInfo::default() }];
    assert_eq!(plan(&mut infos, 1, usize::MAX), Err(TooLarge { map: 0 }));
    let mut infos = [MapInfo { kind: Kind::Lhist as u32, a: 0, b: i64::MAX, c: 1, ..MapInfo::default() }];
    assert_eq!(plan(&mut infos, 1, usize::MAX), Err(TooLarge { map: 0 }));
    let half = MapInfo { key: 8, value: 64, entries: 200_000_000, ..MapInfo::default() };
    assert_eq!(plan(&mut [half; 3], 1, usize::MAX), Err(TooLarge { map: 2 }));
}
