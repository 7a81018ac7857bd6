//! What was told already, and is not told again.

use std::collections::HashSet;

use crate::losses::Losses;
use crate::observer::Note;
use crate::tracer::Tracer;

/// What was told.
#[derive(Default)]
pub(crate) struct Told {
    /// Notes that are told once in a session.
    notes: HashSet<String>,
    /// The programs whose waiting for a module was told.
    pub(crate) waiting: HashSet<usize>,
    pub(crate) losses: Losses,
}

impl Told {
    /// Whether something is told for the first time, by what tells it from other things.
    pub(crate) fn is_new(&mut self, key: String) -> bool {
        self.notes.insert(key)
    }

    /// A program is forgotten.
    pub(crate) fn forget(&mut self, program: usize) {
        self.waiting.remove(&program);
        self.losses.forget(program);
    }
}

impl Tracer<'_> {
    /// Tells a note, once in a session.
    pub(crate) fn tell_once(&mut self, note: Note) {
        if self.told.is_new(format!("{note:?}")) {
            self.observer.note(&note);
        }
    }

    /// Tells why a stop could not be answered. That the thread was killed under our hands is nothing to tell: its end
    /// is reported next.
    pub(crate) fn tell_failure(&mut self, answered: Result<(), process::Error>) {
        if let Err(error) = answered
            && !error.is_gone()
        {
            self.tell_once(Note::Other(error.to_string()));
        }
    }
}
