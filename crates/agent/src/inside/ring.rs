//! The ring of a context: this thread alone puts records in, and one reader takes them out.

use core::sync::atomic::Ordering;

use super::{kernel, settings};
use crate::layout::{ABANDONED, Context, HEADER, Header, RING_SIZE, state};

/// Looks at the reader's progress that a thread takes before it lets others run.
const LOOKS: u32 = 1000;

/// The ring, behind the records that are in it.
pub(super) struct Ring<'a> {
    context: &'a Context,
    head: u64,
}

impl Ring<'_> {
    /// The ring of a context that this thread has claimed.
    pub(super) fn of(context: &Context) -> Ring<'_> {
        Ring { context, head: context.head.load(Ordering::Relaxed) }
    }

    /// Finds room for a record of `size` bytes, a multiple of 8: its place, and the value of `head` behind it. `None`: there is
    /// no room, or nobody reads any more.
    pub(super) fn room(&self, size: u64, lossless: bool) -> Option<(*mut u8, u64)> {
        let ring = self.context.ring.load(Ordering::Relaxed) as *mut u8;
        let place = self.head % RING_SIZE;
        let left = RING_SIZE - place;
        let skipped = if left < size { left } else { 0 };
        let has_room = self.has(skipped + size) || (lossless && self.wait(skipped + size));
        if !has_room || self.context.tail.0.load(Ordering::Relaxed) == ABANDONED {
            return None;
        }
        if skipped == 0 {
            return Some((ring.wrapping_add(place as usize), self.head + size));
        }
        let header = ring.wrapping_add(place as usize).cast::<Header>();
        // SAFETY: the rest of the ring is at least 8 bytes long, free, and this thread's.
        unsafe {
            (&raw mut (*header).size).write(skipped as u32);
            (*header).state.store(state::SKIP, Ordering::Release);
        }
        Some((ring, self.head + skipped + size))
    }

    /// Whether so many bytes are free.
    fn has(&self, bytes: u64) -> bool {
        let free = |tail: u64| RING_SIZE.wrapping_sub(self.head.wrapping_sub(tail)) >= bytes;
        if free(self.context.seen_tail.load(Ordering::Relaxed)) {
            return true;
        }
        let tail = self.context.tail.0.load(Ordering::Acquire);
        self.context.seen_tail.store(tail, Ordering::Relaxed);
        tail == ABANDONED || free(tail)
    }

    /// Waits until so many bytes are free. `false`: there will never be.
    pub(super) fn wait(&self, bytes: u64) -> bool {
        if bytes > RING_SIZE {
            return false;
        }
        let mut looks = 0;
        while !self.has(bytes) {
            looks += 1;
            if looks < LOOKS || !settings::yields() {
                core::hint::spin_loop();
            } else {
                kernel::yield_processor();
            }
        }
        true
    }
}

/// Waits for room: what [`super::entry::dprobes_wait`] does.
pub(super) unsafe extern "C" fn wait(context: *mut Context, bytes: u64) {
    // SAFETY: compiled code passes the context that this thread has claimed.
    Ring::of(unsafe { &*context }).wait(bytes);
}

/// Bytes of a record with so many of data.
pub(super) fn record_size(data: usize) -> u64 {
    (HEADER + data).next_multiple_of(8) as u64
}
