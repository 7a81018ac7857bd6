//! An exit as the registry keeps it: what to call, in which order, under which conditions; and its
//! record in C.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arguments::ARGUMENTS;
use crate::head::HookHeader;

/// The position of an exit among those of its hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others; at most one exit.
    First,
    /// After all others; at most one exit.
    Last,
    /// The only exit.
    Only,
    /// Behind the registered ones, but before the last.
    #[default]
    Unspecified,
    /// Before the registered ones, but behind the first (QUEUE_LIFO of the original).
    Lifo,
}

/// Conditions while an exit runs (the entry conditions of the paper, as far as a process can have
/// them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// No other thread is at the hook: none is inside any of its exits, and arriving threads wait
    /// until this hit is over. The original stops all processors; here threads that do not reach
    /// the hook run on.
    pub quiesced: bool,
    /// All signals of this thread are blocked, except those of its own faults, which cannot be.
    pub signals_blocked: bool,
}

/// The result of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 0: call the next exit.
    Continue,
    /// 1: call no further exit for this hit.
    Terminate,
    /// -1: call no further exit, and the hooked function returns this code, if the site is a
    /// [`hook_ret!`](crate::hook_ret).
    Return(isize),
}

/// The hit that an exit is called for.
#[derive(Debug)]
pub struct Invocation<'a> {
    pub(crate) head: &'a HookHeader,
    pub(crate) arming: &'a Arming,
}

impl Invocation<'_> {
    /// The hook.
    pub fn hook(&self) -> &HookHeader {
        self.head
    }

    /// Disarms the exit that was called: no thread calls it from now on. With
    /// [`Conditions::quiesced`], call and disarming are atomic: no other thread can be in it
    /// meanwhile.
    pub fn disarm(&self) {
        self.arming.end();
    }
}

/// One period in which an exit is armed.
///
/// If the exit ends it itself, it is skipped at once in every chain. If it is disarmed from
/// outside, hits that began with a chain that has it still call it: they see all exits of a list.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    ended: AtomicBool,
    /// Whether it was disarmed from outside, and a chain without it is in effect.
    taken_out: AtomicBool,
}

impl Arming {
    /// Ends it from the exit itself.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ends it from outside, once a chain without it is in effect. Only then its record is changed.
    pub(crate) fn take_out(&self) {
        self.taken_out.store(true, Ordering::SeqCst);
    }

    /// Called if the exit's record does not say ARMED: if the exit itself cleared that, ends the
    /// arming.
    pub(crate) fn found_unarmed(&self) {
        if !self.taken_out.load(Ordering::SeqCst) {
            self.end();
        }
    }
}

pub(crate) type Function = dyn Fn(&Invocation<'_>, &[usize; ARGUMENTS]) -> Verdict + Send + Sync;

/// The function to call.
pub(crate) enum Callee {
    /// A Rust function.
    Rust(Box<Function>),
    /// The function of a C record, and the record, which belongs to the caller.
    C(CExit, *mut Record),
}

impl fmt::Debug for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Callee::Rust(_) => "Rust",
            Callee::C(..) => "C",
        })
    }
}

/// An exit as the registry and the chains hold it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: *const HookHeader,
    pub(crate) name: String,
    pub(crate) priority: Priority,
    pub(crate) conditions: Conditions,
    pub(crate) callee: Callee,
    /// Whether it was deregistered; then its C record may be freed.
    pub(crate) gone: AtomicBool,
    /// The number of runs that ended in a panic.
    pub(crate) panics: AtomicU64,
    /// The number of hits that skipped it: see [`crate::ExitInfo::missed`].
    pub(crate) missed: AtomicU64,
}

// SAFETY: a Rust function is `Send` and `Sync`; records are accessed atomically (`c`), and the
// owner keeps a record as long as it is registered and promises that its function may be called on
// any thread.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Whether a deregistered exit is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// No thread is inside it.
    Complete,
    /// No thread enters it any more, but some may still be inside: it was deregistered from inside
    /// an exit, which does not wait.
    Pending,
}

/// An exit in C. Its arguments are the hook; at a site that can return a code, a pointer to that
/// code; then the hook's arguments.
pub type CExit = unsafe extern "C-unwind" fn();

/// `struct hook_rec`: what a caller registers.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    /// The function.
    pub hook_exit: Option<CExit>,
    /// The next record of a list to arm, disarm or deregister together.
    pub hook_next: *mut Record,
    /// Flags: requested priority and conditions, and whether it is armed.
    pub hook_flags: AtomicU32,
    /// Its position among the hook's exits, from 1.
    pub hook_index: AtomicU32,
    /// The hook; set by registering.
    pub hook_head: AtomicPtr<HookHeader>,
    /// Its name, or null.
    pub hook_exit_name: *const c_char,
    /// For the caller's use.
    pub hook_context: *mut c_void,
    /// For the library's use; null if not registered.
    pub(crate) hook_entry: AtomicPtr<Entry>,
}
