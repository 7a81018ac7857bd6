//! Remembers what was reported, so that it is reported once.

use std::collections::HashSet;

use crate::losses::Losses;
use crate::observer::Note;
use crate::tracer::Tracer;

/// What was reported.
#[derive(Default)]
pub(crate) struct Reported {
    /// Keys of notes that are reported once in a session.
    notes: HashSet<String>,
    /// Programs reported to wait for their module.
    pub(crate) waiting: HashSet<usize>,
    pub(crate) losses: Losses,
}

impl Reported {
    /// Notes a key. Returns whether it is new.
    pub(crate) fn is_new(&mut self, key: String) -> bool {
        self.notes.insert(key)
    }

    /// Forgets a program.
    pub(crate) fn forget(&mut self, program: usize) {
        self.waiting.remove(&program);
        self.losses.forget(program);
    }
}

impl Tracer<'_> {
    /// Reports a note, once in a session.
    pub(crate) fn tell_once(&mut self, note: Note) {
        if self.told.is_new(format!("{note:?}")) {
            self.observer.note(&note);
        }
    }

    /// Reports why a stop could not be handled, unless the thread was killed meanwhile: then its
    /// end is reported next.
    pub(crate) fn tell_failure(&mut self, answered: Result<(), process::Error>) {
        if let Err(error) = answered
            && !error.is_gone()
        {
            self.tell_once(Note::Other(error.to_string()));
        }
    }
}
