//! Plain maps: what is stored is fetched.

use std::vec;
use std::vec::Vec;

use super::{Fixture, key};
use crate::{Entry, Kind, Value};

#[test]
fn what_is_stored_is_fetched_and_the_rest_is_zeros() {
    let fixture = Fixture::one(Kind::Plain, 16, 24, 10);
    let maps = fixture.maps();
    assert!(maps.store(0, b"a", b"0123456789abcdefghijklmn"));
    assert!(maps.store(0, b"a", b"xyz"));
    let mut into = [0xff; 40];
    assert!(maps.fetch(0, b"a", &mut into));
    assert_eq!(into[..3], *b"xyz");
    assert_eq!(into[3..], [0; 37]);
    into.fill(0xff);
    assert!(!maps.fetch(0, b"b", &mut into));
    assert_eq!(into, [0; 40]);
    let mut short = [0; 2];
    assert!(maps.fetch(0, b"a", &mut short));
    assert_eq!(short, *b"xy");
}

#[test]
fn keys_differ_by_their_length_as_well() {
    let fixture = Fixture::one(Kind::Plain, 16, 8, 10);
    let maps = fixture.maps();
    let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0", b"a\0\0\0\0\0\0\0\0"];
    for (number, key) in keys.iter().enumerate() {
        assert!(maps.put(0, key, number as u64 + 1));
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(maps.load(0, key), number as u64 + 1);
    }
    assert_eq!(maps.entries(0), 6);
}

#[test]
fn numbers_are_put_bumped_and_loaded() {
    let fixture = Fixture::one(Kind::Plain, 8, 8, 10);
    let maps = fixture.maps();
    assert_eq!(maps.bump(0, &key(1), 5), 0);
    assert_eq!(maps.bump(0, &key(1), 1), 5);
    assert_eq!(maps.load(0, &key(1)), 6);
    assert!(maps.put(0, &key(1), u64::MAX));
    assert_eq!(maps.bump(0, &key(1), 1), u64::MAX);
    assert_eq!(maps.load(0, &key(1)), 0);
    assert!(maps.has(0, &key(1)) && !maps.has(0, &key(2)));
    assert!(maps.update(0, &key(2), 7, 3, 0));
    assert!(maps.update(0, &key(2), 7, 1, 0));
    assert_eq!(maps.load(0, &key(2)), 14);
}

#[test]
fn put_keeps_the_other_words_and_zeros_a_new_entrys() {
    let fixture = Fixture::one(Kind::Plain, 8, 16, 1);
    let maps = fixture.maps();
    let mut value = [0; 16];
    for _ in 0..2 {
        assert!(maps.store(0, &key(1), &[1; 16]));
        assert!(maps.put(0, &key(1), 9));
        assert!(maps.fetch(0, &key(1), &mut value));
        assert_eq!(value, *b"\x09\0\0\0\0\0\0\0\x01\x01\x01\x01\x01\x01\x01\x01");
        assert!(maps.erase(0, &key(1)));
    }
    // Any of the lanes may be taken: each was used before.
    for number in 0..7 {
        maps.store(0, &key(number), &[1; 16]);
    }
    maps.clear(0);
    for number in 0..7 {
        assert!(maps.put(0, &key(number), 2));
        assert!(maps.fetch(0, &key(number), &mut value));
        assert_eq!(value[8..], [0; 8]);
    }
}

#[test]
fn what_is_erased_is_gone() {
    let fixture = Fixture::one(Kind::Plain, 8, 8, 10);
    let maps = fixture.maps();
    assert!(!maps.erase(0, &key(1)));
    maps.put(0, &key(1), 5);
    assert!(maps.erase(0, &key(1)));
    assert!(!maps.erase(0, &key(1)));
    assert_eq!((maps.load(0, &key(1)), maps.entries(0)), (0, 0));
    assert_eq!(maps.bump(0, &key(1), 3), 0);
    assert_eq!(maps.load(0, &key(1)), 3);
}

#[test]
fn zero_keeps_keys_and_clear_does_not() {
    let fixture = Fixture::one(Kind::Plain, 8, 16, 100);
    let maps = fixture.maps();
    for number in 0..100 {
        assert!(maps.store(0, &key(number), &[7; 16]));
    }
    maps.zero(0);
    assert_eq!(maps.entries(0), 100);
    assert!(maps.view(0).iter().all(|entry| entry.value == Value::Bytes(vec![0; 16])));
    maps.clear(0);
    assert_eq!(maps.entries(0), 0);
    assert_eq!(maps.view(0), []);
    assert_eq!(maps.lost(0), 0);
}

#[test]
fn next_gives_each_entry_once() {
    let fixture = Fixture::one(Kind::Plain, 16, 16, 50);
    let maps = fixture.maps();
    for number in 0..50u64 {
        maps.store(0, &number.to_le_bytes()[..1 + number as usize % 8], &number.to_le_bytes());
    }
    let (mut position, mut found) = (0, Vec::new());
    loop {
        let (mut key, mut value) = ([0xff; 16], [0xff; 16]);
        position = maps.next(0, position, &mut key, &mut value);
        if position == 0 {
            assert_eq!((key, value), ([0; 16], [0; 16]));
            break;
        }
        assert_eq!(key[..8], value[..8]);
        assert_eq!(key[8..], [0; 8]);
        found.push(key[0]);
    }
    found.sort_unstable();
    assert_eq!(found, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_map_without_keys_has_one_entry_always() {
    let fixture = Fixture::one(Kind::Plain, 0, 16, 1);
    let maps = fixture.maps();
    let mut value = [0xff; 16];
    assert!(maps.has(0, b"") && maps.fetch(0, b"", &mut value));
    assert_eq!(value, [0; 16]);
    assert!(maps.store(0, b"", b"what is stored"));
    assert_eq!(maps.next(0, 0, &mut [], &mut value), 1);
    assert_eq!(value, *b"what is stored\0\0");
    assert_eq!(maps.next(0, 1, &mut [], &mut value), 0);
    let value = Value::Bytes(b"what is stored\0\0".to_vec());
    assert_eq!(maps.view(0), [Entry { key: vec![], value }]);
    assert!(maps.erase(0, b""));
    assert_eq!((maps.load(0, b""), maps.entries(0)), (0, 1));
    assert_eq!(maps.bump(0, b"", 4), 0);
    assert_eq!(maps.load(0, b""), 4);
}

#[test]
fn what_cannot_be_is_refused() {
    let fixture = Fixture::one(Kind::Plain, 8, 8, 10);
    let maps = fixture.maps();
    assert!(!maps.store(0, b"longer than keys", b""));
    assert!(!maps.put(0, b"longer than keys", 1));
    assert_eq!(maps.lost(0), 2);
    assert!(!maps.has(0, b"longer than keys") && !maps.erase(0, b"longer than keys"));
    assert!(!maps.put(1, b"", 1) && !maps.update(1, b"", 1, 0, 0) && !maps.has(1, b""));
    assert_eq!((maps.bump(1, b"", 1), maps.load(1, b""), maps.entries(1)), (0, 0, 0));
    assert_eq!((maps.next(1, 0, &mut [], &mut []), maps.lost(1), maps.intern(0, b"")), (0, 0, 0));
    assert_eq!(maps.view(1), []);
}
