//! What another thread may do between the steps of an insertion, step by step.

use std::vec::Vec;

use super::*;

/// A table of two buckets for keys and values of 8 bytes.
fn words() -> Vec<AtomicU64> {
    (0..48).map(|_| AtomicU64::new(0)).collect()
}

fn table(words: &[AtomicU64]) -> Table<'_> {
    Table { words, buckets: 2, bucket_words: 24, key_words: 1, entry_words: 3, lanes: LANES, recency: None }
}

/// The control words of a key's first and second bucket.
fn controls(table: &Table<'_>, key: &Key<'_>) -> [u64; 2] {
    [key.first(2), key.second(2)].map(|bucket| table.bucket(bucket).unwrap().0.load(Relaxed))
}

/// An attempt to insert a key by a thread that saw these control words.
fn insert<'a>(table: &Table<'a>, key: &Key<'_>, seen: [u64; 2]) -> Attempt<'a> {
    table.insert(key, (key.first(2), seen[0]), (key.second(2), seen[1]), &|_| {})
}

/// A control word whose lanes are all in use, so that the other bucket is taken.
const FULL: u64 = 0x0001_0101_0101_0101;

/// Makes the key's lane in one of its buckets, as another thread would that finds the other one
/// full.
fn insert_elsewhere(table: &Table<'_>, key: &Key<'_>, second: bool) {
    let mut seen = controls(table, key);
    let other = usize::from(!second);
    let control = table.bucket([key.first(2), key.second(2)][other]).unwrap().0;
    let was = control.swap(FULL, Relaxed);
    seen[other] = FULL;
    assert!(matches!(insert(table, key, seen), Attempt::Done(_)));
    control.store(was, Relaxed);
}

#[test]
fn an_insertion_into_a_bucket_that_changed_is_tried_again() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    let seen = controls(&table, &key);
    assert!(matches!(insert(&table, &key, seen), Attempt::Done(_)));
    assert!(matches!(insert(&table, &key, seen), Attempt::Again));
    assert_eq!(table.count(), 1);
}

#[test]
fn a_key_that_came_into_the_other_bucket_is_seen() {
    for second in [false, true] {
        let words = words();
        let table = table(&words);
        let key = Key::new(&[1; 8]);
        let mut seen = controls(&table, &key);
        insert_elsewhere(&table, &key, second);
        if !second {
            // This thread saw the first bucket full and takes the second one.
            seen[0] = FULL;
        }
        assert!(matches!(insert(&table, &key, seen), Attempt::Again));
        assert_eq!(table.count(), 1);
        assert!(!table.find_or_insert(&key, |_| {}).unwrap().1);
        assert!(table.erase(&key));
        assert_eq!(controls(&table, &key).map(|control| control & (CHANGE - 1)), [0, 0]);
    }
}

#[test]
fn another_key_in_the_other_bucket_is_no_hindrance() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    let seen = controls(&table, &key);
    let bucket = key.second(2);
    let other = (0..100u64).map(u64::to_le_bytes).find(|other| Key::new(other).first(2) == bucket);
    table.find_or_insert(&Key::new(&other.unwrap()), |_| {}).unwrap();
    assert_ne!(controls(&table, &key)[1], seen[1]);
    assert!(matches!(insert(&table, &key, seen), Attempt::Done(_)));
    assert_eq!(table.count(), 2);
}

#[test]
fn a_lane_that_is_busy_for_too_long_is_taken_and_its_owner_begins_again() {
    for second in [false, true] {
        let words = words();
        let table = table(&words);
        let key = Key::new(&[1; 8]);
        let mut seen = controls(&table, &key);
        // The other thread is stopped while its lane is busy.
        let bucket = if second { key.second(2) } else { key.first(2) };
        let mut entry = table.entry(bucket, 0, 0).unwrap();
        assert!(entry.change(control::at(0, key.tag())));
        if !second {
            seen[0] = FULL;
        }
        assert!(matches!(insert(&table, &key, seen), Attempt::Again));
        assert!(table.find(&key).is_none());
        assert!(!table.erase(&key));
        let fill = |value: &[AtomicU64]| value[0].store(7, Relaxed);
        assert!(table.find_or_insert(&key, fill).unwrap().1);
        assert_eq!((table.count(), table.indices(0).count()), (1, 1));
        assert!(table.at(entry.index).is_none());
        table.clear();
        assert!(table.find_or_insert(&key, fill).unwrap().1);
        // The other thread goes on.
        key.write(entry.key);
        entry.value[0].store(8, Relaxed);
        assert!(!entry.publish());
        let (found, is_new) = table.find_or_insert(&key, fill).unwrap();
        assert_eq!((found.value[0].load(Relaxed), is_new, table.count()), (7, false, 1));
        assert!(table.erase(&key));
        assert_eq!(controls(&table, &key).map(|control| control & (CHANGE - 1)), [0, 0]);
    }
}

#[test]
fn a_value_that_is_being_written_for_too_long_is_written_anew() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    table.find_or_insert(&key, |_| {}).unwrap();
    let mut writer = table.find(&key).unwrap();
    assert!(writer.lock());
    assert!(table.find_or_insert(&key, |_| {}).unwrap().1);
    assert!(!writer.publish());
    assert_eq!(table.count(), 1);
}

