//! The code that a site's jump leads to.

use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use jit::SiteField;
use patch::tactic::Jump as Shape;
use patch::{Displaced, Onward, Place, Refusal, Slot};

use super::room::{ALIGNMENT, Room};
use super::tail::{CUT, Follower};
use crate::site::Use;

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
    /// Where its bytes hold addresses that move with its site; none if it cannot be moved.
    fn site_fields(&self) -> Option<Vec<SiteField>>;
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
        /// Which of the trampoline's handlers it is.
        handler: usize,
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
    /// The handlers, in their order, each with what it is for.
    pub(crate) handlers: &'a [(Use, Rc<dyn Code>)],
    /// What commits the record behind the displaced instruction, if it waits for that.
    pub(crate) commit: Option<&'a Commit>,
    /// The instructions that are executed behind it, in their order: [`tail`](super::tail).
    pub(crate) tail: &'a [Displaced],
}

/// What commits a record.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// The code for behind the displaced instruction.
    pub(crate) code: Vec<u8>,
    /// Which of the trampoline's handlers makes the record.
    pub(crate) handler: usize,
}

/// The displaced instruction a second time, without what commits a record: for a thread whose hit is missed. That thread's handler has
/// kept no record's address.
#[derive(Debug)]
struct Missed {
    slot: Slot,
    /// Bytes of the code that commits the record, behind the first copy.
    commit: u64,
    /// The handler that makes the record.
    handler: usize,
}

