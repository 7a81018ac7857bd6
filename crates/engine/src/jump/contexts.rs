//! The contexts that the handlers of one address space work in.
//!
//! They are the process's private memory, below 2 GiB; the kernel zeroes them in a forked child.
//! The tracer accesses them only while a thread is stopped, and does not trust what it reads.

use std::mem::offset_of;

use layout::{CONTEXT_SIZE, Context, PAGE, claim};
use process::Memory;

use super::rings::Rings;

/// The most contexts that belong to one processor each; further processors use the shared ones.
const OWN: usize = 64;
/// Shared contexts: about as many threads are preempted in handlers at once.
const SHARED: u32 = 16;

/// The place and number of the contexts in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contexts {
    base: u64,
    /// How many (the first ones) belong to one processor each.
    own: u32,
}

impl Contexts {
    /// Bytes of all contexts on a machine with so many processors.
    pub(crate) fn size(processors: usize) -> u64 {
        (processors.min(OWN) as u64 + u64::from(SHARED)) * CONTEXT_SIZE
    }

    pub(crate) fn at(base: u64, processors: usize) -> Contexts {
        Contexts { base, own: processors.min(OWN) as u32 }
    }

    /// The same number at another address.
    pub(crate) fn moved(self, base: u64) -> Contexts {
        Contexts { base, ..self }
    }

