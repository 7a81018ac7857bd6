//! What a command shows on standard output.

use std::io::{self, ErrorKind, Write};

use crate::Failure;

/// Writes a text there. A reader that has seen enough is no error.
///
/// # Errors
/// It cannot be written: a full disk, say.
pub(crate) fn show(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
