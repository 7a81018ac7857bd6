//! Trampolines: the code that a site's jump leads to.
//!
//! In: handlers, displaced instructions, and how the jump leads here (`Layout`). Out: `Trampoline`,
//! a description of the code, and its bytes.

use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use jit::SiteField;
use patch::tactic::Jump as Shape;
use patch::{Continuation, Displaced, Refusal, Slot, SlotPosition};

use super::relocated_successors::{SuccessorCopy, TAIL_NOP};
use super::trampoline_allocator::{ALIGNMENT, TrampolineAllocator};
use crate::reason::NoJump;
use crate::site_use::Use;

/// A handler as machine code, complete but for its address. A thread enters it with the program's
/// registers, and leaves it at its end with the same, except for those that the handler changes on
/// purpose.
pub(crate) trait Code: std::fmt::Debug {
    /// Its size in bytes.
    fn length(&self) -> usize;
    /// The offset at which a hit enters.
    fn entry(&self) -> u32;
    /// Appends its bytes for a certain address.
    fn append_at(&self, address: u64, to: &mut Vec<u8>);
    /// Where a thread goes on whose access to the program's memory, at this offset, has faulted.
    fn repair(&self, offset: u32) -> Option<u32>;
    /// If the offset is in the prologue: what to add to rsp there, so that all registers are as at
    /// the site.
    fn undo(&self, offset: u32) -> Option<u32>;
    /// Where its bytes hold addresses that move with its site; none if it cannot be moved.
    fn site_fields(&self) -> Option<Vec<SiteField>>;
}

/// The bytes of a `jmp rel32`.
const JUMP: usize = 5;

/// Where in a trampoline a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Before a handler has changed anything but rsp.
    Prologue {
        /// How much to add to rsp, in bytes.
        below: u32,
        /// The index of the handler.
        handler: usize,
    },
    /// In a handler, at an access to the program's memory.
    Access {
        /// Where the thread goes on if the access faults.
        repair: u64,
    },
    /// Elsewhere in a handler, between two, or in the agent called by one.
    Handler,
    /// At the displaced instruction, or behind it.
    Displaced(SlotPosition),
}

/// A trampoline that is not placed yet.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) displaced: &'a Displaced,
    /// The handlers, in their order, each with its use.
    pub(crate) handlers: &'a [(Use, Rc<dyn Code>)],
    /// The code that commits the record behind the displaced instruction, if the record waits for
    /// it.
    pub(crate) commit: Option<&'a Commit>,
    /// The instructions that run behind the displaced one, in their order:
    /// [`relocated_successors`](super::relocated_successors).
    pub(crate) tail: &'a [Displaced],
}

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// The code to put behind the displaced instruction.
    pub(crate) code: Vec<u8>,
    /// The index of the handler that makes the record.
    pub(crate) handler: usize,
}

/// A second copy of the displaced instruction, without the code that commits a record: for a thread
/// whose hit is missed, and whose handler has therefore stored no record's address.
#[derive(Debug)]
struct Missed {
    slot: Slot,
    /// Bytes of the committing code behind the first copy.
    commit: u64,
    /// The index of the handler that makes the record.
    handler: usize,
}

/// A trampoline at its address.
#[derive(Debug)]
pub(crate) struct Trampoline {
    site: u64,
    start: u64,
    size: u64,
    entry: u64,
    /// The handlers: the offset at which each begins, and its use.
    handlers: Vec<(u32, Use, Rc<dyn Code>)>,
    slot: Slot,
    /// The second copy, if a record is committed behind the first.
    missed: Option<Missed>,
    /// The address behind the original instruction.
    next: u64,
    tail: Vec<SuccessorCopy>,
    /// Whether the displaced instruction is `pushf`.
    pushes_flags: bool,
}

