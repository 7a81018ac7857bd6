//! What a form is given.

use std::io;

use trace::Record;
use trace::template::Template;

use crate::known::Place;

/// A record, with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its number in the store.
    pub number: u64,
    /// The record.
    pub record: &'a Record,
    /// Where its probe is.
    pub place: &'a Place,
    /// What its bytes mean.
    pub template: Option<&'a Template>,
}

/// What records are written as.
pub trait Form {
    /// Takes a record. Records come in the order of time.
    ///
    /// # Errors
    /// Those of writing.
    fn record(&mut self, event: &Event<'_>) -> io::Result<()>;

    /// Writes what belongs at the end. Gives what the user should know, a sentence each.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(&mut self) -> io::Result<Vec<String>>;
}
