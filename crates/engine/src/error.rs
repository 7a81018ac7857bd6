//! Why probes could not be placed.

use std::fmt;

/// A probepoint that is refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The module, as the program names it or as its file is called.
    pub module: String,
    /// The probepoint as the program writes it.
    pub point: String,
    /// Which probe of the program, from 0.
    pub probe: usize,
    /// The reason and, where there is one, the remedy.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.module, self.point, self.reason)
    }
}

/// What ended a session before its time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process could not be traced or looked at.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The modules of a process cannot be told.
    #[error(transparent)]
    Modules(#[from] process::ModuleError),
    /// Probepoints of the program cannot be placed; no process was changed.
    #[error("{}", list(.0))]
    Refused(Vec<Refused>),
}

/// The refusals, a line each.
fn list(refused: &[Refused]) -> String {
    refused.iter().map(Refused::to_string).collect::<Vec<_>>().join("\n")
}