impl Layout<'_> {
    fn onward(&self) -> Continuation {
        if self.commit.is_some() || !self.tail.is_empty() { Continuation::Behind } else { Continuation::Next }
    }

    /// The addresses that all of it must be within.
    pub(crate) fn reach(&self) -> RangeInclusive<u64> {
        let site = self.displaced.address();
        let reach = self.displaced.reach();
        // The slot may be anywhere in the trampoline; and the jumps there and back must reach.
        let margin = self.size();
        let far = i32::MAX as u64 - 2 * margin;
        let all = (reach.start() + margin).max(site.saturating_sub(far))
            ..=reach.end().saturating_sub(margin).min(site.saturating_add(far));
        // The copies in the tail must reach, too.
        self.tail.iter().map(|follower| follower.reach_to(Continuation::Behind)).fold(all, |all, reach| {
            *all.start().max(&(reach.start() + margin))..=*all.end().min(&reach.end().saturating_sub(margin))
        })
    }

    /// Its greatest size in bytes.
    pub(crate) fn size(&self) -> u64 {
        let handlers: usize =
            self.handlers.iter().map(|(_, handler)| handler.length() + JUMP + ALIGNMENT as usize).sum();
        let commit = self.commit.map_or(0, |commit| commit.code.len() + 2 * JUMP + patch::SLOT_CAPACITY);
        let tail = match self.tail.len() {
            0 => 0,
            count => count * (TAIL_NOP.len() + patch::SLOT_CAPACITY) + JUMP,
        };
        (handlers + patch::SLOT_CAPACITY + commit + tail) as u64
    }

    /// The trampoline at an address, and its bytes.
    ///
    /// # Errors
    /// The address is out of reach.
    pub(crate) fn at(self, start: u64) -> Result<(Trampoline, Vec<u8>), Refusal> {
        let mut bytes = Vec::with_capacity(self.size() as usize);
        let mut handlers: Vec<(u32, Use, Rc<dyn Code>)> = Vec::with_capacity(self.handlers.len());
        for (wanted, handler) in self.handlers {
            if !handlers.is_empty() {
                // Jump over the padding to the entry of the next handler, which begins at an
                // aligned address; its entry is not its first byte.
                let padding =
                    (bytes.len() + JUMP).next_multiple_of(ALIGNMENT as usize) - (bytes.len() + JUMP);
                bytes.push(0xe9);
                bytes.extend_from_slice(&(padding as u32 + handler.entry()).to_le_bytes());
                bytes.resize(bytes.len() + padding, 0xcc);
            }
            handlers.push((bytes.len() as u32, *wanted, Rc::clone(handler)));
            handler.append_at(start + bytes.len() as u64, &mut bytes);
        }
        let entry = start + handlers.first().map_or(0, |(.., handler)| u64::from(handler.entry()));
        let onward = self.onward();
        let slot = self.displaced.slot_to(start + bytes.len() as u64, onward)?;
        bytes.extend_from_slice(&slot.bytes);
        let site = self.displaced.address();
        let next = site.wrapping_add(self.displaced.length() as u64);
        bytes.extend_from_slice(self.commit.map_or(&[], |commit| &commit.code));
        let behind_commit = bytes.len();
        let mut tail = Vec::with_capacity(self.tail.len());
        for follower in self.tail {
            tail.push(SuccessorCopy::append(follower, start, &mut bytes)?);
        }
        if onward == Continuation::Behind && self.tail.last().is_none_or(Displaced::falls_through) {
            let last = self.tail.last().unwrap_or(self.displaced);
            let next = last.address().wrapping_add(last.length() as u64);
            let behind = start + (bytes.len() + JUMP) as u64;
            bytes.push(0xe9);
            bytes.extend_from_slice(&(next.wrapping_sub(behind) as u32).to_le_bytes());
        }
        let missed = match self.commit {
            Some(commit) => {
                let slot = self.displaced.slot_to(start + bytes.len() as u64, Continuation::Behind)?;
                bytes.extend_from_slice(&slot.bytes);
                let back = behind_commit.wrapping_sub(bytes.len() + JUMP) as u32;
                bytes.push(0xe9);
                bytes.extend_from_slice(&back.to_le_bytes());
                Some(Missed { slot, commit: commit.code.len() as u64, handler: commit.handler })
            }
            None => None,
        };
        let size = bytes.len() as u64;
        let pushes_flags = pushes_flags(self.displaced.original());
        let trampoline =
            Trampoline { site, start, size, entry, handlers, slot, missed, next, tail, pushes_flags };
        Ok((trampoline, bytes))
    }
}

