//! Benchmark of maps: nanoseconds per operation, median of rounds that are short enough for most
//! not to be interrupted. `cargo bench -p dprobes-maps --features std`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use dprobes_maps::{Kind, MapInfo, Maps, plan};

/// Operations of a round.
const OPERATIONS: u64 = 1 << 12;
/// Keys in the map.
const KEYS: u64 = 64;

fn measure(name: &str, mut operation: impl FnMut(u64)) {
    let mut rounds: Vec<f64> = (0..2001)
        .map(|_| {
            let begin = Instant::now();
            (0..OPERATIONS).for_each(&mut operation);
            begin.elapsed().as_nanos() as f64 / OPERATIONS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:28} {:6.1} ns", rounds[rounds.len() / 2]);
}

fn main() {
    let info =
        |kind, key, value| MapInfo { kind: kind as u32, key, value, entries: 4096, ..MapInfo::default() };
    let mut infos = [
        info(Kind::Count, 8, 0),
        info(Kind::Count, 0, 0),
        info(Kind::Plain, 8, 8),
        info(Kind::Hist, 8, 0),
        info(Kind::Count, 64, 0),
        info(Kind::Stacks, 256, 0),
        info(Kind::Plain, 8, 64),
        info(Kind::Max, 8, 0),
    ];
    let size = plan(&mut infos, 2, usize::MAX).expect("small maps");
    let words: Vec<AtomicU64> = (0..size).map(|_| AtomicU64::new(0)).collect();
    let maps = Maps { infos: &infos, words: &words };
    let key = |number: u64| (number % KEYS).to_le_bytes();

    let long: Vec<[u8; 128]> = (0..KEYS).map(|number| [number as u8; 128]).collect();
    let word = AtomicU64::new(0);
    measure("an atomic addition", |_| {
        black_box(&word).fetch_add(1, Relaxed);
    });
    measure("count, key of 8 bytes", |number| {
        black_box(maps.update(0, &key(number), 1, 1, 0));
    });
    measure("count, no key", |_| {
        black_box(maps.update(1, &[], 1, 1, 0));
    });
    measure("hist, key of 8 bytes", |number| {
        black_box(maps.update(3, &key(number), number, 1, 0));
    });
    measure("max, key of 8 bytes", |number| {
        black_box(maps.update(7, &key(number), number % 1000, 1, 0));
    });
    measure("count, key of 64 bytes", |number| {
        black_box(maps.update(4, &long[(number % KEYS) as usize][..64], 1, 1, 0));
    });
    measure("put", |number| {
        black_box(maps.put(2, &key(number), number));
    });
    measure("load", |number| {
        black_box(maps.load(2, &key(number)));
    });
    measure("put and erase", |number| {
        black_box(maps.put(2, &key(number + KEYS), number));
        black_box(maps.erase(2, &key(number + KEYS)));
    });
    measure("store of 64 bytes", |number| {
        black_box(maps.store(6, &key(number), &[number as u8; 64]));
    });
    measure("intern of 128 bytes", |number| {
        black_box(maps.intern(5, &long[(number % KEYS) as usize]));
    });
}
