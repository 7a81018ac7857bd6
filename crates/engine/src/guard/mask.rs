//! Keeps SIGTRAP unblocked in threads that block all signals for a moment: threads that create
//! others, start, or end.
//!
//! If a thread hits a trap while it blocks SIGTRAP, the kernel resets the handler, and if the
//! tracer is killed before it has installed the handler again, the process dies. Calls of a libc
//! that are recognised leave SIGTRAP out themselves (`blocks`). Elsewhere the tracer takes SIGTRAP
//! out of the thread's mask before it hits a trap:
//!
//! * for a new thread or process, and for its parent, at the stops that its creation causes anyway;
//! * for other threads at their system calls, but only after certain traps: those after which a
//!   thread once hit the next trap with all signals blocked. They are few, and other threads are
//!   not affected.
//!
//! This is done only if *all* signals are blocked, except perhaps one that the libc takes in all
//! its threads. Only the libc does that, and it sets its former mask afterwards without reading the
//! current one. A program that blocks all signals (`sigfillset`) leaves out the libc's two: its
//! mask is not changed.

use crate::signal::SIGTRAP_BIT;

mod threads;

/// The mask of a thread that blocks everything that can be blocked.
const EVERYTHING: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// Of glibc's two internal signals (32 and 33), the one by which threads change their ids together.
const SIGSETXID: u64 = 1 << (33 - 1);

/// Stops at system calls after such a trap, two for each call. A thread that makes more calls
/// blocks nothing.
const STOPS: u32 = 16;

/// Traps remembered, at most; a libc has three or four.
const MAX_TRAPS: usize = 32;

/// Whether a thread with this mask blocked all signals before a trap unblocked SIGTRAP.
pub(super) fn blocks_everything(mask: u64) -> bool {
    mask | SIGTRAP_BIT | SIGSETXID == EVERYTHING
}

/// A libc's internal signals, which it may leave out when it blocks all: glibc has two (32 and 33),
/// musl three.
const OWN: u64 = 7 << (32 - 1);

/// Whether a signal set in a libc's code contains everything that can be blocked, except the libc's
/// internal signals.
pub(super) fn is_of_a_libc(set: u64) -> bool {
    set | OWN | !EVERYTHING == !0
}

/// The traps after which a thread has hit another with all signals blocked.
#[derive(Clone, Debug, Default)]
pub(super) struct MaskingTraps(Vec<u64>);

impl MaskingTraps {
    /// Notes that a thread has hit this trap and then another with all signals blocked.
    pub(super) fn note(&mut self, trap: u64) {
        if !self.0.contains(&trap) && self.0.len() < MAX_TRAPS {
            self.0.push(trap);
        }
    }

    /// At how many stops at system calls a thread is checked after it hit this trap.
    fn stops_after(&self, trap: u64) -> u32 {
        if self.0.contains(&trap) { STOPS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_blocks_by_itself_is_no_moment_of_the_libcs() {
        // SAFETY: a set is plain bytes, and the call fills it.
        let filled = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut set);
            std::mem::transmute_copy::<libc::sigset_t, u64>(&set)
        };
        assert!(blocks_everything(EVERYTHING) && blocks_everything(EVERYTHING & !SIGTRAP_BIT));
        // What glibc blocks in a thread that starts.
        assert!(blocks_everything(0xffff_fffe_fffb_feff) && blocks_everything(0xffff_fffe_fffb_feef));
        assert!(
            !blocks_everything(filled) && !blocks_everything(filled & EVERYTHING) && !blocks_everything(0)
        );
    }

    #[test]
    fn a_libcs_set_has_all_but_its_own_signals() {
        // The constant of glibc, its set at the end of a thread, and the two sets of musl.
        let sets = [!0, 0xffff_fffe_ffff_ffff, 0xffff_fffc_7fff_ffff];
        assert!(sets.into_iter().all(is_of_a_libc));
        let others = [!SIGTRAP_BIT, !0 >> 1, !(1 << (libc::SIGUSR1 - 1)), 0, 1 << 32];
        assert!(!others.into_iter().any(is_of_a_libc));
    }

    #[test]
    fn only_few_traps_are_remembered() {
        let mut preludes = MaskingTraps::default();
        (0..1000).for_each(|trap| preludes.note(trap % 100));
        assert_eq!(
            (preludes.0.len(), preludes.stops_after(5), preludes.stops_after(99)),
            (MAX_TRAPS, STOPS, 0)
        );
    }
}
