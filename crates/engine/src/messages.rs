//! What is told to the observer, and what was told.

use crate::observer::{Note, Observer};
use crate::reported::Reported;

/// The observer, and what it was told.
pub(crate) struct Messages<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) told: Reported,
}

impl<'a> Messages<'a> {
    /// Nothing was told yet.
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Messages<'a> {
        Messages { observer, told: Reported::default() }
    }

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
