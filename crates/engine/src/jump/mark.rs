//! Marks how far all rings are filled at a moment, and tells whether the reader has passed that.
//!
//! A handler that runs at that moment may log later. It has claimed a context: its record is in the
//! ring once the context is free again, or the ring has more records.

use std::rc::{Rc, Weak};

use super::rings::Rings;

/// How far the rings were filled at a moment.
#[derive(Debug, Default)]
pub(crate) struct Mark(Vec<Ring>);

#[derive(Debug)]
struct Ring {
    /// The rings are gone if nobody can log there any more and everything is read.
    rings: Weak<Rings>,
    number: u32,
    /// Bytes that had been put in.
    head: u64,
    /// Whether a handler ran then that may still add a record.
    claimed: bool,
}

impl Mark {
    /// Adds the present state of these rings. `claimed` tells whether a handler has claimed the
    /// context of a ring.
    pub(crate) fn add(&mut self, rings: &Rc<Rings>, claimed: impl Fn(u32) -> bool) {
        for number in 0..rings.count() {
            // In this order: if the context is free, everything that it has logged is below the
            // head read afterwards.
            let claimed = claimed(number);
            self.0.push(Ring { rings: Rc::downgrade(rings), number, head: rings.head(number), claimed });
        }
    }

    /// Whether the reader has passed the mark. `tail` tells the reader's position in a ring, or
    /// nothing if the ring is not read any more; `claimed` tells whether a handler has claimed its
    /// context.
    pub(crate) fn is_passed(
        &mut self,
        tail: impl Fn(&Rings, u32) -> Option<u64>,
        claimed: impl Fn(&Rings, u32) -> bool,
    ) -> bool {
        self.0.retain_mut(|ring| {
            let Some(rings) = ring.rings.upgrade() else { return false };
            if ring.claimed {
                let free = !claimed(&rings, ring.number);
                let head = rings.head(ring.number);
                (ring.claimed, ring.head) = (!free && head == ring.head, head);
            }
            let passed = |tail: u64| tail.wrapping_sub(ring.head).cast_signed() >= 0;
            ring.claimed || !tail(&rings, ring.number).is_none_or(passed)
        });
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::LEAST_RING;
    use std::cell::RefCell;

    #[test]
    fn what_runs_at_the_moment_is_waited_for() {
        let rings = Rc::new(Rings::unshared(3, LEAST_RING));
        let claims = RefCell::new([false, true, true]);
        let is_claimed = |number: u32| claims.borrow()[number as usize];
        rings.set_head(0, 800);
        let mut mark = Mark::default();
        mark.add(&rings, is_claimed);
        let mut passed = |tails: [u64; 3]| {
            mark.is_passed(|_, ring| Some(tails[ring as usize]), |_, ring| is_claimed(ring))
        };
        // Later records in ring 0 do not count.
        rings.set_head(0, 8000);
        assert!(!passed([720, 0, 0]));
        assert!(!passed([800, 0, 0]), "two have not logged yet");
        // One handler ends without a record; the other one's context is claimed again, after its
        // record.
        claims.borrow_mut()[1] = false;
        rings.set_head(2, 80);
        assert!(!passed([0, 0, 0]));
        assert!(passed([0, 0, 80]));
        // Rings that are not read any more are passed.
        let mut mark = Mark::default();
        claims.borrow_mut()[2] = false;
        mark.add(&rings, is_claimed);
        assert!(mark.is_passed(|_, _| None, |_, ring| is_claimed(ring)));
    }
}
