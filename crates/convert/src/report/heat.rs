//! How long calls took, over time: the cells of a heat map for each function.

use super::timeline::{Axis, PARTS};
use crate::event::Event;
use crate::map::Map;
use crate::spans::{Losses, Spans, Step};

/// Most functions with a map of their own.
const MAX_FUNCTIONS: usize = 64;
/// Number of rows: one for each power of two of nanoseconds.
const ROWS: usize = 64;

/// Counts calls by when they ended and how long they took.
#[derive(Debug)]
pub(super) struct Heat {
    spans: Spans,
    axis: Axis,
    functions: Map<u32, Box<[u32]>>,
}

/// A cell that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// The part of the time axis.
    pub(super) part: usize,
    /// The binary logarithm of the nanoseconds.
    pub(super) power: usize,
    /// Number of calls.
    pub(super) count: u32,
}

impl Heat {
    pub(super) fn new(axis: Axis, losses: Losses) -> Heat {
        Heat { spans: Spans::with(losses), axis, functions: Map::default() }
    }

    pub(super) fn record(&mut self, event: &Event<'_>) {
        let (Some(Step::End(span)), Some(function)) = (self.spans.step(event), event.place.function) else {
            return;
        };
        if self.functions.len() >= MAX_FUNCTIONS && !self.functions.contains_key(&function) {
            return;
        }
        let cells = self.functions.entry(function).or_insert_with(|| vec![0; PARTS * ROWS].into());
        let power = span.length.max(1).ilog2() as usize;
        let cell = &mut cells[self.axis.part_of(event.record.time) * ROWS + power];
        *cell = cell.saturating_add(1);
    }

    /// The cells of a function that are not empty.
    pub(super) fn cells(&self, function: u32) -> impl Iterator<Item = Cell> {
        let cells = self.functions.get(&function).map(|cells| &cells[..]).unwrap_or_default();
        let filled = cells.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(place, &count)| Cell { part: place / ROWS, power: place % ROWS, count })
    }
}
