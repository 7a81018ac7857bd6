//! The result of the control flow analysis: what is proven, and what is in doubt.

use std::fmt;
use std::ops::Range;

use super::piece::Piece;

/// Up to this many unproven bytes after a call count as behind it (`Doubt::BehindCall`).
const BEHIND: u64 = 4096;

/// What is proven of the control flow of a file.
#[derive(Debug, Default)]
pub struct ControlFlow {
    pub(super) code: Vec<Piece>,
    /// Padding between functions, by address: control does not reach it.
    pub(super) padding: Vec<Range<u64>>,
    /// The tables that were read: the address of the jump, and the number of elements.
    pub(super) tables: Vec<(u64, u64)>,
    /// The tables' targets.
    pub(super) table_targets: Vec<u64>,
    /// Functions all of whose jumps have known targets.
    pub(super) closed: Vec<Range<u64>>,
    /// The addresses after calls that are not proven to return.
    pub(super) lost: Vec<u64>,
    /// Likely instructions that are not proven, ascending.
    pub(super) likely: Vec<u64>,
    /// The unresolved indirect jumps, and why.
    pub(super) unresolved: Vec<(u64, Unresolved)>,
    /// Why nothing is proven, if so.
    pub(super) problem: Option<NotAnalyzed>,
}

/// Why the control flow of a file is not analyzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnalyzed {
    /// It is not x86-64 code.
    #[error("it is not x86-64 code")]
    OtherMachine,
    /// It has too much code.
    #[error("it has {} MiB of code; at most {} MiB are analyzed", size >> 20, most >> 20)]
    TooLarge {
        /// Its bytes of code.
        size: u64,
        /// The most that is analyzed.
        most: u64,
    },
}

/// Why an address is not known to be an instruction's. It may be data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doubt {
    /// It is after a call that is not proven to return there.
    BehindCall,
    /// Nothing is known to lead there.
    Unreached,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::BehindCall => "it may be data: it follows a call that is not proven to return",
            Doubt::Unreached => "it may be data: no known jump or call leads there",
        })
    }
}

/// Why an indirect jump's targets are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unresolved {
    /// Its target comes from no recognizable table: mostly a call through a pointer at a function's
    /// end.
    NoTable,
    /// The number of the table's elements is unknown.
    NoBound,
    /// An element of the table leads to no code, or into an instruction.
    BadEntry,
    /// The tables read before it have used up the limit of elements.
    TooMany,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unresolved::NoTable => "no recognized jump table",
            Unresolved::NoBound => "a jump table of unknown length",
            Unresolved::BadEntry => "a jump table with an entry that is not an instruction",
            Unresolved::TooMany => "too many jump table entries in the file",
        })
    }
}

impl ControlFlow {
    /// The addresses in a range at which a proven instruction begins, padding included, ascending.
    pub fn instructions(&self, range: Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        for piece in &self.code {
            let end = piece.start + piece.bytes.len() as u64;
            let (from, to) = (range.start.max(piece.start), range.end.min(end));
            found.extend((from..to).filter(|vaddr| piece.lengths[(vaddr - piece.start) as usize] > 0));
        }
        found
    }

    /// Bytes of the proven instruction at an address; 0 if there is none.
    pub fn length(&self, vaddr: u64) -> usize {
        let place = self.code.iter().find_map(|piece| Some((piece, piece.at(vaddr)?)));
        place.map_or(0, |(piece, at)| piece.lengths[at].into())
    }

    /// The start and end of the proven instruction that contains an address other than as its
    /// start, if there is one.
    pub(crate) fn reaching_into(&self, vaddr: u64) -> Option<(u64, u64)> {
        let (piece, at) = self.code.iter().find_map(|piece| Some((piece, piece.at(vaddr)?)))?;
        let first = piece.reaching_into(at)?;
        let first_vaddr = piece.start + first as u64;
        Some((first_vaddr, first_vaddr + u64::from(piece.lengths[first])))
    }

    /// Padding between functions that overlaps a range, ascending: instructions that do nothing and
    /// that control does not reach.
    pub fn padding(&self, range: Range<u64>) -> &[Range<u64>] {
        let from = self.padding.partition_point(|padding| padding.end <= range.start);
        let to = self.padding.partition_point(|padding| padding.start < range.end);
        &self.padding[from..to.max(from)]
    }

    /// Functions, with their separate parts, that have no unresolved jumps and no landing pads of
    /// exceptions: those that overlap a range, ascending and disjoint. Jumps into the middle of one
    /// are direct, or use an address that is stored somewhere.
    pub fn closed(&self, range: Range<u64>) -> &[Range<u64>] {
        let from = self.closed.partition_point(|closed| closed.end <= range.start);
        let to = self.closed.partition_point(|closed| closed.start < range.end);
        &self.closed[from..to.max(from)]
    }

    /// The targets of the tables that were read.
    pub(crate) fn table_targets(&self) -> &[u64] {
        &self.table_targets
    }

    /// The code, piece by piece: address, bytes, and for each byte the length of the proven
    /// instruction that begins there, or 0.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8], &[u8])> {
        self.code.iter().map(|piece| (piece.start, &piece.bytes[..], &piece.lengths[..]))
    }

    /// The number of proven instructions.
    pub fn count(&self) -> usize {
        self.code.iter().map(|piece| piece.lengths.iter().filter(|length| **length > 0).count()).sum()
    }

    /// The tables that were read: the address of each jump, and the number of its elements.
    pub fn tables(&self) -> &[(u64, u64)] {
        &self.tables
    }

    /// The unresolved indirect jumps, by address, and why.
    pub fn unresolved(&self) -> &[(u64, Unresolved)] {
        &self.unresolved
    }

    /// Whether a likely instruction begins at an address that control is not proven to reach. It
    /// may be probed with its own bytes.
    pub fn is_likely(&self, vaddr: u64) -> bool {
        self.likely.binary_search(&vaddr).is_ok()
    }

    /// Why an address is not known to be an instruction's, if it is not.
    pub fn doubt(&self, vaddr: u64) -> Option<Doubt> {
        if self.problem.is_some() || self.length(vaddr) > 0 || self.is_likely(vaddr) {
            return None;
        }
        let before = self.lost.partition_point(|lost| *lost <= vaddr);
        let lost = before.checked_sub(1).map(|before| self.lost[before]);
        // Nothing proven lies between.
        let is_behind = |lost: &u64| vaddr - lost <= BEHIND && (*lost..vaddr).all(|at| self.length(at) == 0);
        Some(match lost.filter(is_behind) {
            Some(_) => Doubt::BehindCall,
            None => Doubt::Unreached,
        })
    }

    /// Why nothing is proven, if so.
    pub fn problem(&self) -> Option<NotAnalyzed> {
        self.problem
    }
}
