//! What another thread may do between the steps of an insertion, step by step.

use std::vec::Vec;

use super::*;

/// A table of two buckets for keys and values of 8 bytes.
fn words() -> Vec<AtomicU64> {
    (0..48).map(|_| AtomicU64::new(0)).collect()
}

fn table(words: &[AtomicU64]) -> Table<'_> {
    Table { words, buckets: 2, bucket_words: 24, key_words: 1, entry_words: 3 }
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
fn a_key_that_another_thread_is_inserting_is_not_inserted_twice() {
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
        assert!(table.find_or_insert(&key, |_| {}).is_none());
        assert!(table.find(&key).is_none());
        assert!(!table.erase(&key));
        table.clear();
        key.write(entry.key);
        entry.publish();
        assert!(!table.find_or_insert(&key, |_| {}).unwrap().1);
        assert_eq!(table.count(), 1);
    }
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
    writer.publish();
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
        writer.publish();
    };
    for changes in [0, 1, 5, TRIES - 1, TRIES, usize::MAX] {
        let (mut reads, mut found) = (0, 0);
        let whole = table.read(&key, |value| {
            found = value[0].load(Relaxed);
            reads += 1;
            if reads <= changes {
                change(reads as u64);
            }
        });
        assert_eq!((whole, reads), (Some(changes < TRIES), TRIES.min(changes.saturating_add(1))));
        assert!(changes >= TRIES || changes == 0 || found == changes as u64);
    }
    // An entry that is erased meanwhile is no longer there.
    assert_eq!(table.read(&key, |_| assert!(table.erase(&key))), None);
}
