//! Output on standard output.

use std::io::{self, ErrorKind, Write};

use crate::Failure;

/// Writes a text to standard output. A reader that closes the pipe early is no error.
///
/// # Errors
/// The text cannot be written: a full disk, for example.
pub(crate) fn show(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
