//! The numbers of traces and spans.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::facts::TraceFacts;

/// Makes numbers, the same ones for the same trace.
#[derive(Clone, Debug)]
pub(super) struct Ids(DefaultHasher);

impl Ids {
    /// For a trace of a machine.
    pub(super) fn new(host: &str, known: &TraceFacts) -> Ids {
        let mut hasher = DefaultHasher::new();
        (host, known.start, known.monotonic, known.times).hash(&mut hasher);
        Ids(hasher)
    }

    /// The number of the span that begins with a record. 0 is none.
    pub(super) fn span(&self, record: u64) -> [u8; 8] {
        self.number(record, 0).max(1).to_be_bytes()
    }

    /// The number of the trace that begins with a record. 0 is none.
    pub(super) fn trace(&self, record: u64) -> [u8; 16] {
        let halves = (u128::from(self.number(record, 1)) << 64) | u128::from(self.number(record, 2));
        halves.max(1).to_be_bytes()
    }

    fn number(&self, record: u64, kind: u8) -> u64 {
        let mut hasher = self.0.clone();
        (record, kind).hash(&mut hasher);
        hasher.finish()
    }
}
