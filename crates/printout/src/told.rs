//! Errors and warnings of a script.

/// What is told beside the output, with its place in the script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    Error,
    Warning,
}

impl Told {
    /// As text says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Told::Error => "ERROR",
            Told::Warning => "WARNING",
        }
    }

    /// As JSON says it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Told::Error => "print_error",
            Told::Warning => "print_warning",
        }
    }
}
