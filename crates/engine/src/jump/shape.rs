//! What can be told of a planned jump: its tactic's name, where it ends, and which other jumps are on its way to the trampoline.

use patch::tactic::{Jump as Shape, Tactic};

use super::text::Written;
use crate::change::Change;

/// The name of a tactic, as reports show it.
pub(crate) fn name(tactic: Tactic) -> &'static str {
    match tactic {
        Tactic::Plain => "plain",
        Tactic::Punned => "punned",
        Tactic::Padded(_) => "padded",
        Tactic::SuccessorEvicted => "successor evicted",
        Tactic::NeighbourEvicted => "neighbour evicted",
        Tactic::Grouped => "grouped",
        Tactic::OverPadding => "over padding",
        Tactic::InPadding => "in padding",
    }
}

/// Where the jump at a site ends. With that of another tactic than these it is the jump's last byte, as its processor remembers it.
pub(crate) fn end(shape: &Shape) -> u64 {
    shape.address
        + match shape.tactic {
            Tactic::Padded(prefixes) => 5 + u64::from(prefixes),
            Tactic::NeighbourEvicted | Tactic::InPadding => 2,
            // What it covers beside the instruction is executed by nobody.
            Tactic::OverPadding => shape.length as u64,
            Tactic::Plain | Tactic::Punned | Tactic::SuccessorEvicted | Tactic::Grouped => 5,
        }
}

/// The jumps of a way from a site to its trampoline, but the site itself.
pub(crate) fn ways(site: u64, written: &Written) -> impl Iterator<Item = u64> {
    let changes = written.changes.iter().map(Change::address).filter(move |&at| at != site);
    changes.chain(written.pad.iter().map(|pad| pad.address))
}
