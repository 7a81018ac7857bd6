//! A run of the handler: at which instruction it is, what it has claimed, how it leaves.

use crate::emit::Label;
use crate::environment::Handler;
use crate::path::Path;
use crate::ring::{Claimed, RecordBeginner};
use crate::scan::Facts;
use crate::side_exit::{SideExit, SideExits};

/// How a handler is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything that can be known at compile time stays known.
    Known,
    /// Shapes are unified where paths meet.
    Merged,
    /// Nothing is compiled; the interpreter runs the handler.
    Interpreted,
}

/// A run at its current instruction.
pub(crate) struct Run<'a> {
    pub(crate) path: Path<'a>,
    pub(crate) handler: &'a Handler<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) mode: Mode,
    /// How many elements below the first one pushed the handler reaches.
    pub(crate) lowest: usize,
    /// The offset of the current instruction.
    pub(crate) offset: usize,
    /// Whether instructions are counted because a run might exceed its limit.
    pub(crate) counts_steps: bool,
    pub(crate) claimed: Claimed,
    /// Whether the context's register holds the result of counting the hit until the claim: see
    /// [`Output::count`].
    ///
    /// [`Output::count`]: crate::output::Output::count
    pub(crate) keeps_registered: bool,
    /// Whether any path has claimed a context, those into the interpreter apart.
    pub(crate) claims: bool,
    /// Whether any path calls the agent for a map.
    pub(crate) calls: bool,
    pub(crate) exits: SideExits,
}

impl<'a> Run<'a> {
    /// The code that leaves before the current instruction with the current shape.
    pub(crate) fn side_exit(&mut self) -> Label {
        let exit = SideExit {
            out: &mut self.path.out,
            exits: &mut self.exits,
            shape: &self.path.shape,
            claimed: self.claimed,
            offset: self.offset,
            lowest: self.lowest,
            counts_steps: self.counts_steps,
            reads_flags: self.facts.reads_flags,
        };
        exit.emit()
    }

    /// What writes the code that begins a record.
    pub(crate) fn record_beginner(&mut self) -> RecordBeginner<'_, 'a> {
        RecordBeginner { out: &mut self.path.out, claimed: self.claimed }
    }
}
