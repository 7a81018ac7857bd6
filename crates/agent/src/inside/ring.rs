//! The ring of a context: only this thread writes records to it, and one reader reads them.
//!
//! In: the context that the thread has claimed. Out: room for a record of a given size, or none;
//! records that the reader sees.

use core::sync::atomic::Ordering;

use super::settings;
use layout::{ABANDONED, Context, Control, Header, LOST_MARK, state};

/// How often to check for room before the thread announces that it waits.
const SPINS_BEFORE_WAITING: u32 = 200;
/// Checks for room per check of the reader itself.
const GLANCE: u32 = 1 << 12;
/// TSC ticks without a sign of life after which the reader is considered dead.
const READER_TIMEOUT_TICKS: u64 = 1 << 35;

/// A ring, with its current write position.
pub(super) struct Ring<'a> {
    context: &'a Context,
    control: &'a Control,
    head: u64,
    /// The size in bytes: a power of two.
    size: u64,
}

impl Ring<'_> {
    /// The ring of a context.
    ///
    /// # Safety
    /// This thread has claimed the context, and its ring is mapped.
    pub(super) unsafe fn of(context: &Context) -> Ring<'_> {
        let size = context.ring_size.load(Ordering::Relaxed);
        let control = context.control.load(Ordering::Relaxed) as *const Control;
        // SAFETY: a context that can be claimed holds the address of its ring's control line, which
        // stays as long as the ring.
        let control = unsafe { &*control };
        Ring { context, control, head: context.head.load(Ordering::Relaxed), size }
    }

    /// Publishes the records up to `head` to the reader.
    pub(super) fn publish(&self, head: u64) {
        self.context.head.store(head, Ordering::Relaxed);
        self.control.head.0.store(head, Ordering::Release);
    }

    /// Finds room for a record of `size` bytes, a multiple of 8. Returns its address and the `head`
    /// behind it. Writes a mark for records lost before. `None`: there is no room, or no reader.
    pub(super) fn find_room(&self, size: u64, lossless: bool) -> Option<(*mut u8, u64)> {
        let ring = self.context.ring.load(Ordering::Relaxed) as *mut u8;
        let lost = self.control.lost.0.load(Ordering::Relaxed);
        let owed = lost.wrapping_sub(self.context.marked.load(Ordering::Relaxed));
        let marked = if owed == 0 { 0 } else { LOST_MARK as u64 };
        let begin = self.head + marked;
        let place = begin & self.size.wrapping_sub(1);
        let left = self.size.wrapping_sub(place);
        let skipped = if left < size { left } else { 0 };
        let wanted = marked + skipped + size;
        let has_room = self.has(wanted) || (lossless && self.wait(wanted));
        if !has_room {
            // Make the ring look full, so that the next hit rereads the tail.
            self.context.seen_tail.store(self.head.wrapping_sub(self.size), Ordering::Relaxed);
            return None;
        }
        if marked > 0 {
            let mark = ring.wrapping_add((self.head & self.size.wrapping_sub(1)) as usize).cast::<[u32; 2]>();
            // SAFETY: these bytes are free and belong to this thread; all positions are multiples
            // of 8.
            unsafe { mark.write([state::LOST, u32::try_from(owed).unwrap_or(u32::MAX)]) };
            self.context.marked.store(lost, Ordering::Relaxed);
        }
        if skipped == 0 {
            return Some((ring.wrapping_add(place as usize), begin + size));
        }
        let header = ring.wrapping_add(place as usize).cast::<Header>();
        // SAFETY: the rest of the ring has at least 8 bytes, is free and belongs to this thread.
        unsafe {
            (*header).status.store(state::SKIP, Ordering::Release);
        }
        Some((ring, begin + skipped + size))
    }

    /// Counts a record that had no room.
    pub(super) fn lose(&self) {
        let lost = &self.control.lost.0;
        lost.store(lost.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Whether this many bytes are free.
    fn has(&self, bytes: u64) -> bool {
        // After records were dropped without a reader, the tail may be outside of the ring.
        let free = |tail: u64| {
            let free = self.size.checked_sub(self.head.wrapping_sub(tail));
            free.is_some_and(|free| free >= bytes)
        };
        if free(self.context.seen_tail.load(Ordering::Relaxed)) {
            return true;
        }
        let tail = self.control.tail.0.load(Ordering::Acquire);
        self.context.seen_tail.store(tail, Ordering::Relaxed);
        free(tail)
    }

    /// Waits until this many bytes are free. Returns `false` if there is no reader or the ring is
    /// too small.
    ///
    /// The thread makes no system call: it polls, and announces that it waits. The tracer then
    /// keeps it stopped until there is room.
    pub(super) fn wait(&self, bytes: u64) -> bool {
        if bytes > self.size {
            return false;
        }
        let waiter = &self.control.waiter.0;
        let mut reader = Reader::new();
        for look in 0u32.. {
            let has_room = self.has(bytes);
            if has_room || self.is_in_vain() || look % GLANCE == 0 && reader.is_gone() {
                waiter.store(0, Ordering::Relaxed);
                return has_room;
            }
            if look == SPINS_BEFORE_WAITING {
                waiter.store(self.context.holder.load(Ordering::Relaxed).into(), Ordering::Relaxed);
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Whether threads are not to wait for room.
    fn is_in_vain(&self) -> bool {
        settings::identity().must_not_wait.load(Ordering::Relaxed) != 0
            || self.control.tail.0.load(Ordering::Relaxed) == ABANDONED
    }
}

/// The reader, as a waiting thread observes it.
struct Reader {
    /// The last sign of life, and when it was first seen.
    sign: u64,
    since: u64,
}

impl Reader {
    fn new() -> Reader {
        Reader { sign: settings::reader(), since: counter() }
    }

    /// Whether the reader is known to be dead, has no sign of life, or has shown none for long; the
    /// last is announced to all threads of the process. (If it only slept, its next sign differs.)
    fn is_gone(&mut self) -> bool {
        let sign = settings::reader();
        let dead = &settings::identity().dead;
        if sign == ABANDONED || sign != 0 && sign == dead.load(Ordering::Relaxed) {
            return true;
        }
        if sign != self.sign {
            *self = Reader { sign, since: counter() };
        } else if counter().wrapping_sub(self.since) > READER_TIMEOUT_TICKS {
            dead.store(sign, Ordering::Relaxed);
            return true;
        }
        false
    }
}

/// The time stamp counter.
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it, and handlers have read it before.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Waits for room; the body of [`super::entry::dprobes_wait`].
pub(super) unsafe extern "C" fn wait(context: *mut Context, bytes: u64) -> u64 {
    // SAFETY: compiled code passes the context that this thread has claimed, which has a ring then.
    unsafe { Ring::of(&*context) }.wait(bytes).into()
}
