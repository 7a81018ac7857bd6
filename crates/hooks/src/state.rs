//! What a hit reads of its hook: the chain of armed exits, the threads inside, and the gate.
//!
//! A *chain* never changes. Arming and disarming create a new one with the next *version*; the
//! version in effect is one number for all hooks. A hit reads that number once, then takes the
//! newest chain that is not newer. So storing the number arms exits of several hooks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::entry::{Arming, Entry};
use crate::readers::Readers;

/// The version in effect.
pub(crate) static VERSION: AtomicU64 = AtomicU64::new(0);

/// The armed exits of a hook, in order.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) version: u64,
    pub(crate) exits: Box<[Armed]>,
    /// Whether an exit requires a quiesced hook.
    pub(crate) quiesced: bool,
    /// The previous chain. Used only by hits that began before this chain's version was in effect,
    /// and kept as long as there are any.
    pub(crate) previous: *const Chain,
}

/// An exit in a chain.
#[derive(Debug)]
pub(crate) struct Armed {
    pub(crate) entry: Arc<Entry>,
    pub(crate) arming: Arc<Arming>,
}

/// The state of a hook.
#[derive(Debug)]
pub(crate) struct State {
    /// The newest chain; null if nothing has been armed yet.
    pub(crate) chain: AtomicPtr<Chain>,
    pub(crate) readers: Readers,
    pub(crate) gate: Gate,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            chain: AtomicPtr::new(std::ptr::null_mut()),
            readers: Readers::default(),
            gate: Gate { holder: AtomicU32::new(0) },
        }
    }

    /// The chain in effect for a hit that begins now. The thread has counted itself into `readers`,
    /// so the chain lives as long as it is inside.
    #[inline]
    pub(crate) fn chain(&self) -> Option<&Chain> {
        let version = VERSION.load(Ordering::SeqCst);
        let mut chain: *const Chain = self.chain.load(Ordering::SeqCst);
        // SAFETY: a chain is freed only after every thread that was inside since its replacement
        // has left, and this thread is inside. A chain's predecessor is not replaced before the
        // chain is in effect.
        while let Some(found) = unsafe { chain.as_ref() } {
            if found.version <= version {
                return Some(found);
            }
            chain = found.previous;
        }
        None
    }
}

/// Gives one thread exclusive use of a hook.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The number of that thread; 0: the gate is open.
    holder: AtomicU32,
}

impl Gate {
    /// Whether a thread may pass.
    #[inline]
    pub(crate) fn is_open_for(&self, thread: u32) -> bool {
        let holder = self.holder.load(Ordering::SeqCst);
        holder == 0 || holder == thread
    }

    /// Whether a thread holds the gate.
    pub(crate) fn is_held_by(&self, thread: u32) -> bool {
        self.holder.load(Ordering::SeqCst) == thread
    }

    /// Waits until the gate is open. It may be closed again by then.
    #[cold]
    pub(crate) fn wait(&self) {
        let holder = self.holder.load(Ordering::SeqCst);
        if holder != 0 {
            futex(&self.holder, libc::FUTEX_WAIT, holder);
        }
    }

    /// Closes the gate for all other threads, as soon as it is open. `thread`: the number of this
    /// thread.
    pub(crate) fn close(&self, thread: u32) -> Closed<'_> {
        while self.holder.compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.wait();
        }
        Closed(self)
    }
}

/// A gate closed by this thread; dropping it opens the gate.
#[derive(Debug)]
pub(crate) struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.holder.store(0, Ordering::SeqCst);
        futex(&self.0.holder, libc::FUTEX_WAKE, i32::MAX as u32);
    }
}

/// Waits while a word holds a value, or wakes the waiters.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let no_time = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives longer than the call. The caller repeats a wait that ends early.
    unsafe {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_time);
    }
}
