//! Per-thread data: a number, and how many exits the thread is inside. It is neither allocated nor
//! dropped, so that sites can be in signal handlers.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The number of this thread, not 0. Numbers wrap around after 2^32 threads.
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

/// Runs `inside` as part of an exit.
#[inline]
pub(crate) fn inside<R>(inside: impl FnOnce() -> R) -> R {
    /// Leaves the exit, also on a panic.
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

/// Whether this thread is inside any exit.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() != 0
}
