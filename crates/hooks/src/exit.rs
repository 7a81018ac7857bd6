//! An exit: what is called, in which order, under which conditions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Error;
use crate::arguments::ARGUMENTS;
use crate::c::Record;
use crate::head::Head;
use crate::registry;

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

type Function = dyn Fn(&Invocation<'_>, &[usize; ARGUMENTS]) -> Verdict + Send + Sync;

/// What is called.
pub(crate) enum Callee {
    /// A Rust function.
    Rust(Box<Function>),
    /// The function of a C record, and the record, which is its owner's.
    C(crate::c::Exit, *mut Record),
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

/// An exit that is about to be registered.
#[derive(Debug)]
pub struct Builder {
    head: &'static Head,
    name: String,
    priority: Priority,
    conditions: Conditions,
    callee: Callee,
}

impl Builder {
    pub(crate) fn new(head: &'static Head, function: Box<Function>) -> Builder {
        Builder {
            head,
            name: String::new(),
            priority: Priority::default(),
            conditions: Conditions::default(),
            callee: Callee::Rust(function),
        }
    }

    /// Its name, by which it is listed.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// Where it stands.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = priority;
        self
    }

    /// What holds while it runs.
    #[must_use]
    pub fn conditions(mut self, conditions: Conditions) -> Builder {
        self.conditions = conditions;
        self
    }

    /// Registers it (GKH_register of the paper). It is not called before it is armed.
    ///
    /// # Errors
    /// [`Error::Exclusive`], [`Error::FirstTaken`], [`Error::LastTaken`], or [`Error::UnknownHook`] after the hook was
    /// deleted.
    pub fn register(self) -> Result<Exit, Error> {
        let entry = Entry {
            head: self.head,
            name: self.name,
            priority: self.priority,
            conditions: self.conditions,
            callee: self.callee,
            gone: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        };
        Ok(Exit { entry: registry::register(self.head, entry)? })
    }
}

/// Whether an exit that was deregistered is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// No thread is inside of it.
    Complete,
    /// No thread comes to it any more, but some may still be inside: it was deregistered from inside of an exit, which
    /// does not wait.
    Pending,
}

/// A registered exit. Dropping it deregisters it.
#[derive(Debug)]
pub struct Exit {
    pub(crate) entry: Arc<Entry>,
}

impl Exit {
    /// Makes it dispatchable. The hook's sites become active with its first armed exit.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] after its hook was deleted; [`Error::Text`].
    pub fn arm(&self) -> Result<(), Error> {
        arm_all(&[self])
    }

    /// Makes it not dispatchable. The hook's sites become dormant with its last. A thread that is inside of it, or has
    /// just begun a hit, may still call it.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] after its hook was deleted.
    pub fn disarm(&self) -> Result<(), Error> {
        disarm_all(&[self])
    }

    /// Whether it is armed.
    pub fn is_armed(&self) -> bool {
        registry::is_armed(&self.entry)
    }

    /// Runs that ended by a panic, which was caught: the exit is disarmed by the first.
    pub fn panics(&self) -> u64 {
        self.entry.panics.load(Ordering::Relaxed)
    }

    /// Disarms it and takes it away. Returns when no thread is inside of it, unless this is called from inside of an exit.
    pub fn deregister(self) -> Departure {
        registry::deregister(&self.entry).unwrap_or(Departure::Complete)
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        let _ = registry::deregister(&self.entry);
    }
}

/// Arms exits of any hooks at once (GKH_arm of the paper): each hit of any of the hooks sees all of them armed, or none.
///
/// # Errors
/// As for [`Exit::arm`]; then none is armed.
pub fn arm_all(exits: &[&Exit]) -> Result<(), Error> {
    registry::arm(&exits.iter().map(|exit| &*exit.entry).collect::<Vec<_>>())
}

/// Disarms exits of any hooks at once (GKH_disarm of the paper).
///
/// # Errors
/// As for [`Exit::disarm`]; then none is disarmed.
pub fn disarm_all(exits: &[&Exit]) -> Result<(), Error> {
    registry::disarm(&exits.iter().map(|exit| &*exit.entry).collect::<Vec<_>>())
}
