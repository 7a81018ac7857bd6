//! The value of a map without keys: a sequence lock keeps its words together.
//!
//! The lock is even while nobody writes, and each change adds 2 to it.

use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use crate::table::TRIES;

/// Changes the value. False: others changed it for too long.
pub(crate) fn change(lock: &AtomicU64, change: impl FnOnce()) -> bool {
    for _ in 0..TRIES {
        let seen = lock.load(Relaxed);
        let odd = seen | 1;
        if seen & 1 == 0 && lock.compare_exchange(seen, odd, AcqRel, Relaxed).is_ok() {
            fence(Release);
            change();
            lock.store(odd.wrapping_add(1), Release);
            return true;
        }
        spin_loop();
    }
    false
}

/// Reads the value, perhaps several times. `None`: others changed it for too long.
pub(crate) fn read(lock: &AtomicU64, mut read: impl FnMut()) -> Option<()> {
    for _ in 0..TRIES {
        let seen = lock.load(Acquire);
        if seen & 1 == 0 {
            read();
            fence(Acquire);
            if lock.load(Relaxed) == seen {
                return Some(());
            }
        }
        spin_loop();
    }
    None
}
