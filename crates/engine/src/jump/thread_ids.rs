//! Gives each thread its ids where its handlers can read them without a system call
//! ([`layout::thread_id`]).
//!
//! A thread gets them before it first runs in an address space with jumps: a new thread at its
//! first stop, an existing one when it is resumed after all were held. They are right whatever the
//! thread does with its stack and with fs. If the kernel has no such segment descriptors (it was
//! built without 32-bit programs), or the program uses them itself, the thread gets none, and its
//! records show the process's id instead.

use layout::thread_id;
use process::{OwnSegment, Stopped};

mod threads;

/// Removes the ids from a thread that is let go. A new thread may have inherited its parent's.
pub(crate) fn take_ids(thread: &Stopped) {
    for place in [thread_id::THREAD, thread_id::PROCESS] {
        if thread.own_segment(place).is_some_and(is_ours) {
            // Fails only if the thread was killed.
            let _ = thread.set_own_segment(place, None);
        }
    }
}

fn is_ours(segment: OwnSegment) -> bool {
    thread_id::is_number(segment.base, segment.flags)
}

/// Writes an id, unless the program has a segment of its own there.
fn set(thread: &Stopped, place: u16, number: u32) {
    if thread.own_segment(place).is_none_or(is_ours) {
        let (limit, flags) = thread_id::describe(number);
        // Fails if the kernel has no such segments: the thread then has no ids.
        let _ = thread.set_own_segment(place, Some(OwnSegment { base: 0, limit, flags }));
    }
}
