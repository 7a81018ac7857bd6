//! Errors: refused probepoints, and what ends a session.

use std::fmt;

use crate::reason::NotPlaced;

/// A probepoint that is refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The module, as in the program or as its file is named.
    pub module: String,
    /// The probepoint as in the program.
    pub point: String,
    /// The index of the probe in the program.
    pub probe: usize,
    /// The reason and, if there is one, the remedy.
    pub reason: NotPlaced,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}",
            printable::text(&self.module),
            printable::text(&self.point),
            printable::lines(&self.reason.to_string())
        )
    }
}

/// What has ended a session early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process could not be traced or inspected.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The modules of a process cannot be determined.
    #[error(transparent)]
    Modules(#[from] process::ModuleError),
    /// Probepoints of the program cannot be placed. No process was changed.
    #[error("{}", list(.0))]
    Refused(Vec<Refused>),
}

/// Probepoints named in one line, at most.
const SHOWN: usize = 8;

/// The refusals as text, one line each.
fn list(refused: &[Refused]) -> String {
    lines(refused).join("\n")
}

/// The refusals, one line each. Consecutive ones with the same reason share a line.
pub(crate) fn lines(refused: &[Refused]) -> Vec<String> {
    // As they are shown: reasons may differ in what their texts leave out.
    let same = |one: &Refused, other: &Refused| {
        one.module == other.module && one.reason.to_string() == other.reason.to_string()
    };
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
