//! Stacks: byte strings by number.

use std::vec::Vec;

use super::Fixture;
use crate::Kind;

#[test]
fn a_number_finds_its_bytes() {
    let fixture = Fixture::one(Kind::Stacks, 1016, 0, 200);
    let maps = fixture.maps();
    let stack = |number: usize| -> Vec<u8> {
        (0..8 * (number % 127)).map(|place| (place * 7 + number) as u8).collect()
    };
    let numbers: Vec<u64> = (0..127).map(|number| maps.intern(0, &stack(number))).collect();
    for (place, &number) in numbers.iter().enumerate() {
        assert_ne!(number, 0);
        assert_eq!(maps.stack(0, number), Some(stack(place)));
        assert_eq!(maps.depth(0, number), place as u64);
        assert_eq!(maps.intern(0, &stack(place)), number);
        assert_eq!(maps.stack(0, number ^ 1 << 40), None);
    }
    assert_eq!((maps.entries(0), maps.lost(0)), (127, 0));
    for number in [0, 1, u64::MAX, u64::from(u32::MAX)] {
        assert_eq!((maps.stack(0, number), maps.depth(1, number)), (None, 0));
    }
    assert_eq!((maps.depth(0, 0), maps.depth(0, 1 << 20)), (0, 0));
    maps.clear(0);
    assert!(numbers.iter().all(|&number| maps.stack(0, number).is_none()));
}

#[test]
fn a_stack_without_room_is_lost() {
    let fixture = Fixture::one(Kind::Stacks, 16, 0, 1);
    let maps = fixture.maps();
    assert_eq!(maps.intern(0, &[0; 24]), 0);
    assert_eq!(maps.lost(0), 1);
    let stored = (0..20u64).filter(|number| maps.intern(0, &number.to_le_bytes()) != 0).count();
    assert_eq!((stored, maps.lost(0)), (7, 14));
}