impl Layout<'_> {
    /// Places it in `room` within some addresses, without its tail if there is too little for it.
    /// Returns the trampoline and its bytes, which are still to be written.
    ///
    /// # Errors
    /// There is no room within reach.
    pub(crate) fn put(
        mut self,
        room: &mut TrampolineAllocator,
        within: &Range<u64>,
    ) -> Result<(Trampoline, Vec<u8>), NoJump> {
        let mut take = |layout: &Layout<'_>| {
            let reach = layout.reach();
            let reach = *reach.start().max(&within.start)..=*reach.end().min(&within.end.saturating_sub(1));
            room.take(layout.size(), &reach)
        };
        let mut start = take(&self);
        if start.is_none() && !self.tail.is_empty() {
            self.tail = &[];
            start = take(&self);
        }
        let (start, size) = (start.ok_or(NoJump::NoTrampoline)?, self.size());
        let put = self.at(start);
        room.shrink(start, size, put.as_ref().map_or(0, |(trampoline, _)| trampoline.size()));
        Ok(put?)
    }
}

impl Trampoline {
    /// The same trampoline in a process in which it and its module have addresses `by` bytes
    /// higher.
    pub(crate) fn moved(&self, by: u64) -> Trampoline {
        let moved = |address: u64| address.wrapping_add(by);
        Trampoline {
            site: moved(self.site),
            start: moved(self.start),
            size: self.size,
            entry: moved(self.entry),
            handlers: self.handlers.clone(),
            slot: self.slot.moved(by),
            missed: self.missed.as_ref().map(|missed| Missed { slot: missed.slot.moved(by), ..*missed }),
            next: moved(self.next),
            tail: self.tail.iter().map(|follower| follower.moved(by)).collect(),
            pushes_flags: self.pushes_flags,
        }
    }

    /// Where its bytes hold addresses that move with it, as offsets from its start. None if it
    /// cannot be moved.
    pub(crate) fn site_fields(&self) -> Option<Vec<SiteField>> {
        let mut fields = Vec::new();
        for (begin, _, handler) in &self.handlers {
            fields.extend(handler.site_fields()?.into_iter().map(|field| field.behind(*begin)));
        }
        let slots = [Some(&self.slot), self.missed.as_ref().map(|missed| &missed.slot)].into_iter().flatten();
        for slot in slots.chain(self.tail.iter().map(SuccessorCopy::slot)) {
            let begin = (slot.address - self.start) as u32;
            fields.extend(slot.absolute().iter().map(|&at| SiteField::Word(begin + at as u32)));
        }
        Some(fields)
    }

    pub(crate) fn site(&self) -> u64 {
        self.site
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where the site's jump leads.
    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    /// Whether a thread at this address has come from its site and executed nothing yet.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        address == self.entry
    }

    /// The addresses of the copies of the displaced instruction: behind the handlers, and the one
    /// for missed hits.
    pub(crate) fn displaced(&self) -> impl Iterator<Item = u64> {
        [Some(&self.slot), self.missed.as_ref().map(|missed| &missed.slot)]
            .into_iter()
            .flatten()
            .map(|slot| slot.address)
    }

