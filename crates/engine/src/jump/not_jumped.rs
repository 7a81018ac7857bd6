//! A site that gets no jump, and the reason.

use crate::reason::NoJump;
use crate::site::Planned;

/// A site that did not become a jump.
pub(crate) struct NotJumped {
    pub(crate) site: Planned,
    pub(crate) reason: NoJump,
    /// Whether it may trap instead: not if jumps of other sites rely on its bytes.
    pub(crate) can_trap: bool,
    /// The tactic of the jump that it was so far, if any: it is no jump any more.
    pub(crate) was: Option<&'static str>,
}
