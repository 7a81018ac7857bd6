//! Tests of maps as their users see them.

mod aggregates;
mod buckets;
mod capacity;
mod evicting;
mod model;
mod plain;
mod stacks;
mod threads;
mod words;

use core::sync::atomic::AtomicU64;
use std::vec::Vec;

use crate::{Kind, MapInfo, Maps, plan};

/// Maps and their words.
struct Fixture {
    infos: Vec<MapInfo>,
    words: Vec<AtomicU64>,
}

impl Fixture {
    fn new(mut infos: Vec<MapInfo>, processors: usize) -> Self {
        let size = plan(&mut infos, processors, usize::MAX).expect("small maps");
        Fixture { infos, words: (0..size).map(|_| AtomicU64::new(0)).collect() }
    }

    fn one(kind: Kind, key: u32, value: u32, entries: u32) -> Self {
        Self::new(std::vec![info(kind, key, value, entries)], 4)
    }

    fn maps(&self) -> Maps<'_> {
        Maps { infos: &self.infos, words: &self.words }
    }
}

fn info(kind: Kind, key: u32, value: u32, entries: u32) -> MapInfo {
    MapInfo { kind: kind as u32, key, value, entries, ..MapInfo::default() }
}

/// A key of 8 bytes.
fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}
