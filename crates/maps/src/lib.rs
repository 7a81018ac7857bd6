//! Maps of scripts: hash tables in memory that a probed process and its tracer share.
//!
//! Design constraints: handlers use them in the threads of the probed process, so nothing
//! allocates, blocks or loops without a bound; an update that finds no room, or others in its way
//! for too long, is counted as lost. Threads, the tracer's interpreter and the reader use a table
//! at the same time. The process may write anything into the words at any moment: whatever they
//! contain, no access leaves the map, nothing panics, and what the reader allocates is bounded by
//! the table's size. What a map is ([`MapInfo`]) is in memory that the process cannot write.
//!
//! Aggregates have a copy for each processor, so that updates do not contend for cache lines.
//! Copy 0 has all keys of the map, the others those that were updated on their processors.
//!
//! - `info`: what a map is. `shape`: where its words are.
//! - `control`, `key`, `table`: the hash table of a copy.
//! - `recency`: which entries are evicted where a map is to keep what is used.
//! - `single`: the value of a map without keys.
//! - `value`, `buckets`, `series`: what updates do.
//! - `merge`: what the copies of an entry amount to.
//! - `maps`, `stacks`: what handlers call.
//! - `plan`, `view`: what the tracer calls (feature `std`).

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod buckets;
mod control;
mod info;
mod key;
mod maps;
mod merge;
#[cfg(any(test, feature = "std"))]
mod plan;
mod recency;
mod series;
mod shape;
mod single;
mod stacks;
mod table;
mod value;
#[cfg(any(test, feature = "std"))]
mod view;

#[cfg(test)]
mod tests;

pub use control::{CHANGE, LANES, READY};
pub use info::{Kind, MapInfo};
pub use key::HASH_FACTORS;
pub use maps::Maps;
#[cfg(any(test, feature = "std"))]
pub use plan::{TooLarge, plan};
pub use shape::Places;
#[cfg(any(test, feature = "std"))]
pub use view::{Entry, Value};
