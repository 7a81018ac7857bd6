//! A moment in the life of all rings, and whether the reader has come so far.
//!
//! A handler that runs at that moment may not have logged yet. It has its context claimed: what it logs is there as soon as the
//! context is free, or has more records.

use std::mem::offset_of;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;

use agent::layout::Context;

use super::contexts::Contexts;

/// What had been logged at a moment.
#[derive(Debug, Default)]
pub(crate) struct Mark(Vec<Ring>);

/// One ring.
#[derive(Debug)]
struct Ring {
    /// Gone, if nobody can log there any more and all is read.
    contexts: Weak<Contexts>,
    number: u32,
    /// Bytes that had been put in.
    head: u64,
    /// Whether a handler that ran then may still put a record behind.
    claimed: bool,
}

/// Bytes that were put into a ring.
fn head(contexts: &Contexts, number: u32) -> u64 {
    contexts.word(number, offset_of!(Context, head)).map_or(0, |head| head.load(Ordering::Acquire))
}

/// Whether a handler has a context.
fn is_claimed(contexts: &Contexts, number: u32) -> bool {
    let claim = contexts.half(number, offset_of!(Context, claim));
    claim.is_some_and(|claim| claim.load(Ordering::Acquire) != 0)
}

impl Mark {
    /// Notes what is in the rings of these contexts now.
    pub(crate) fn add(&mut self, contexts: &Rc<Contexts>) {
        for number in 0..contexts.count() {
            // In this order: what a context that is free has logged is below the head.
            let claimed = is_claimed(contexts, number);
            let head = head(contexts, number);
            self.0.push(Ring { contexts: Rc::downgrade(contexts), number, head, claimed });
        }
    }

    /// Whether the reader has passed all of it. `tail` says how far it has come in a ring; nothing, if it does not read that
    /// any more.
    pub(crate) fn is_passed(&mut self, tail: impl Fn(&Contexts, u32) -> Option<u64>) -> bool {
        self.0.retain_mut(|ring| {
            let Some(contexts) = ring.contexts.upgrade() else { return false };
            if ring.claimed {
                let free = !is_claimed(&contexts, ring.number);
                let head = head(&contexts, ring.number);
                (ring.claimed, ring.head) = (!free && head == ring.head, head);
            }
            let passed = |tail: u64| tail.wrapping_sub(ring.head).cast_signed() >= 0;
            ring.claimed || !tail(&contexts, ring.number).is_none_or(passed)
        });
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::layout::LEAST_RING;

    #[test]
    fn what_runs_at_the_moment_is_waited_for() {
        let contexts = Rc::new(Contexts::new(0x1000_0000, 1, LEAST_RING).expect("memory"));
        let head = |number: u32| contexts.word(number, offset_of!(Context, head)).expect("there");
        let claim = |number: u32| contexts.half(number, offset_of!(Context, claim)).expect("there");
        head(0).store(800, Ordering::Relaxed);
        claim(1).store(1, Ordering::Relaxed);
        claim(2).store(1, Ordering::Relaxed);
        let mut mark = Mark::default();
        mark.add(&contexts);
        // Of ring 0, what comes later does not count.
        head(0).store(8000, Ordering::Relaxed);
        assert!(!mark.is_passed(|_, ring| Some(if ring == 0 { 720 } else { 0 })));
        assert!(!mark.is_passed(|_, ring| Some(if ring == 0 { 800 } else { 0 })), "two have not logged yet");
        // One ends without a record; the other one's context is taken again, behind its record.
        claim(1).store(0, Ordering::Relaxed);
        head(2).store(80, Ordering::Relaxed);
        assert!(!mark.is_passed(|_, _| Some(0)));
        assert!(mark.is_passed(|_, ring| Some(if ring == 2 { 80 } else { 0 })));
        // What is not read any more is not waited for.
        let mut mark = Mark::default();
        claim(2).store(0, Ordering::Relaxed);
        mark.add(&contexts);
        assert!(mark.is_passed(|_, _| None));
    }
}
