//! Threads that block all signals for a moment: those that start others, begin, or end.
//!
//! A thread that comes to a trap while it blocks SIGTRAP has the kernel take the handler away, and if the tracer is killed before it has set
//! the handler again, the process dies. Where the calls that block are recognised, they leave SIGTRAP out themselves (`blocks`). Elsewhere it is
//! taken out of the mask of such a thread before it comes to a trap:
//!
//! * of a new thread or process, and of its parent, in the stops that a birth is anyway;
//! * of any other in its system calls, which are looked at from the trap before: the one after which a thread has come to a trap with all
//!   signals blocked once. They are few, and nothing of this is done elsewhere.
//!
//! It is done only where *everything* is blocked, but for one signal perhaps that the libc takes in all its threads. That is the libc's own
//! doing, which sets the mask it had before without asking what it is now. A program that blocks all signals (`sigfillset`) leaves out the two
//! that are the libc's: what it blocks is left alone.

use process::Stopped;

use crate::signal::SIGTRAP_BIT;
use crate::tracer::Tracer;

/// The mask of one that blocks everything: what cannot be blocked is not in it.
const EVERYTHING: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// Of glibc's own two signals (32 and 33) the one by which threads change their ids together.
const SIGSETXID: u64 = 1 << (33 - 1);

/// Stops in system calls that are looked at after a trap, two for each: a thread that makes more blocks nothing.
const STOPS: u32 = 16;

/// Traps that are remembered; there are three or four in a libc.
const MOST: usize = 32;

/// Whether a mask is of one that blocked everything before a trap unblocked SIGTRAP for it.
pub(super) fn is_of_one(mask: u64) -> bool {
    mask | SIGTRAP_BIT | SIGSETXID == EVERYTHING
}

/// Signals that a libc may leave out when it blocks everything: its own. glibc has two (32 and 33), musl three.
const OWN: u64 = 7 << (32 - 1);

/// Whether a set that stands in a libc's code is everything that can be blocked, but for what is the libc's own.
pub(super) fn is_of_a_libc(set: u64) -> bool {
    set | OWN | !EVERYTHING == !0
}

/// The traps after which a thread has come to another with everything blocked.
#[derive(Clone, Debug, Default)]
pub(super) struct Preludes(Vec<u64>);

impl Preludes {
    /// A thread that had met this trap has come to another with everything blocked.
    pub(super) fn note(&mut self, trap: u64) {
        if !self.0.contains(&trap) && self.0.len() < MOST {
            self.0.push(trap);
        }
    }

    /// In how many stops a thread is looked at that has met this trap.
    fn stops_after(&self, trap: u64) -> u32 {
        if self.0.contains(&trap) { STOPS } else { 0 }
    }
}

impl Tracer<'_> {
    /// A thread has met a trap: the one that it had met before.
    pub(crate) fn met(&mut self, tid: i32, trap: u64) -> u64 {
        let Some(tracked) = self.threads.get_mut(&tid) else { return 0 };
        let guard = tracked.space.and_then(|space| self.spaces.get(&space)?.guard.as_ref());
        tracked.calls = guard.map_or(0, |guard| guard.preludes.stops_after(trap));
        std::mem::replace(&mut tracked.last_trap, trap)
    }

    /// A thread has stopped as it enters or leaves a system call.
    pub(crate) fn called(&mut self, mut thread: Stopped) {
        let unblocked = self.unblock_trap(&mut thread);
        if let Some(tracked) = self.threads.get_mut(&thread.tid()) {
            tracked.calls = if unblocked { 0 } else { tracked.calls.saturating_sub(1) };
        }
        self.resume(thread, 0);
    }

    /// Takes SIGTRAP out of the mask of a thread that blocks everything, if its process answers traps. Says whether it was so.
    pub(crate) fn unblock_trap(&mut self, thread: &mut Stopped) -> bool {
        let guard = self.space_of(thread.tid()).and_then(|space| space.guard.as_ref());
        let mask = thread.signal_mask().unwrap_or(0);
        guard.is_some_and(|guard| guard.handles)
            && mask & SIGTRAP_BIT != 0
            && is_of_one(mask)
            && thread.set_signal_mask(mask & !SIGTRAP_BIT).is_ok()
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
        assert!(is_of_one(EVERYTHING) && is_of_one(EVERYTHING & !SIGTRAP_BIT));
        // As glibc blocks all in a thread that begins.
        assert!(is_of_one(0xffff_fffe_fffb_feff) && is_of_one(0xffff_fffe_fffb_feef));
        assert!(!is_of_one(filled) && !is_of_one(filled & EVERYTHING) && !is_of_one(0));
    }

    #[test]
    fn a_libcs_set_has_all_but_its_own_signals() {
        // glibc's constant, what it blocks at the end of a thread, and the two of musl.
        let sets = [!0, 0xffff_fffe_ffff_ffff, 0xffff_fffc_7fff_ffff];
        assert!(sets.into_iter().all(is_of_a_libc));
        let others = [!SIGTRAP_BIT, !0 >> 1, !(1 << (libc::SIGUSR1 - 1)), 0, 1 << 32];
        assert!(!others.into_iter().any(is_of_a_libc));
    }

    #[test]
    fn only_few_traps_are_remembered() {
        let mut preludes = Preludes::default();
        (0..1000).for_each(|trap| preludes.note(trap % 100));
        assert_eq!((preludes.0.len(), preludes.stops_after(5), preludes.stops_after(99)), (MOST, STOPS, 0));
    }
}
