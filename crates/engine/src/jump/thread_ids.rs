//! The numbers of each thread, where its handlers can read them without a system call ([`layout::thread_id`]).
//!
//! A thread gets them before it runs the first time in an address space with jumps: a new one at its first stop, one that is there already as it goes
//! on after all were held. They say who it is whatever it does with its stack and with fs. Where the kernel does not know such
//! descriptors (it was built without 32-bit programs), or the program has made its own, the thread is not told, and its records say that it is of its process.

use layout::thread_id;
use process::{OwnSegment, Stopped};

use crate::tracer::Tracer;

impl Tracer<'_> {
    /// A thread is about to run: tells it its numbers, if its handlers may ask for them.
    pub(crate) fn tell_ids(&mut self, thread: &Stopped) {
        let Some(tracked) = self.threads.get_mut(&thread.tid()).filter(|tracked| !tracked.has_ids) else {
            return;
        };
        let space = tracked.space.and_then(|number| self.spaces.get(&number));
        if space.is_none_or(|space| space.ground.is_none()) {
            return;
        }
        tracked.has_ids = true;
        if let Some(own) = thread.inner_id() {
            set(thread, thread_id::THREAD, own);
        }
        set(thread, thread_id::PROCESS, tracked.identity.pid as u32);
    }
}

/// Takes the numbers away from a thread that is let go. A new one may have its parent's.
pub(crate) fn take_ids(thread: &Stopped) {
    for place in [thread_id::THREAD, thread_id::PROCESS] {
        if thread.own_segment(place).is_some_and(is_ours) {
            // It fails only if the thread was killed.
            let _ = thread.set_own_segment(place, None);
        }
    }
}

fn is_ours(segment: OwnSegment) -> bool {
    thread_id::is_number(segment.base, segment.flags)
}

/// Writes a number, unless the program has a segment there.
fn set(thread: &Stopped, place: u16, number: u32) {
    if thread.own_segment(place).is_none_or(is_ours) {
        let (limit, flags) = thread_id::describe(number);
        // It fails where the kernel has no such segments: then nothing is told.
        let _ = thread.set_own_segment(place, Some(OwnSegment { base: 0, limit, flags }));
    }
}
