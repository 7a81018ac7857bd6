//! The rings of one address space: memory shared by the process and the tracer alone.
//!
//! ```text
//!     0               a Control for each ring
//!     whole pages     the rings, of the same size each
//! ```
//!
//! The process may write anything there at any moment. The tracer writes one word of each Control,
//! and marks records as dropped whose instructions have faulted.

use std::cell::RefCell;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use layout::{ABANDONED, CONTROL, Control, PAGE, state};
use rings::Ring;

use super::shared::Shared;

#[derive(Debug)]
pub(crate) struct Rings {
    shared: Shared,
    count: u32,
    ring_size: u64,
    /// Their address in the process.
    base: u64,
    pid: i32,
    /// The armings copied to the process: number, and how much higher their sites are there.
    moved: RefCell<Vec<(u32, u64)>>,
}

/// Bytes before the first ring.
fn controls(count: u32) -> u64 {
    (u64::from(count) * CONTROL).next_multiple_of(PAGE)
}

impl Rings {
    /// The size of so many rings with their Controls.
    pub(crate) fn bytes(count: u32, ring_size: u64) -> u64 {
        controls(count) + u64::from(count) * ring_size
    }

    /// Maps rings in a memory file of that size, all zeros, which the process has at `base`.
    ///
    /// # Errors
    /// The tracer has no addresses left.
    pub(crate) fn of(file: &File, base: u64, count: u32, ring_size: u64, pid: i32) -> io::Result<Rings> {
        let shared = Shared::map_file(file, Self::bytes(count, ring_size) as usize)?;
        Ok(Rings { shared, count, ring_size, base, pid, moved: RefCell::default() })
    }

    #[cfg(test)]
    pub(crate) fn unshared(count: u32, ring_size: u64) -> Rings {
        let file = process::shared_memory(Self::bytes(count, ring_size)).expect("memory");
        Rings::of(&File::from(file), 0x7000_0000_0000, count, ring_size, 0).expect("addresses")
    }

