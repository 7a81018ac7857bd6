//! The contexts that handlers of one address space work in.
//!
//! They are private memory of the process, below 2 GiB, zeroed by the kernel in a forked child. The
//! tracer reads and writes them as it does any memory of the process, while a thread is stopped;
//! what it reads is input.

use std::mem::offset_of;

use layout::{CONTEXT_SIZE, Context, PAGE, claim};
use process::Memory;

use super::rings::Rings;

/// Contexts that belong to a processor each, at most; the processors behind use those that are
/// shared.
const OWN: usize = 64;
/// Contexts that are shared: as many threads as a rule are preempted in handlers at once.
const SHARED: u32 = 16;

/// Where the contexts are in a process, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contexts {
    /// The address of the first.
    base: u64,
    /// How many belong to a processor each: the first ones.
    own: u32,
}

impl Contexts {
    /// Bytes of them all, where there are so many processors.
    pub(crate) fn size(processors: usize) -> u64 {
        (processors.min(OWN) as u64 + u64::from(SHARED)) * CONTEXT_SIZE
    }

    /// Those that begin at an address.
    pub(crate) fn at(base: u64, processors: usize) -> Contexts {
        Contexts { base, own: processors.min(OWN) as u32 }
    }

    /// As many, at another address.
    pub(crate) fn moved(self, base: u64) -> Contexts {
        Contexts { base, ..self }
    }

    /// The address of the first.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.own + SHARED
    }

    /// Their address, and their bytes.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.base, u64::from(self.count()) * CONTEXT_SIZE)
    }

    /// How many belong to a processor each, and how many follow that are shared.
    pub(crate) fn kinds(&self) -> (u32, u32) {
        (self.own, SHARED)
    }

    /// Memory in them of which nothing is used before the first hit.
    pub(crate) fn scratch(&self) -> u64 {
        self.base + PAGE
    }

    /// Where a field of a context is.
    fn address(&self, number: u32, field: usize) -> u64 {
        self.base + u64::from(number) * CONTEXT_SIZE + field as u64
    }

    /// Whether they are mapped.
    pub(crate) fn are_mapped(&self, memory: &Memory) -> bool {
        memory.peek(self.base, &mut [0]).is_ok()
    }

    /// Gives each its ring: from now on they can be claimed. `tid` is a thread of the process. Says
    /// whether it was done.
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

    /// A context's claim, its holder and its site.
    fn look(&self, memory: &Memory, number: u32) -> Option<(u32, u32, u64)> {
        const _: () = assert!(offset_of!(Context, holder) == 0 && offset_of!(Context, claim) == 4);
        const _: () = assert!(offset_of!(Context, site) == 8);
        let mut bytes = [0; 16];
        memory.peek(self.address(number, 0), &mut bytes).ok()?;
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let site = u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + byte]));
        Some((half(4), half(0), site))
    }

    /// The address of the displaced instruction before which the agent works with this stack
    /// pointer, if it is on the stack of a context.
    pub(crate) fn site_of_stack(&self, memory: &Memory, rsp: u64) -> Option<u64> {
        // The stack begins at the end of its context.
        let place = rsp.checked_sub(self.base)?.checked_sub(1)?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.look(memory, number)?.2)
    }

    /// The same for the address of a context.
    pub(crate) fn site_at(&self, memory: &Memory, context: u64) -> Option<u64> {
        let place = context.checked_sub(self.base).filter(|place| place.is_multiple_of(CONTEXT_SIZE))?;
        let number = u32::try_from(place / CONTEXT_SIZE).ok().filter(|&number| number < self.count())?;
        Some(self.look(memory, number)?.2)
    }

    /// Whether a handler has a context.
    pub(crate) fn is_claimed(&self, memory: &Memory, number: u32) -> bool {
        self.look(memory, number).is_some_and(|(state, ..)| state == claim::TAKEN)
    }

    /// The displaced instructions before which threads are in handlers that have claimed a context.
    pub(crate) fn claimed(&self, memory: &Memory) -> Vec<u64> {
        let looked = (0..self.count()).filter_map(|number| self.look(memory, number));
        looked.filter(|(state, ..)| *state == claim::TAKEN).map(|(.., site)| site).collect()
    }

    /// Gives the contexts back that a thread had, which is no more.
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

    /// Contexts in the memory of this process, as a tracer sees them.
    struct Own(Contexts, Memory, #[expect(dead_code, reason = "it is the memory")] Vec<u64>);

    impl Own {
        fn new() -> Own {
            let contexts = Contexts::at(0, 2);
            let words = vec![0u64; (contexts.place().1 + CONTEXT_SIZE) as usize / 8];
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
