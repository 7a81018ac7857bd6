//! The contents of a map, as the reader gets them.

/// An entry of a map, added up over all processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key in its stored form; empty if the map has no keys.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A plain value in its stored form.
    Bytes(Vec<u8>),
    /// What a count, a sum, a minimum or a maximum amounts to.
    Number(u64),
    /// An average.
    Avg {
        /// How many numbers there were.
        count: u64,
        /// Their sum.
        sum: u64,
    },
    /// Statistics.
    Stats {
        /// How many numbers there were.
        count: u64,
        /// Their sum.
        sum: u64,
    },
    /// The buckets of a histogram. The first one is for what is below the second one.
    Buckets(Vec<u64>),
    /// Intervals of time by their beginnings in nanoseconds, and their numbers.
    Series(Vec<(i64, Option<u64>)>),
}
