//! Why sites are not armed.

use crate::ledger::Full;

use super::{Cause, NoJump, NotMapped};

/// Why the sites of a module cannot be armed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotArmed {
    /// The process has ended.
    #[error("the process is gone")]
    Gone,
    /// Memory is missing.
    #[error(transparent)]
    NotMapped(#[from] NotMapped),
    /// The jumps of the module cannot be made, nor traps instead.
    #[error(transparent)]
    NoJump(#[from] NoJump),
    /// They cannot be written.
    #[error("writing the probes: {0}")]
    Writing(Cause),
    /// The ledger is full.
    #[error("{}", Full)]
    LedgerFull,
    /// The bytes of a site are those of a jump.
    #[error("a jump covers its bytes")]
    Covered,
    /// There are too few slots.
    #[error("more probes than slots")]
    TooFewSlots,
    /// An instruction cannot run in its slot.
    #[error(transparent)]
    Displace(#[from] patch::Refusal),
    /// A slot is too small for an instruction.
    #[error("`{0}` does not fit its slot")]
    TooLong(String),
}
