//! The contexts that handlers of one process and its forked children work in, and their rings.
//!
//! ```text
//!     0                         the contexts, CONTEXT_SIZE bytes each
//!     count * CONTEXT_SIZE      their rings, of the same size each
//! ```

use std::io;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use agent::layout::{ABANDONED, CONTEXT_SIZE, Context, state};

use super::shared::Shared;

/// Contexts that belong to a processor each, at most; the processors behind use those that are shared.
const OWN: usize = 64;
/// Contexts that are shared: as many threads as a rule are preempted in handlers at once.
const SHARED: u32 = 16;

/// The contexts, as the tracer sees them.
#[derive(Debug)]
pub(crate) struct Contexts {
    shared: Rc<Shared>,
    /// How many belong to a processor each: the first ones.
    own: u32,
    /// Where they are in the process.
    base: u64,
    /// Bytes of a ring: a power of two.
    ring_size: u64,
}

impl Contexts {
    /// Bytes of them all, rings of `ring_size` bytes included, where there are so many processors.
    pub(crate) fn size(processors: usize, ring_size: u64) -> u64 {
        (processors.min(OWN) as u64 + u64::from(SHARED)) * (CONTEXT_SIZE + ring_size)
    }

    /// New ones, to be mapped at an address of a process. `ring_size` is a power of two.
    ///
    /// # Errors
    /// There is no memory to share.
    pub(crate) fn new(base: u64, processors: usize, ring_size: u64) -> io::Result<Contexts> {
        let shared = Shared::new(Self::size(processors, ring_size) as usize)?;
        let contexts = Contexts { shared, own: processors.min(OWN) as u32, base, ring_size };
        for number in 0..contexts.count() {
            let ring = base + contexts.ring(number) as u64;
            if let Some(word) = contexts.word(number, offset_of!(Context, ring)) {
                word.store(ring, Ordering::Relaxed);
            }
            if let Some(word) = contexts.word(number, offset_of!(Context, ring_size)) {
                word.store(ring_size, Ordering::Relaxed);
            }
        }
        Ok(contexts)
    }

    /// The memory.
    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// The address of the first.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.own + SHARED
    }

    /// Bytes of a ring: a power of two.
    pub(crate) fn ring_size(&self) -> u64 {
        self.ring_size
    }

    /// Nobody reads any more, or not before long: who waits for room in a ring goes on, and its record is dropped.
    pub(crate) fn abandon(&self) {
        for number in 0..self.count() {
            if let Some(tail) = self.word(number, offset_of!(Context, tail)) {
                tail.store(ABANDONED, Ordering::Release);
            }
        }
    }

    /// How many belong to a processor each, and how many follow that are shared.
    pub(crate) fn kinds(&self) -> (u32, u32) {
        (self.own, SHARED)
    }

    /// A field of 8 bytes of a context.
    pub(crate) fn word(&self, number: u32, field: usize) -> Option<&AtomicU64> {
        self.shared.words(number as usize * CONTEXT_SIZE as usize + field, 1).first()
    }

    /// A field of 4 bytes of a context.
    pub(crate) fn half(&self, number: u32, field: usize) -> Option<&AtomicU32> {
        self.shared.half(number as usize * CONTEXT_SIZE as usize + field)
    }

    /// Where a context's ring is in the memory.
    pub(crate) fn ring(&self, number: u32) -> usize {
        self.count() as usize * CONTEXT_SIZE as usize + number as usize * self.ring_size as usize
    }

    /// The address of the displaced instruction before which the agent works with this stack pointer, if it is on the stack
    /// of a context.
    pub(crate) fn site_of_stack(&self, rsp: u64) -> Option<u64> {
        // The stack begins at the end of its context.
        let place = rsp.checked_sub(self.base)?.checked_sub(1)?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.word(number, offset_of!(Context, site))?.load(Ordering::Relaxed))
    }

    /// The same for the address of a context.
    pub(crate) fn site_at(&self, context: u64) -> Option<u64> {
        let place = context.checked_sub(self.base).filter(|place| place.is_multiple_of(CONTEXT_SIZE))?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.word(number, offset_of!(Context, site))?.load(Ordering::Relaxed))
    }

    /// The displaced instructions before which threads are in handlers that have claimed a context.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = u64> {
        (0..self.count()).filter_map(|number| {
            let claim = self.half(number, offset_of!(Context, claim))?.load(Ordering::Acquire);
            let site = self.word(number, offset_of!(Context, site))?;
            (claim != 0).then(|| site.load(Ordering::Relaxed))
        })
    }

    /// The record whose state is at an address of the process is dropped, if it waits for its instruction.
    pub(crate) fn drop_record(&self, address: u64) {
        let rings = self.ring(0) as u64..self.shared.size() as u64;
        let offset = address.checked_sub(self.base).filter(|offset| rings.contains(offset));
        if let Some(word) = offset.and_then(|offset| self.shared.half(offset as usize)) {
            let _ =
                word.compare_exchange(state::TENTATIVE, state::DROPPED, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Gives the contexts back that a thread had, which is no more.
    pub(crate) fn give_back(&self, tid: i32) {
        for number in 0..self.count() {
            let holder = self.half(number, offset_of!(Context, holder));
            let claim = self.half(number, offset_of!(Context, claim));
            if let (Some(holder), Some(claim)) = (holder, claim)
                && claim.load(Ordering::Acquire) != 0
                && holder.load(Ordering::Relaxed) == tid as u32
            {
                claim.store(0, Ordering::Release);
            }
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // A process that still has them, since it could not be stopped, waits for nobody.
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_tells_the_site() {
        let contexts = Contexts::new(0x1000_0000, 2, agent::layout::RING_SIZE).expect("memory");
        contexts.word(2, offset_of!(Context, site)).expect("it is there").store(0x4711, Ordering::Relaxed);
        let end = 0x1000_0000 + 3 * CONTEXT_SIZE;
        assert_eq!(contexts.site_of_stack(end), Some(0x4711), "an empty stack");
        assert_eq!(contexts.site_of_stack(end - 1000), Some(0x4711));
        assert_eq!(contexts.site_of_stack(end + 8), Some(0));
        assert_eq!(contexts.site_of_stack(0x1000_0000 - 8), None);
        assert_eq!(contexts.site_of_stack(0x1000_0000 + 18 * CONTEXT_SIZE + 8), None);
    }

    #[test]
    fn a_killed_threads_context_is_given_back() {
        let contexts = Contexts::new(0x1000_0000, 2, agent::layout::RING_SIZE).expect("memory");
        for (number, tid) in [(0, 5), (3, 7)] {
            contexts.half(number, offset_of!(Context, claim)).expect("there").store(1, Ordering::Relaxed);
            contexts.half(number, offset_of!(Context, holder)).expect("there").store(tid, Ordering::Relaxed);
        }
        contexts.give_back(7);
        let claims: Vec<u32> = (0..4)
            .map(|number| {
                contexts.half(number, offset_of!(Context, claim)).expect("there").load(Ordering::Relaxed)
            })
            .collect();
        assert_eq!(claims, [1, 0, 0, 0]);
    }
}
