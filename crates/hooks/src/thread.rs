//! What a thread knows of itself: a number, and how many exits it is inside of. None of it allocates or has to be dropped, so that a
//! site can be in a signal handler.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The number of this thread, not 0. Numbers come round again after 2^32 threads.
#[inline]
pub(crate) fn number() -> u32 {
    match NUMBER.get() {
        0 => give_number(),
        number => number,
    }
}

#[cold]
fn give_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = loop {
        match NEXT.fetch_add(1, Ordering::Relaxed) {
            0 => {}
            number => break number,
        }
    };
    NUMBER.set(number);
    number
}

/// Runs `inside` as a part of an exit.
#[inline]
pub(crate) fn inside<R>(inside: impl FnOnce() -> R) -> R {
    /// Leaves the exit, whichever way.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    inside()
}

/// Whether this thread is inside of any exit.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() != 0
}
