//! Keeps ledger entries for the memory mapped in an address space, so that it is unmapped if the
//! tracer is killed.
//!
//! Memory is entered after it is mapped, and struck out before it is unmapped. Memory that is
//! mapped at the moment the tracer is killed has no entry and stays.

use std::collections::BTreeMap;

use crate::ledger::{Entered, Mapped};
use crate::module_key::Generation;

mod space;

/// The ledger entries of a space's memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryEntries {
    /// The state of the space when they were made.
    state: Option<State>,
    entered: BTreeMap<Mapped, Entered>,
}

/// Values that change whenever memory is mapped or unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    generation: Generation,
    mappings: usize,
    cells: u64,
    areas: usize,
    parts: [bool; 5],
    guard: usize,
}
