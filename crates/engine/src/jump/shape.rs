//! Properties of a planned jump: its tactic's name, its end, and the intermediate jumps on the way
//! to the trampoline.

use patch::tactic::{Jump as Shape, Tactic};

use super::text::Written;
use crate::change::Change;

/// The name of a tactic in reports.
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

/// The end of the jump at a site. A trampoline that comes back before it would be mispredicted: see
/// `tail`.
pub(crate) fn end(shape: &Shape) -> u64 {
    shape.address
        + match shape.tactic {
            Tactic::Padded(prefixes) => 5 + u64::from(prefixes),
            Tactic::NeighbourEvicted | Tactic::InPadding => 2,
            // The bytes behind the instruction are padding, which control never reaches.
            Tactic::OverPadding => shape.length as u64,
            Tactic::Plain | Tactic::Punned | Tactic::SuccessorEvicted | Tactic::Grouped => 5,
        }
}

/// The addresses of the intermediate jumps between a site and its trampoline.
pub(crate) fn ways(site: u64, written: &Written) -> impl Iterator<Item = u64> {
    let changes = written.changes.iter().map(Change::address).filter(move |&at| at != site);
    changes.chain(written.pad.iter().map(|pad| pad.address))
}
