//! Tracks the threads inside a hook: they count themselves in and out, and code that removes
//! something waits until all threads that were inside have left.
//!
//! Threads are spread over several cells so that they do not share a cache line. Each cell has a
//! counter for each of two *phases*. A thread counts itself into the current phase. To wait until
//! all have left, wait until each counter of the other phase has been 0 once, change the phase, and
//! wait for the rest: newly arriving threads cannot prolong the wait.
//!
//! Why that suffices: a thread counts itself in before it reads anything that may be removed, and
//! the removal came before the counters were read, all in one total order (`SeqCst`). A thread that
//! is not in a counter that was read as 0 comes later, and finds the new state.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::thread;

/// The number of cells. More threads than that share cells.
const CELLS: usize = 16;

/// The counters of one cell, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell([AtomicU32; 2]);

/// The threads inside.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    phase: AtomicU32,
    cells: [Cell; CELLS],
}

/// A thread that is inside, with the counter to decrement when it leaves.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a AtomicU32);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Readers {
    /// Counts this thread in.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let phase = self.phase.load(Ordering::Relaxed) % 2;
        let counter = &self.cells[thread::number() as usize % CELLS].0[phase as usize];
        counter.fetch_add(1, Ordering::SeqCst);
        Inside(counter)
    }
}

/// The counters that have not been seen at 0 since something was removed.
#[derive(Debug)]
pub(crate) struct Grace([[bool; 2]; CELLS]);

impl Grace {
    /// Begins a wait, after the removal.
    pub(crate) fn begin() -> Grace {
        Grace([[true; 2]; CELLS])
    }

    /// Reads the counters once. Returns whether all threads that were inside at the beginning have
    /// left.
    pub(crate) fn is_over(&mut self, readers: &Readers) -> bool {
        for (wanted, cell) in self.0.iter_mut().zip(&readers.cells) {
            for (wanted, counter) in wanted.iter_mut().zip(&cell.0) {
                *wanted &= counter.load(Ordering::SeqCst) != 0;
            }
        }
        let present = readers.phase.load(Ordering::Relaxed) as usize % 2;
        let waits = |phase: usize| self.0.iter().any(|wanted| wanted[phase]);
        match (waits(present), waits(1 - present)) {
            (false, false) => true,
            (true, false) => {
                readers.phase.store(1 - present as u32, Ordering::SeqCst);
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_inside_is_waited_for_and_who_comes_later_is_not() {
        let readers = Readers::default();
        let early = readers.enter();
        let mut grace = Grace::begin();
        assert!(!grace.is_over(&readers));
        let late = readers.enter();
        assert!(!grace.is_over(&readers));
        drop(early);
        // `late` may share `early`'s counter until the phase changes; a later thread does not.
        drop(late);
        let later = readers.enter();
        while !grace.is_over(&readers) {}
        drop(later);
    }

    #[test]
    fn those_that_keep_coming_do_not_keep_it_waiting() {
        let readers = Readers::default();
        let mut held = readers.enter();
        let mut grace = Grace::begin();
        for _ in 0..4 {
            if grace.is_over(&readers) {
                return;
            }
            // At least one thread is always inside.
            let next = readers.enter();
            drop(std::mem::replace(&mut held, next));
        }
        panic!("it still waits, for threads that came later");
    }
}
