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
        write!(
            f,
            "{}:{}: {}",
            printable::text(&self.module),
            printable::text(&self.point),
            printable::lines(&self.reason)
        )
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

/// Probepoints named in one line.
const SHOWN: usize = 8;

/// The refusals as one text, a line each.
fn list(refused: &[Refused]) -> String {
    lines(refused).join("\n")
}

/// The refusals, a line each; neighbours that are refused for the same reason share one.
pub(crate) fn lines(refused: &[Refused]) -> Vec<String> {
    let same = |one: &Refused, other: &Refused| (&one.module, &one.reason) == (&other.module, &other.reason);
    let line = |group: &[Refused]| {
        let points: Vec<&str> = group.iter().take(SHOWN).map(|refused| refused.point.as_str()).collect();
        let more = match group.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Refused { point: points.join(", ") + &more, ..group[0].clone() }.to_string()
    };
    refused.chunk_by(same).map(line).collect()
}