#[test]
fn threads_that_end_while_they_insert_cost_their_lanes_only() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    for ended in 0..LANES {
        let mut entry = table.entry(key.first(2), ended, controls(&table, &key)[0]).unwrap();
        assert!(entry.change(control::at(ended, key.tag())));
        assert!(table.find_or_insert(&key, |_| {}).unwrap().1);
        assert!(table.erase(&key));
    }
    // The first bucket has no lane left, and the second one is as new.
    for other in
        (0..100u64).filter(|other| Key::new(&other.to_le_bytes()).first(2) == key.first(2)).take(LANES)
    {
        assert!(table.find_or_insert(&Key::new(&other.to_le_bytes()), |_| {}).unwrap().1);
    }
    assert!(table.find_or_insert(&key, |_| {}).is_none());
}

#[test]
fn a_key_is_found_whatever_else_has_its_tag() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    let same = |other: &u64| {
        let bytes = other.to_le_bytes();
        let other = Key::new(&bytes);
        (other.tag(), other.first(2)) == (key.tag(), key.first(2))
    };
    let others: Vec<u64> = (0..10_000).filter(same).take(5).collect();
    for other in &others {
        table.find_or_insert(&Key::new(&other.to_le_bytes()), |_| {}).unwrap();
    }
    assert!(table.find(&key).is_none());
    assert!(table.find_or_insert(&key, |_| {}).unwrap().1);
    for other in &others {
        let bytes = other.to_le_bytes();
        let found = Key::new(&bytes);
        assert!(found.is_in(table.find(&found).unwrap().key));
    }
    assert!(key.is_in(table.find(&key).unwrap().key));
    assert_eq!((others.len(), table.count()), (5, 6));
}

#[test]
fn what_is_read_while_the_entry_changes_is_refused() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    let (entry, _) = table.find_or_insert(&key, |_| {}).unwrap();
    assert!(entry.is_unchanged());
    let mut writer = table.find(&key).unwrap();
    assert!(writer.lock());
    assert!(!entry.is_unchanged());
    assert!(writer.publish());
    assert!(!entry.is_unchanged());
    let reader = table.find(&key).unwrap();
    assert!(table.erase(&key));
    table.find_or_insert(&key, |_| {}).unwrap();
    assert!(!reader.is_unchanged());
    let mut late = reader;
    assert!(!late.lock());
}

#[test]
fn a_new_entry_is_seen_with_its_value() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    let fill = |value: &[AtomicU64]| {
        assert_eq!(table.count(), 0);
        value[0].store(7, Relaxed);
    };
    let (entry, _) = table.find_or_insert(&key, fill).unwrap();
    assert_eq!(entry.value[0].load(Relaxed), 7);
    assert_eq!(table.count(), 1);
}

#[test]
fn a_value_that_changes_while_it_is_read_is_read_again() {
    let words = words();
    let table = table(&words);
    let key = Key::new(&[1; 8]);
    table.find_or_insert(&key, |_| {}).unwrap();
    let change = |to| {
        let mut writer = table.find(&key).unwrap();
        assert!(writer.lock());
        writer.value[0].store(to, Relaxed);
        assert!(writer.publish());
    };
    for changes in [0, 1, 5, TRIES - 1, TRIES, usize::MAX] {
        let (mut reads, mut found) = (0, 0);
        let whole = table.read(&key, |value| {
            found = value[0].load(Relaxed);
            reads += 1;
            if reads <= changes {
                change(reads as u64);
            }
            true
        });
        assert_eq!((whole, reads), (Some(changes < TRIES), TRIES.min(changes.saturating_add(1))));
        assert!(changes >= TRIES || changes == 0 || found == changes as u64);
    }
    // An entry that is erased meanwhile is no longer there.
    assert_eq!(table.read(&key, |_| table.erase(&key)), None);
}

#[test]
fn a_value_is_whole_even_if_the_version_has_come_round() {
    let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let table = Table {
        words: &words,
        buckets: 2,
        bucket_words: 32,
        key_words: 1,
        entry_words: 4,
        lanes: LANES,
        recency: None,
    };
    let key = Key::new(&[1; 8]);
    let fill = |words: &[AtomicU64], byte: u8| {
        words.iter().for_each(|word| word.store(u64::from_le_bytes([byte; 8]), Relaxed));
    };
    table.find_or_insert(&key, |words| fill(words, 1)).unwrap();
    let mut bytes = [0; 16];
    let mut reads = 0;
    let whole = table.read(&key, |value| {
        crate::key::copy(&value[..1], &mut bytes[..8]);
        if reads == 0 {
            // As many changes as there are versions: a lock and its end are two.
            for byte in 0..128 {
                let mut writer = table.find(&key).unwrap();
                assert!(writer.lock());
                fill(writer.value, byte);
                assert!(writer.publish());
            }
        }
        reads += 1;
        crate::key::copy(&value[1..], &mut bytes[8..]);
        crate::key::is_copy(value, &bytes)
    });
    assert_eq!((whole, bytes, reads), (Some(true), [127; 16], 2));
}