    /// The address of the first.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn count(&self) -> u32 {
        self.own + SHARED
    }

    /// Their address and size.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.base, u64::from(self.count()) * CONTEXT_SIZE)
    }

    /// How many belong to one processor each, and how many behind them are shared.
    pub(crate) fn kinds(&self) -> (u32, u32) {
        (self.own, SHARED)
    }

    /// Memory in the contexts that is unused before the first hit.
    pub(crate) fn scratch(&self) -> u64 {
        self.base + PAGE
    }

    /// The address of a field of a context.
    fn address(&self, number: u32, field: usize) -> u64 {
        self.base + u64::from(number) * CONTEXT_SIZE + field as u64
    }

    pub(crate) fn are_mapped(&self, memory: &Memory) -> bool {
        memory.peek(self.base, &mut [0]).is_ok()
    }

    /// Gives each context its ring; from now on they can be claimed. `tid` is a thread of the
    /// process. Returns whether it succeeded.
    pub(crate) fn give(&self, tid: i32, rings: &Rings) -> bool {
        let fields: Vec<Vec<u8>> = (0..self.count())
            .map(|number| {
                let words = [rings.address(number), rings.size(), rings.control_address(number)];
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            })
            .collect();
        let free = claim::FREE.to_le_bytes();
        let mut pieces: Vec<(u64, &[u8])> = Vec::with_capacity(2 * fields.len());
        for (number, fields) in (0..).zip(&fields) {
            pieces.push((self.address(number, offset_of!(Context, ring)), fields));
            pieces.push((self.address(number, offset_of!(Context, claim)), &free));
        }
        process::write_each(tid, &pieces).is_ok()
    }

    /// Reads a context's claim, holder and site.
    fn look(&self, memory: &Memory, number: u32) -> Option<(u32, u32, u64)> {
        const _: () = assert!(offset_of!(Context, holder) == 0 && offset_of!(Context, claim) == 4);
        const _: () = assert!(offset_of!(Context, site) == 8);
        let mut bytes = [0; 16];
        memory.peek(self.address(number, 0), &mut bytes).ok()?;
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let site = u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + byte]));
        Some((half(4), half(0), site))
    }

    /// If this stack pointer is in the agent's stack of a context: the site address stored in that
    /// context.
    pub(crate) fn site_of_stack(&self, memory: &Memory, rsp: u64) -> Option<u64> {
        // The stack starts at the end of its context, so the end itself belongs to it.
        let place = rsp.checked_sub(self.base)?.checked_sub(1)?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.look(memory, number)?.2)
    }

    /// The same, given the address of a context.
    pub(crate) fn site_at(&self, memory: &Memory, context: u64) -> Option<u64> {
        let place = context.checked_sub(self.base).filter(|place| place.is_multiple_of(CONTEXT_SIZE))?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.look(memory, number)?.2)
    }

    /// Whether a handler has claimed a context.
    pub(crate) fn is_claimed(&self, memory: &Memory, number: u32) -> bool {
        self.look(memory, number).is_some_and(|(state, ..)| state == claim::TAKEN)
    }

    /// The sites of all threads that are in handlers with a context.
    pub(crate) fn claimed(&self, memory: &Memory) -> Vec<u64> {
        let looked = (0..self.count()).filter_map(|number| self.look(memory, number));
        looked.filter(|(state, ..)| *state == claim::TAKEN).map(|(.., site)| site).collect()
    }

    /// Gives back the contexts of a thread that has ended.
    pub(crate) fn give_back(&self, memory: &Memory, tid: i32) {
        for number in 0..self.count() {
            if let Some((claim::TAKEN, holder, _)) = self.look(memory, number)
                && holder == tid as u32
            {
                // It fails only if the process is gone.
                let _ =
                    memory.poke(self.address(number, offset_of!(Context, claim)), &claim::FREE.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contexts in this process's memory, accessed as the tracer does.
    struct Own(Contexts, Memory, #[expect(dead_code, reason = "it is the memory")] Vec<u64>);

    impl Own {
        fn new() -> Own {
            let contexts = Contexts::at(0, 2);
            let words = vec![0u64; (contexts.span().1 + CONTEXT_SIZE) as usize / 8];
            let base = (words.as_ptr() as u64).next_multiple_of(CONTEXT_SIZE);
            let memory = Memory::open(std::process::id() as i32).expect("own memory");
            Own(Contexts::at(base, 2), memory, words)
        }

        fn poke(&self, number: u32, field: usize, value: u64) {
            self.1.poke(self.0.address(number, field), &value.to_le_bytes()).expect("own memory");
        }
    }

    #[test]
    fn a_stack_tells_the_site() {
        let own = Own::new();
        let (contexts, memory, base) = (own.0, &own.1, own.0.base());
        own.poke(2, offset_of!(Context, site), 0x4711);
        let end = base + 3 * CONTEXT_SIZE;
        assert_eq!(contexts.site_of_stack(memory, end), Some(0x4711), "an empty stack");
        assert_eq!(contexts.site_of_stack(memory, end - 1000), Some(0x4711));
        assert_eq!(contexts.site_of_stack(memory, end + 8), Some(0));
        assert_eq!(contexts.site_of_stack(memory, base - 8), None);
        assert_eq!(contexts.site_of_stack(memory, base + 18 * CONTEXT_SIZE + 8), None);
        assert_eq!(contexts.site_at(memory, base + 2 * CONTEXT_SIZE), Some(0x4711));
        assert_eq!(contexts.site_at(memory, base + 2 * CONTEXT_SIZE + 8), None);
        assert_eq!(contexts.site_at(memory, base + 18 * CONTEXT_SIZE), None);
    }

    #[test]
    fn a_killed_threads_context_is_given_back() {
        let own = Own::new();
        let (contexts, memory) = (own.0, &own.1);
        let taken = |tid: u64| u64::from(claim::TAKEN) << 32 | tid;
        own.poke(0, 0, taken(5));
        own.poke(3, 0, taken(7));
        own.poke(2, 0, u64::from(claim::UNUSABLE) << 32 | 7);
        contexts.give_back(memory, 7);
        let claims: Vec<u32> = (0..4).filter_map(|it| contexts.look(memory, it)).map(|it| it.0).collect();
        assert_eq!(claims, [claim::TAKEN, claim::UNUSABLE, claim::UNUSABLE, claim::FREE]);
        assert_eq!(contexts.claimed(memory).len(), 1);
    }

    #[test]
    fn each_gets_its_ring() {
        let own = Own::new();
        let (contexts, memory) = (own.0, &own.1);
        let rings = Rings::unshared(contexts.count(), layout::LEAST_RING);
        assert!(contexts.give(std::process::id() as i32, &rings));
        for number in 0..contexts.count() {
            let mut bytes = [0; 8];
            memory.peek(contexts.address(number, offset_of!(Context, ring)), &mut bytes).expect("own memory");
            assert_eq!(u64::from_le_bytes(bytes), rings.address(number));
            assert_eq!(contexts.look(memory, number), Some((claim::FREE, 0, 0)));
        }
    }
}