/// A trampoline.
#[derive(Debug)]
pub(crate) struct Trampoline {
    site: u64,
    start: u64,
    size: u64,
    entry: u64,
    /// The handlers: at which offset each begins, and what it is for.
    handlers: Vec<(u32, Use, Rc<dyn Code>)>,
    /// The displaced instruction.
    slot: Slot,
    /// Its second copy, where a record is committed behind the first.
    missed: Option<Missed>,
    /// The address behind the original.
    next: u64,
    /// The copies that follow.
    tail: Vec<Follower>,
    /// Whether the displaced instruction is `pushf`.
    pushes_flags: bool,
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
            self.handlers.iter().map(|(_, handler)| handler.length() + JUMP + ALIGNMENT as usize).sum();
        let commit = self.commit.map_or(0, |commit| commit.code.len() + 2 * JUMP + patch::SLOT_CAPACITY);
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
        let mut handlers: Vec<(u32, Use, Rc<dyn Code>)> = Vec::with_capacity(self.handlers.len());
        for (wanted, handler) in self.handlers {
            if !handlers.is_empty() {
                // The one before ends here; this one begins at a multiple of its own, and its entry is not its first byte.
                let padding =
                    (bytes.len() + JUMP).next_multiple_of(ALIGNMENT as usize) - (bytes.len() + JUMP);
                bytes.push(0xe9);
                bytes.extend_from_slice(&(padding as u32 + handler.entry()).to_le_bytes());
                bytes.resize(bytes.len() + padding, 0xcc);
            }
            handlers.push((bytes.len() as u32, *wanted, Rc::clone(handler)));
            handler.place(start + bytes.len() as u64, &mut bytes);
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
            tail.push(Follower::append(follower, start, &mut bytes)?);
        }
        if onward == Onward::Behind && self.tail.last().is_none_or(Displaced::falls_through) {
            let last = self.tail.last().unwrap_or(self.displaced);
            let next = last.address().wrapping_add(last.length() as u64);
            let behind = start + (bytes.len() + JUMP) as u64;
            bytes.push(0xe9);
            bytes.extend_from_slice(&(next.wrapping_sub(behind) as u32).to_le_bytes());
        }
        let missed = match self.commit {
            Some(commit) => {
                let slot = self.displaced.slot_to(start + bytes.len() as u64, Onward::Behind)?;
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
    /// The same trampoline in a process in which it and its module are `by` bytes farther.
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

    /// Where its bytes hold addresses that move with it: offsets from its start. None if it cannot be moved.
    pub(crate) fn site_fields(&self) -> Option<Vec<SiteField>> {
        let mut fields = Vec::new();
        for (begin, _, handler) in &self.handlers {
            fields.extend(handler.site_fields()?.into_iter().map(|field| field.behind(*begin)));
        }
        let slots = [Some(&self.slot), self.missed.as_ref().map(|missed| &missed.slot)].into_iter().flatten();
        for slot in slots.chain(self.tail.iter().map(Follower::slot)) {
            let begin = (slot.address - self.start) as u32;
            fields.extend(slot.absolute().iter().map(|&at| SiteField::Word(begin + at as u32)));
        }
        Some(fields)
    }

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

    /// Whether a thread at this address has come from its site and done nothing yet.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        address == self.entry
    }

    /// The addresses of the displaced instruction: where its handlers end, and where those threads go on whose hit is missed.
    pub(crate) fn displaced(&self) -> impl Iterator<Item = u64> {
        [Some(&self.slot), self.missed.as_ref().map(|missed| &missed.slot)]
            .into_iter()
            .flatten()
            .map(|slot| slot.address)
    }

    /// Where a thread goes on that has not run a handler, by its number, nor those behind it: those before it have run.
    pub(crate) fn without(&self, handler: usize) -> u64 {
        match &self.missed {
            // The record of a handler before it is still to be committed.
            Some(missed) if missed.handler >= handler => missed.slot.address,
            _ => self.slot.address,
        }
    }

    /// What a handler is for, by its number, and those behind it.
    pub(crate) fn uses_from(&self, handler: usize) -> impl Iterator<Item = Use> {
        self.handlers.iter().skip(handler).map(|&(_, wanted, _)| wanted)
    }

    /// Whether a record waits for the instruction of a thread at this address.
    pub(crate) fn is_awaited_at(&self, address: u64) -> bool {
        self.missed.is_some() && address.wrapping_sub(self.slot.address) < self.slot.bytes.len() as u64
    }

    /// Whether a thread at this address is committing a record.
    pub(crate) fn commits_at(&self, address: u64) -> bool {
        let begin = self.slot.address + self.slot.bytes.len() as u64;
        self.missed.as_ref().is_some_and(|missed| address.wrapping_sub(begin) < missed.commit)
    }

    /// Whether a thread at this address is about to push its flags, as the program wants it.
    pub(crate) fn pushes_flags_at(&self, address: u64) -> bool {
        self.pushes_flags && self.displaced().any(|displaced| displaced == address)
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
        if let Some(missed) = self.missed.as_ref().filter(|missed| missed.slot.address <= address) {
            let offset = (address - missed.slot.address) as usize;
            return Some(Part::Displaced(match offset < missed.slot.bytes.len() {
                true => missed.slot.place(offset),
                false => Place::After { rip: self.next, rcx: None },
            }));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler of ten bytes: a prologue of two instructions, at 0 and 4, and the rest.
    #[derive(Debug)]
    struct Ten;

    impl Code for Ten {
        fn length(&self) -> usize {
            10
        }

        fn entry(&self) -> u32 {
            0
        }

        fn place(&self, _: u64, to: &mut Vec<u8>) {
            to.extend([0x90; 10]);
        }

        fn repair(&self, _: u32) -> Option<u32> {
            None
        }

        fn site_fields(&self) -> Option<Vec<SiteField>> {
            Some(Vec::new())
        }

        fn undo(&self, offset: u32) -> Option<u32> {
            [(0, 0), (4, 136)].into_iter().find(|(at, _)| *at == offset).map(|(_, below)| below)
        }
    }

    const SITE: u64 = 0x10_0000;
    const START: u64 = 0x20_0000;

    /// The trampoline of `mov (%rdi), %rax`, with three handlers, the second of which makes a record that waits.
    fn trampoline(commit: Option<Commit>) -> (Trampoline, Vec<u8>) {
        let displaced = patch::displace(&[0x48, 0x8b, 0x07], SITE).expect("it can be displaced");
        let handler = |probe: usize| (Use::Probe { program: 0, probe }, Rc::new(Ten) as Rc<dyn Code>);
        let handlers: Vec<_> = (0..3).map(handler).collect();
        let layout =
            Layout { displaced: &displaced, handlers: &handlers, commit: commit.as_ref(), tail: &[] };
        let size = layout.size();
        let (trampoline, bytes) = layout.at(START).expect("in reach");
        assert!(bytes.len() as u64 <= size);
        (trampoline, bytes)
    }

    #[test]
    fn what_is_missed_goes_around_what_commits() {
        let commit = Commit { code: vec![0xcc; 4], handler: 1 };
        let (trampoline, bytes) = trampoline(Some(commit));
        let [displaced, missed] = trampoline.displaced().collect::<Vec<_>>()[..] else { panic!("two") };
        let at = |address: u64, length: u64| &bytes[(address - START) as usize..][..length as usize];
        assert_eq!((at(displaced, 3), at(missed, 3)), (&[0x48, 0x8b, 0x07][..], &[0x48, 0x8b, 0x07][..]));
        // The second copy jumps behind what commits.
        let jump = at(missed + 3, 5);
        let distance = i32::from_le_bytes(jump[1..].try_into().expect("four bytes"));
        assert_eq!((jump[0], (missed + 8).wrapping_add_signed(distance.into())), (0xe9, displaced + 3 + 4));
        // Who has run the handler of the record commits it, whatever comes then.
        assert_eq!([0, 1, 2].map(|handler| trampoline.without(handler)), [missed, missed, displaced]);
        assert!(trampoline.is_awaited_at(displaced) && !trampoline.is_awaited_at(missed));
        assert_eq!(trampoline.uses_from(1).count(), 2);
        let place = |address: u64| trampoline.part(address);
        let behind = Some(Part::Displaced(Place::After { rip: SITE + 3, rcx: None }));
        assert_eq!(
            (place(missed), place(displaced)),
            (Some(Part::Displaced(Place::Before)), place(displaced))
        );
        assert_eq!([displaced + 3, displaced + 5, missed + 3].map(place), [behind; 3]);
        let commits = [displaced, displaced + 3, displaced + 6, displaced + 7, missed];
        assert_eq!(commits.map(|at| trampoline.commits_at(at)), [false, true, true, false, false]);
        assert_eq!(place(START + 4), Some(Part::Prologue { below: 136, handler: 0 }));
    }

    #[test]
    fn where_nothing_waits_there_is_one_copy() {
        let (trampoline, _) = trampoline(None);
        assert_eq!(trampoline.displaced().count(), 1);
        assert_eq!(Some(trampoline.without(0)), trampoline.displaced().next());
        assert!(trampoline.displaced().all(|displaced| !trampoline.is_awaited_at(displaced)));
    }
}
