//! Tells the observer new counts, at most so often.

use crate::observer::Note;
use crate::tracer::Tracer;

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
