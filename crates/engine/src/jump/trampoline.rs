//! The code that a site's jump leads to.

use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use patch::tactic::Jump as Shape;
use patch::{Displaced, Onward, Place, Refusal, Slot};

use super::room::{ALIGNMENT, Room};
use super::tail::{CUT, Follower};

/// A handler as machine code, complete but for its address. A thread enters it with the program's registers, and leaves it at
/// its end with the same (but for those that the handler changes on purpose).
pub(crate) trait Code: std::fmt::Debug {
    /// Its bytes.
    fn length(&self) -> usize;
    /// The offset at which a hit begins.
    fn entry(&self) -> u32;
    /// Appends the bytes as they are to be at an address.
    fn place(&self, address: u64, to: &mut Vec<u8>);
    /// Where a thread goes on whose access to the program's memory, at this offset, has faulted.
    fn repair(&self, offset: u32) -> Option<u32>;
    /// In the prologue: what is to be added to rsp at this offset, so that all registers are as at the site.
    fn undo(&self, offset: u32) -> Option<u32>;
}

/// The bytes of a `jmp rel32`.
const JUMP: usize = 5;

/// Where in a trampoline a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Before a handler has changed anything but rsp: `below` is to be added to it.
    Prologue {
        /// In bytes.
        below: u32,
    },
    /// In a handler, at an access to the program's memory; if that faults, the thread goes on at this address.
    Access {
        /// In the same handler.
        repair: u64,
    },
    /// Anywhere else in a handler, or between two, or in the agent on behalf of one.
    Handler,
    /// At the displaced instruction, or behind it.
    Displaced(Place),
}

/// A trampoline that is still to be put somewhere.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) displaced: &'a Displaced,
    /// The handlers, in their order.
    pub(crate) handlers: Vec<Rc<dyn Code>>,
    /// What commits the record behind the displaced instruction, if it waits for that.
    pub(crate) commit: Option<Vec<u8>>,
    /// The instructions that are executed behind it, in their order: [`tail`](super::tail).
    pub(crate) tail: &'a [Displaced],
}

/// A trampoline.
#[derive(Debug)]
pub(crate) struct Trampoline {
    site: u64,
    start: u64,
    size: u64,
    entry: u64,
    /// The handlers, and at which offset each begins.
    handlers: Vec<(u32, Rc<dyn Code>)>,
    /// The displaced instruction.
    slot: Slot,
    /// The address behind the original.
    next: u64,
    /// The copies that follow.
    tail: Vec<Follower>,
    /// Whether the displaced instruction is `pushf`.
    pushes_flags: bool,
    /// Whether a record is committed behind the displaced instruction.
    pub(crate) tentative: bool,
}

impl Layout<'_> {
    fn onward(&self) -> Onward {
        if self.commit.is_some() || !self.tail.is_empty() { Onward::Behind } else { Onward::Next }
    }

    /// The addresses that all of it must be at.
    pub(crate) fn reach(&self) -> RangeInclusive<u64> {
        let site = self.displaced.address();
        let reach = self.displaced.reach();
        // The slot lies anywhere in the trampoline; and both jumps, there and back, reach.
        let margin = self.size();
        let far = i32::MAX as u64 - 2 * margin;
        let all = (reach.start() + margin).max(site.saturating_sub(far))
            ..=reach.end().saturating_sub(margin).min(site.saturating_add(far));
        // So do the others.
        self.tail.iter().map(|follower| follower.reach_to(Onward::Behind)).fold(all, |all, reach| {
            *all.start().max(&(reach.start() + margin))..=*all.end().min(&reach.end().saturating_sub(margin))
        })
    }

    /// Bytes of it, at most.
    pub(crate) fn size(&self) -> u64 {
        let handlers: usize =
            self.handlers.iter().map(|handler| handler.length() + JUMP + ALIGNMENT as usize).sum();
        let commit = self.commit.as_ref().map_or(0, |commit| commit.len() + JUMP);
        let tail = match self.tail.len() {
            0 => 0,
            count => count * (CUT.len() + patch::SLOT_CAPACITY) + JUMP,
        };
        (handlers + patch::SLOT_CAPACITY + commit + tail) as u64
    }

    /// The trampoline at an address, and its bytes.
    ///
    /// # Errors
    /// The address is out of reach.
    pub(crate) fn at(self, start: u64) -> Result<(Trampoline, Vec<u8>), Refusal> {
        let mut bytes = Vec::with_capacity(self.size() as usize);
        let mut handlers: Vec<(u32, Rc<dyn Code>)> = Vec::with_capacity(self.handlers.len());
        for handler in &self.handlers {
            if !handlers.is_empty() {
                // The one before ends here; this one begins at a multiple of its own, and its entry is not its first byte.
                let padding =
                    (bytes.len() + JUMP).next_multiple_of(ALIGNMENT as usize) - (bytes.len() + JUMP);
                bytes.push(0xe9);
                bytes.extend_from_slice(&(padding as u32 + handler.entry()).to_le_bytes());
                bytes.resize(bytes.len() + padding, 0xcc);
            }
            handlers.push((bytes.len() as u32, Rc::clone(handler)));
            handler.place(start + bytes.len() as u64, &mut bytes);
        }
        let entry = start + handlers.first().map_or(0, |(_, handler)| u64::from(handler.entry()));
        let onward = self.onward();
        let slot = self.displaced.slot_to(start + bytes.len() as u64, onward)?;
        bytes.extend_from_slice(&slot.bytes);
        let site = self.displaced.address();
        let next = site.wrapping_add(self.displaced.length() as u64);
        bytes.extend_from_slice(self.commit.as_deref().unwrap_or_default());
        let mut tail = Vec::with_capacity(self.tail.len());
        for follower in self.tail {
            tail.push(Follower::append(follower, start, &mut bytes)?);
        }
        if onward == Onward::Behind && self.tail.last().is_none_or(Displaced::falls_through) {
            let last = self.tail.last().unwrap_or(self.displaced);
            let next = last.address().wrapping_add(last.length() as u64);
            let behind = start + (bytes.len() + JUMP) as u64;
            bytes.push(0xe9);
            bytes.extend_from_slice(&(next.wrapping_sub(behind) as u32).to_le_bytes());
        }
        let tentative = self.commit.is_some();
        let size = bytes.len() as u64;
        let pushes_flags = pushes_flags(self.displaced.original());
        let trampoline =
            Trampoline { site, start, size, entry, handlers, slot, next, tail, pushes_flags, tentative };
        Ok((trampoline, bytes))
    }
}