    /// Where a thread goes on for which this handler and those behind it are skipped, after those
    /// before it have run.
    pub(crate) fn without(&self, handler: usize) -> u64 {
        match &self.missed {
            // The handler that makes the record is skipped: nothing is to be committed.
            Some(missed) if missed.handler >= handler => missed.slot.address,
            _ => self.slot.address,
        }
    }

    /// The uses of this handler and those behind it.
    pub(crate) fn uses_from(&self, handler: usize) -> impl Iterator<Item = Use> {
        self.handlers.iter().skip(handler).map(|&(_, wanted, _)| wanted)
    }

    /// Whether a record waits for the instruction that a thread at this address executes.
    pub(crate) fn is_awaited_at(&self, address: u64) -> bool {
        self.missed.is_some() && address.wrapping_sub(self.slot.address) < self.slot.bytes.len() as u64
    }

    /// Whether a thread at this address is committing a record.
    pub(crate) fn commits_at(&self, address: u64) -> bool {
        let begin = self.slot.address + self.slot.bytes.len() as u64;
        self.missed.as_ref().is_some_and(|missed| address.wrapping_sub(begin) < missed.commit)
    }

    /// Whether a thread at this address is about to push its flags by the program's `pushf`.
    pub(crate) fn pushes_flags_at(&self, address: u64) -> bool {
        self.pushes_flags && self.displaced().any(|displaced| displaced == address)
    }

    pub(crate) fn successor_copies(&self) -> &[SuccessorCopy] {
        &self.tail
    }

    /// Whether it runs all the instructions that a jump of this shape covers.
    pub(crate) fn has_followers(&self, shape: &Shape) -> bool {
        let copied = self.tail.iter().map(|follower| follower.address);
        shape.followers.iter().map(|(address, _)| *address).eq(copied.take(shape.followers.len()))
    }

    /// Whether a thread at this address is between two of the program's instructions that run in
    /// the trampoline.
    pub(crate) fn is_between(&self, address: u64) -> bool {
        self.tail.iter().any(|follower| follower.cut == address)
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    pub(crate) fn part(&self, address: u64) -> Option<Part> {
        if !self.contains(address) {
            return None;
        }
        if let Some(missed) = self.missed.as_ref().filter(|missed| missed.slot.address <= address) {
            let offset = (address - missed.slot.address) as usize;
            return Some(Part::Displaced(match offset < missed.slot.bytes.len() {
                true => missed.slot.position_at(offset),
                false => SlotPosition::After { rip: self.next, rcx: None },
            }));
        }
        if let Some(offset) = address.checked_sub(self.slot.address) {
            let offset = offset as usize;
            // Behind the slot: the record is committed, then the tail, then the jump back.
            return Some(Part::Displaced(if offset > 0 && offset >= self.slot.bytes.len() {
                self.behind(address)
            } else {
                self.slot.position_at(offset)
            }));
        }
        let offset = (address - self.start) as u32;
        let (number, (begin, _, handler)) =
            self.handlers.iter().enumerate().rev().find(|(_, (begin, ..))| *begin <= offset)?;
        let inside = offset - begin;
        Some(if let Some(below) = handler.undo(inside) {
            Part::Prologue { below, handler: number }
        } else if let Some(repair) = handler.repair(inside) {
            Part::Access { repair: self.start + u64::from(begin + repair) }
        } else {
            Part::Handler
        })
    }
}

impl Trampoline {
    /// Where a thread is shown that is behind the displaced instruction.
    fn behind(&self, address: u64) -> SlotPosition {
        match self.tail.iter().rev().find(|follower| follower.cut <= address) {
            Some(follower) => follower.position_at(address),
            None => SlotPosition::After { rip: self.next, rcx: None },
        }
    }
}

/// Whether an instruction is `pushf`: prefixes, then its opcode.
fn pushes_flags(instruction: &[u8]) -> bool {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    matches!(instruction, [prefixes @ .., 0x9c] if prefixes.iter().all(is_prefix))
}

#[cfg(test)]
mod tests;