    /// Whether the process has this memory at their address, and not another file. `read` reads
    /// eight bytes of the process. Nobody may use them yet.
    pub(crate) fn are_in_process(&self, read: impl FnOnce(u64) -> Option<[u8; 8]>) -> bool {
        let [first, ..] = self.shared.words(0, 1) else { return false };
        let mark = RandomState::new().hash_one(self.base);
        first.store(mark, Ordering::SeqCst);
        let found = read(self.base);
        first.store(0, Ordering::SeqCst);
        found == Some(mark.to_ne_bytes())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Adds an arming that was copied to the process: number, and how much higher its sites are
    /// there.
    pub(crate) fn add_moved(&self, moved: (u32, u64)) {
        self.moved.borrow_mut().push(moved);
    }

    /// The address in the process of a site of an arming, which has `address` where it was planned.
    #[inline]
    pub(crate) fn site(&self, address: u64, arming: u32) -> u64 {
        if arming == 0 {
            return address;
        }
        let moved = self.moved.borrow();
        let by = moved.iter().find(|(number, _)| *number == arming).map_or(0, |&(_, by)| by);
        address.wrapping_add(by)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of each: a power of two.
    pub(crate) fn size(&self) -> u64 {
        self.ring_size
    }

    /// Their address in the process, and the size of all.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.base, self.shared.size() as u64)
    }

    /// The offset of a ring in the memory.
    pub(crate) fn offset(&self, number: u32) -> usize {
        (controls(self.count) + u64::from(number) * self.ring_size) as usize
    }

    /// Where a ring is in the memory.
    pub(crate) fn ring(&self, number: u32) -> Ring {
        Ring { place: self.offset(number), size: self.ring_size }
    }

    pub(crate) fn address(&self, number: u32) -> u64 {
        self.base + self.offset(number) as u64
    }

    pub(crate) fn control_address(&self, number: u32) -> u64 {
        self.base + u64::from(number) * CONTROL
    }

    fn word(&self, number: u32, field: usize) -> Option<&AtomicU64> {
        let offset = (number < self.count).then(|| number as usize * CONTROL as usize + field);
        self.shared.words(offset?, 1).first()
    }

    /// Bytes ever put into a ring, according to the process.
    pub(crate) fn head(&self, number: u32) -> u64 {
        self.word(number, offset_of!(Control, head)).map_or(0, |head| head.load(Ordering::Acquire))
    }

    /// Records ever lost in a ring for want of room, according to the process.
    pub(crate) fn lost(&self, number: u32) -> u64 {
        self.word(number, offset_of!(Control, lost)).map_or(0, |lost| lost.load(Ordering::Acquire))
    }

    /// Tells the process how many bytes of a ring were ever read; ABANDONED: no more will be.
    pub(crate) fn tell(&self, number: u32, tail: u64) {
        if let Some(word) = self.word(number, offset_of!(Control, tail)) {
            word.store(tail, Ordering::Release);
        }
    }

    /// What [`Rings::tell`] has told.
    pub(crate) fn told(&self, number: u32) -> u64 {
        self.word(number, offset_of!(Control, tail)).map_or(ABANDONED, |tail| tail.load(Ordering::Relaxed))
    }

    /// The id of the thread that waits for room in a ring, according to the process.
    pub(crate) fn waiter(&self, number: u32) -> Option<u32> {
        let waiter = self.word(number, offset_of!(Control, waiter))?.load(Ordering::Relaxed);
        u32::try_from(waiter).ok().filter(|&waiter| waiter != 0)
    }

    /// Nobody reads any more, at least for long: waiting threads go on, and their records are
    /// dropped.
    pub(crate) fn abandon(&self) {
        (0..self.count).for_each(|number| self.tell(number, ABANDONED));
    }

    /// Drops the record whose state is at an address of the process, if it waits for its
    /// instruction.
    pub(crate) fn drop_record(&self, address: u64) {
        let rings = controls(self.count)..self.shared.size() as u64;
        let offset = address.checked_sub(self.base).filter(|offset| rings.contains(offset));
        if let Some(offset) = offset {
            self.drop_at(offset as usize);
        }
    }

    /// The same, given the offset in the memory.
    pub(crate) fn drop_at(&self, offset: usize) {
        let Some(word) = self.shared.half(offset) else { return };
        let status = word.load(Ordering::Relaxed);
        if status & state::BITS == state::TENTATIVE {
            let dropped = status & !state::BITS | state::DROPPED;
            let _ = word.compare_exchange(status, dropped, Ordering::Release, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn set_head(&self, number: u32, head: u64) {
        let word = self.word(number, offset_of!(Control, head)).expect("it is there");
        word.store(head, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn set_lost(&self, number: u32, lost: u64) {
        self.word(number, offset_of!(Control, lost)).expect("it is there").store(lost, Ordering::Release);
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // A process that still has them, because it could not be stopped, must not wait.
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::LEAST_RING;

    #[test]
    fn only_what_waits_in_a_ring_is_dropped() {
        let rings = Rings::unshared(3, LEAST_RING);
        let word = |offset: usize| rings.shared().half(offset).expect("it is there");
        let of = |state| layout::status(state, 0, 24);
        word(rings.offset(1)).store(of(state::TENTATIVE), Ordering::Relaxed);
        word(0).store(state::TENTATIVE, Ordering::Relaxed);
        let (base, size) = rings.span();
        for address in [base, base - 8, base + size, rings.address(1) + 2, 0, u64::MAX, rings.address(1)] {
            rings.drop_record(address);
        }
        assert_eq!(word(rings.offset(1)).load(Ordering::Relaxed), of(state::DROPPED));
        assert_eq!(word(0).load(Ordering::Relaxed), state::TENTATIVE, "that is no ring");
        word(rings.offset(2)).store(of(state::COMMITTED), Ordering::Relaxed);
        rings.drop_record(rings.address(2));
        assert_eq!(word(rings.offset(2)).load(Ordering::Relaxed), of(state::COMMITTED));
    }
    #[test]
    fn another_file_in_the_process_is_noticed() {
        let rings = Rings::unshared(1, LEAST_RING);
        let first = |shared: &Shared| Some(shared.words(0, 1)[0].load(Ordering::SeqCst).to_ne_bytes());
        let other = Rings::unshared(1, LEAST_RING);
        assert!(rings.are_in_process(|place| first(rings.shared()).filter(|_| place == rings.span().0)));
        assert!(!rings.are_in_process(|_| first(other.shared())));
        assert!(!rings.are_in_process(|_| None), "it cannot be read");
        assert_eq!(first(rings.shared()), Some([0; 8]), "nothing is left there");
    }
}
