//! The interface between a conversion and its output form.

use std::io;

use trace::Record;
use trace::template::Template;

use crate::facts::ProbeSite;

/// A record, with what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The record's number in the store.
    pub number: u64,
    /// The record.
    pub record: &'a Record,
    /// Where its probe is.
    pub place: &'a ProbeSite,
    /// The template for its bytes.
    pub template: Option<&'a Template>,
}

/// An output form for records.
pub trait Form {
    /// Writes a record. Records come in order of time.
    ///
    /// # Errors
    /// Writing fails.
    fn record(&mut self, event: &Event<'_>) -> io::Result<()>;

    /// Writes the end. Returns remarks for the user, a sentence each.
    ///
    /// # Errors
    /// Writing fails.
    fn finish(&mut self) -> io::Result<Vec<String>>;
}
