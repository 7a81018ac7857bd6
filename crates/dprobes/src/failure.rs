//! Errors that end the command early.

/// An error that ends the command: a message, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl Failure {
    /// A failure of the command itself.
    pub(crate) fn new(message: impl std::fmt::Display) -> Failure {
        let message = message.to_string();
        Failure { message: format!("dprobes: error: {}", printable::lines(&message)), status: 1 }
    }

    /// A failure whose message is complete and printable (it may have colours).
    pub(crate) fn complete(message: String) -> Failure {
        Failure { message, status: 1 }
    }

    /// The same failure with another exit status.
    pub(crate) fn with_status(self, status: u8) -> Failure {
        Failure { status, ..self }
    }

    /// The message without the `dprobes: error: ` prefix.
    pub(crate) fn message(&self) -> &str {
        self.message.strip_prefix("dprobes: error: ").unwrap_or(&self.message)
    }

    /// The whole message, without trailing white space.
    pub(crate) fn text(&self) -> &str {
        self.message.trim_end()
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}
