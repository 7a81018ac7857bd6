//! An exit as it is held: what is called, in which order, under which conditions; and what C shows of it.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arguments::ARGUMENTS;
use crate::head::Head;

/// Where an exit stands among those of its hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others; there is one such exit at most.
    First,
    /// After all others; there is one such exit at most.
    Last,
    /// The only exit.
    Only,
    /// Behind those that are there, but before the last.
    #[default]
    Unspecified,
    /// Before those that are there, but behind the first (QUEUE_LIFO of the original).
    Lifo,
}

/// What holds while an exit runs (the entry conditions of the paper, as a process can have them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// No other thread is at the hook: none is inside of any of its exits, and those that come to it wait until this hit is
    /// over. The original stops all processors; other threads of the process that do not come to the hook run on.
    pub quiesced: bool,
    /// All signals are blocked for this thread, except those of its own faults, which cannot be.
    pub signals_blocked: bool,
}

/// What an exit answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 0: the next exit is called.
    Continue,
    /// 1: no further exit is called for this hit.
    Terminate,
    /// -1: no further exit is called, and the hooked function returns this code, if the site is one of
    /// [`hook_ret!`](crate::hook_ret).
    Return(isize),
}

/// The hit that an exit is called for.
#[derive(Debug)]
pub struct Invocation<'a> {
    pub(crate) head: &'a Head,
    pub(crate) arming: &'a Arming,
}

impl Invocation<'_> {
    /// The hook.
    pub fn hook(&self) -> &Head {
        self.head
    }

    /// Disarms the exit that was called: no thread calls it from now on. With [`Conditions::quiesced`], being called and
    /// being disarmed are one: no other thread can be in it meanwhile.
    pub fn disarm(&self) {
        self.arming.end();
    }
}

/// One time that an exit is armed, from arming to disarming.
///
/// An exit that ends its own arming is passed over at once, in every chain that has it. One that is disarmed from outside is
/// still called by the hits that have begun with a chain that has it: they see all of a list.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    ended: AtomicBool,
    /// Whether it is disarmed from outside, and the chain without it counts.
    taken_out: AtomicBool,
}

impl Arming {
    /// Ended by the exit itself.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ended from outside: a chain without it counts. Only then its record is changed.
    pub(crate) fn take_out(&self) {
        self.taken_out.store(true, Ordering::SeqCst);
    }

    /// The exit's record does not say that it is armed: if the exit itself has changed that, its arming has ended.
    pub(crate) fn found_unarmed(&self) {
        if !self.taken_out.load(Ordering::SeqCst) {
            self.end();
        }
    }
}

pub(crate) type Function = dyn Fn(&Invocation<'_>, &[usize; ARGUMENTS]) -> Verdict + Send + Sync;

/// What is called.
pub(crate) enum Callee {
    /// A Rust function.
    Rust(Box<Function>),
    /// The function of a C record, and the record, which is its owner's.
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
    pub(crate) head: *const Head,
    pub(crate) name: String,
    pub(crate) priority: Priority,
    pub(crate) conditions: Conditions,
    pub(crate) callee: Callee,
    /// Whether it was deregistered: its record, if it has one, may be gone.
    pub(crate) gone: AtomicBool,
    /// Runs that ended by a panic.
    pub(crate) panics: AtomicU64,
    /// Hits that it was not called for: see [`crate::ExitInfo::missed`].
    pub(crate) missed: AtomicU64,
}

// SAFETY: a Rust function is `Send` and `Sync`; what is done with a record is atomic (`c`), and its owner keeps it as long as it is
// registered and promises that its function may be called on any thread.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Whether an exit that was deregistered is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// No thread is inside of it.
    Complete,
    /// No thread comes to it any more, but some may still be inside: it was deregistered from inside of an exit, which
    /// does not wait.
    Pending,
}

/// An exit in C. It is passed the hook; at a site that can return a code, a pointer to that; and then the hook's arguments.
pub type CExit = unsafe extern "C-unwind" fn();

/// `struct hook_rec`: what a caller registers.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    /// The function.
    pub hook_exit: Option<CExit>,
    /// The next of a list that is armed, disarmed or deregistered together.
    pub hook_next: *mut Record,
    /// The flags: priority and conditions as wanted, and whether it is armed.
    pub hook_flags: AtomicU32,
    /// Its place among the hook's exits, from 1 on.
    pub hook_index: AtomicU32,
    /// The hook; set by registering.
    pub hook_head: AtomicPtr<Head>,
    /// Its name, or null.
    pub hook_exit_name: *const c_char,
    /// The caller's own.
    pub hook_context: *mut c_void,
    /// The library's own; 0 where it is not registered.
    pub(crate) hook_entry: AtomicPtr<Entry>,
}
