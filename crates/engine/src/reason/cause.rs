//! The error of another crate or of the system, within a reason.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// An error as its own text: reasons are copied and compared, most errors cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause(Arc<str>);

impl<E: Error> From<E> for Cause {
    fn from(error: E) -> Cause {
        Cause(error.to_string().into())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
