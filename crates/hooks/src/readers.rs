//! Who is inside: threads count themselves in and out, and whoever took something away waits until all that were
//! inside have gone.
//!
//! Threads are spread over several cells so that they do not share a cache line. Each cell has two counters, of two
//! *phases*. A thread counts itself into the present phase. To find that all have gone, one waits until each counter of the other
//! phase has been 0 once, changes the phase, and waits for the rest: those that keep coming cannot keep it waiting.
//!
//! Why that is enough: a thread counts itself in before it looks at what may be taken away, and that was taken away before
//! the counters were looked at, all in one order (`SeqCst`). A thread that is not in a counter that was seen at 0 comes
//! later, and finds the new state.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::thread;

/// Cells. More than that many threads share some.
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

/// A thread that is inside: where it has to count itself out.
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

/// The counters that have not been seen at 0 since something was taken away.
#[derive(Debug)]
pub(crate) struct Grace([[bool; 2]; CELLS]);

impl Grace {
    /// Begins, after what is waited for was taken away.
    pub(crate) fn begin() -> Grace {
        Grace([[true; 2]; CELLS])
    }

    /// Looks at the counters once. Whether everybody who was inside at the beginning has gone.
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
        // The late one may share the early one's counter until the phase has changed; a later one does not.
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
            // There is always one inside.
            let next = readers.enter();
            drop(std::mem::replace(&mut held, next));
        }
        panic!("it still waits, for threads that came later");
    }
}