impl Layout<'_> {
    /// Finds room for it within some addresses, without its tail if there is not enough with it; gives the trampoline, and its bytes,
    /// which are still to be written.
    ///
    /// # Errors
    /// There is no room within reach.
    pub(crate) fn put(
        mut self,
        room: &mut Room,
        within: &Range<u64>,
    ) -> Result<(Trampoline, Vec<u8>), String> {
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
        let (start, size) = (start.ok_or("no memory for its trampoline is within reach")?, self.size());
        let put = self.at(start).map_err(|refusal| refusal.to_string());
        room.shrink(start, size, put.as_ref().map_or(0, |(trampoline, _)| trampoline.size()));
        put
    }
}

impl Trampoline {
    /// The address of its site.
    pub(crate) fn site(&self) -> u64 {
        self.site
    }

    /// Its own address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of it.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where the site's jump leads.
    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    /// The address of the displaced instruction.
    pub(crate) fn displaced(&self) -> u64 {
        self.slot.address
    }

    /// Whether a thread at this address is about to push its flags, as the program wants it.
    pub(crate) fn pushes_flags_at(&self, address: u64) -> bool {
        self.pushes_flags && address == self.slot.address
    }

    /// The copies that follow its displaced instruction.
    pub(crate) fn tail(&self) -> &[Follower] {
        &self.tail
    }

    /// Whether all instructions run in it that a jump of this shape covers.
    pub(crate) fn has_followers(&self, shape: &Shape) -> bool {
        let copied = self.tail.iter().map(|follower| follower.address);
        shape.followers.iter().map(|(address, _)| *address).eq(copied.take(shape.followers.len()))
    }

    /// Whether a thread at this address has the displaced instruction behind it, and another one that follows before it.
    pub(crate) fn is_between(&self, address: u64) -> bool {
        self.tail.iter().any(|follower| follower.cut == address)
    }

    /// Whether an address is in it.
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    /// Which of its parts an address is in.
    pub(crate) fn part(&self, address: u64) -> Option<Part> {
        if !self.contains(address) {
            return None;
        }
        if let Some(offset) = address.checked_sub(self.slot.address) {
            let offset = offset as usize;
            // Behind the slot the record is committed, and the program goes on.
            return Some(Part::Displaced(if offset > 0 && offset >= self.slot.bytes.len() {
                self.behind(address)
            } else {
                self.slot.place(offset)
            }));
        }
        let offset = (address - self.start) as u32;
        let (begin, handler) = self.handlers.iter().rev().find(|(begin, _)| *begin <= offset)?;
        let inside = offset - begin;
        Some(if let Some(below) = handler.undo(inside) {
            Part::Prologue { below }
        } else if let Some(repair) = handler.repair(inside) {
            Part::Access { repair: self.start + u64::from(begin + repair) }
        } else {
            Part::Handler
        })
    }
}

impl Trampoline {
    /// Where a thread is that is behind the displaced instruction.
    fn behind(&self, address: u64) -> Place {
        match self.tail.iter().rev().find(|follower| follower.cut <= address) {
            Some(follower) => follower.place(address),
            None => Place::After { rip: self.next, rcx: None },
        }
    }
}

/// Whether an instruction is `pushf`: its opcode, behind nothing but prefixes.
fn pushes_flags(instruction: &[u8]) -> bool {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    matches!(instruction, [prefixes @ .., 0x9c] if prefixes.iter().all(is_prefix))
}
