//! A registered exit, as its owner holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Error;
use crate::entry::{Callee, Conditions, Departure, Entry, Function, Priority};
use crate::head::HookHeader;
use crate::registry;

/// An exit that is about to be registered.
#[derive(Debug)]
pub struct Builder {
    head: &'static HookHeader,
    name: String,
    priority: Priority,
    conditions: Conditions,
    callee: Callee,
}

impl Builder {
    pub(crate) fn new(head: &'static HookHeader, function: Box<Function>) -> Builder {
        Builder {
            head,
            name: String::new(),
            priority: Priority::default(),
            conditions: Conditions::default(),
            callee: Callee::Rust(function),
        }
    }

    /// The name shown in lists.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// Its position among the exits.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = priority;
        self
    }

    /// The conditions while it runs.
    #[must_use]
    pub fn conditions(mut self, conditions: Conditions) -> Builder {
        self.conditions = conditions;
        self
    }

    /// Registers it (GKH_register of the paper). It is not called until it is armed.
    ///
    /// # Errors
    /// [`Error::Exclusive`], [`Error::FirstTaken`], [`Error::LastTaken`], or [`Error::UnknownHook`]
    /// if the hook was deleted.
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

/// A registered exit. Dropping it deregisters it.
#[derive(Debug)]
pub struct Exit {
    pub(crate) entry: Arc<Entry>,
}

impl Exit {
    /// Arms it. The hook's sites become active with its first armed exit.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] if its hook was deleted; [`Error::Text`].
    pub fn arm(&self) -> Result<(), Error> {
        arm_all(&[self])
    }

    /// Disarms it. The hook's sites become dormant with its last armed exit. A thread that is
    /// inside it, or has just begun a hit, may still call it.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] if its hook was deleted.
    pub fn disarm(&self) -> Result<(), Error> {
        disarm_all(&[self])
    }

    /// Whether it is armed.
    pub fn is_armed(&self) -> bool {
        registry::is_armed(&self.entry)
    }

    /// The number of runs that ended in a panic, which was caught; the first disarms the exit.
    pub fn panics(&self) -> u64 {
        self.entry.panics.load(Ordering::Relaxed)
    }

    /// Disarms and deregisters it. Returns when no thread is inside it, unless called from inside
    /// an exit.
    pub fn deregister(self) -> Departure {
        registry::deregister(&self.entry).unwrap_or(Departure::Complete)
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        let _ = registry::deregister(&self.entry);
    }
}

/// Arms exits of any hooks at once (GKH_arm of the paper): each hit of any of the hooks sees all of
/// them armed, or none.
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
