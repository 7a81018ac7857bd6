//! Questions about the code that contains the sites.

use crate::flow::length;

use super::Code;
use super::placement::LONGEST;

impl Code<'_> {
    /// The bytes at `address`, if all are in the code.
    pub(super) fn slice(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Up to 15 bytes from `address` on.
    pub(super) fn rest(&self, address: u64) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let rest = self.bytes.get(start..)?;
        Some(&rest[..rest.len().min(LONGEST)])
    }

    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        self.slice(address, 1).map(|bytes| bytes[0])
    }

    /// Whether any of the addresses is in [`Code::kept`].
    pub(super) fn keeps(&self, start: u64, end: u64) -> bool {
        let at = self.kept.partition_point(|range| range.end <= start);
        self.kept.get(at).is_some_and(|range| range.start < end)
    }

    /// Whether code jumps to an address between `start` and `end`, exclusive.
    pub(super) fn is_entered(&self, start: u64, end: u64) -> bool {
        let at = self.entered.partition_point(|address| *address <= start);
        self.entered.get(at).is_some_and(|address| *address < end)
    }

    /// Whether an instruction is known to begin at `start`.
    pub(super) fn is_instruction(&self, start: u64) -> bool {
        self.instructions.binary_search(&start).is_ok()
    }

    /// Whether the instruction at `start` may be the end of another one, as where code jumps past a
    /// `lock` prefix.
    pub(super) fn is_inside(&self, start: u64) -> bool {
        self.entered.binary_search(&start).is_ok() || self.reaches_into(start)
    }

    /// Whether an instruction known to begin before `start` ends after it.
    pub(super) fn reaches_into(&self, start: u64) -> bool {
        let to = self.instructions.partition_point(|at| *at < start);
        let mut near = self.instructions[..to].iter().rev().take_while(|at| start - **at < LONGEST as u64);
        near.any(|&at| self.rest(at).and_then(length).is_some_and(|length| at + length as u64 > start))
    }

    /// Whether an instruction is known to begin between `start` and `end`, exclusive.
    pub(super) fn is_divided(&self, start: u64, end: u64) -> bool {
        let at = self.instructions.partition_point(|address| *address <= start);
        self.instructions.get(at).is_some_and(|address| *address < end)
    }
}
