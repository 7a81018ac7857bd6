//! An arming in another process than the one it was planned in: all addresses are `by` bytes
//! higher.

use std::ops::Range;
use std::rc::Rc;

use process::{Mapping, Memory};

use super::arming;
use super::arming::Arming;
use super::handler_memory::HandlerMemory;
use super::trampoline::Trampoline;
use crate::change::Change;
use crate::hold::Held;
use crate::jump::not_jumped::NotJumped;
use crate::ledger::{EnteredList, Full};
use crate::module_key::ModuleKey;
use crate::observer::Note;
use crate::placed_report::About;
use crate::reason::NoJump;
use crate::site::{Code, Jump, LONGEST, Planned, Site};
use crate::site_use::Use;

/// Fields closer together than this are written in one piece.
const NEAR: u32 = 1024;

/// An arming, moved by `by` bytes.
#[derive(Clone)]
pub(crate) struct Copied {
    pub(super) arming: Rc<Arming>,
    pub(super) by: u64,
}

impl std::fmt::Debug for Copied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} by {:#x}", self.arming, self.by)
    }
}

impl Copied {
    /// The module, as it is mapped here.
    pub(crate) fn module(&self) -> ModuleKey {
        let (device, inode, bias) = self.arming.module;
        (device, inode, bias.wrapping_add(self.by))
    }

    /// The number that records of its handlers carry, and how much higher their sites are here.
    pub(crate) fn moved(&self) -> (u32, u64) {
        (self.arming.keep.number, self.by)
    }

    pub(crate) fn program(&self) -> usize {
        self.arming.program()
    }

    /// How many sites were planned, and the messages about them.
    pub(crate) fn count(&self) -> (usize, &[Note]) {
        (self.arming.keep.count, &self.arming.keep.remarks)
    }

    /// The probes that they were planned for.
    pub(crate) fn probes(&self) -> Vec<About> {
        let moved = |&(address, program, probe): &About| (self.there(address), program, probe);
        self.arming.keep.probes.iter().map(moved).collect()
    }

    /// Converts an address here to that of the first process.
    fn origin(&self, address: u64) -> u64 {
        address.wrapping_sub(self.by)
    }

    /// Converts an address of the first process to that here.
    fn there(&self, address: u64) -> u64 {
        address.wrapping_add(self.by)
    }

    fn index(&self, address: u64) -> Option<usize> {
        let origin = self.origin(address);
        self.arming.sites.binary_search_by_key(&origin, |(address, ..)| *address).ok()
    }

    pub(crate) fn has_site(&self, address: u64) -> bool {
        self.index(address).is_some()
    }

    pub(crate) fn site(&self, address: u64) -> Option<(Site, Jump)> {
        let (_, site, jump) = &self.arming.sites[self.index(address)?];
        Some((site.moved(self.by), jump.moved(self.by)))
    }

    /// The sites in a range of addresses, with the addresses of the first process.
    fn slice(&self, addresses: &Range<u64>) -> &[(u64, Rc<Site>, Rc<Jump>)] {
        let sites = &self.arming.sites;
        let Some((first, last)) = sites.first().zip(sites.last()) else { return &[] };
        let here = self.there(first.0)..=self.there(last.0);
        if addresses.is_empty() || addresses.end <= *here.start() || *here.end() < addresses.start {
            return &[];
        }
        let place = |address: u64| {
            let address = address.clamp(*here.start(), here.end().saturating_add(1));
            sites.partition_point(|(site, ..)| *site < self.origin(address))
        };
        &sites[place(addresses.start)..place(addresses.end)]
    }

    /// The addresses of its sites in a range, ascending.
    pub(crate) fn sites_in(&self, addresses: Range<u64>) -> impl Iterator<Item = u64> {
        self.slice(&addresses).iter().map(|(address, ..)| self.there(*address))
    }

    /// Shows every use of every site.
    pub(crate) fn each_use(&self, mut show: impl FnMut(&Use)) {
        self.arming.sites.iter().for_each(|(_, site, _)| site.uses.iter().for_each(&mut show));
    }

    /// Shows the changes of the sites in a range of addresses.
    pub(crate) fn each_change(&self, addresses: Range<u64>, mut show: impl FnMut(&Change)) {
        for (.., jump) in self.slice(&addresses) {
            jump.changes.iter().for_each(|change| show(&change.moved(self.by)));
        }
    }

    /// All changes: those of its jumps and of its traps.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let jumps = self.arming.sites.iter().flat_map(|(.., jump)| &jump.changes);
        jumps.chain(&self.arming.traps).map(|change| change.moved(self.by))
    }

    /// Enters the changes of its jumps in the ledger, until the returned entry is dropped.
    pub(crate) fn enter(&self, code: &Code) -> Result<Option<EnteredList>, Full> {
        let Some(ledger) = &code.ledger else { return Ok(None) };
        let listed = match self.arming.listed.get() {
            Some(listed) => listed,
            None => {
                let changes = self.arming.sites.iter().flat_map(|(.., jump)| &jump.changes);
                let listed = Rc::new(ledger.list(changes)?);
                self.arming.listed.get_or_init(|| listed)
            }
        };
        ledger.enter_list(code.process, listed, self.by).map(Some)
    }

    /// The changes of its sites that trap.
    pub(crate) fn traps(&self) -> Vec<Change> {
        self.arming.traps.iter().map(|change| change.moved(self.by)).collect()
    }

    /// The intermediate jump at an address, on the way to a trampoline: its site and that
    /// trampoline.
    pub(crate) fn way(&self, at: u64) -> Option<(u64, u64)> {
        let &(site, trampoline) = self.arming.ways.get(&self.origin(at))?;
        Some((self.there(site), self.there(trampoline)))
    }

    /// All intermediate jumps: their addresses, sites and trampolines.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let ways = self.arming.ways.iter();
        ways.map(|(&at, &(site, trampoline))| (self.there(at), self.there(site), self.there(trampoline)))
    }

    /// The start of the trampoline that contains an address.
    pub(crate) fn trampoline_before(&self, address: u64) -> Option<u64> {
        let before = self.arming.trampolines.range(..=self.origin(address)).next_back();
        let (&start, trampoline) = before?;
        trampoline.contains(self.origin(address)).then(|| self.there(start))
    }

    /// The trampoline that begins at an address.
    pub(crate) fn trampoline(&self, start: u64) -> Option<Trampoline> {
        Some(self.arming.trampolines.get(&self.origin(start))?.moved(self.by))
    }

    /// The start of each trampoline.
    pub(crate) fn trampolines(&self) -> impl Iterator<Item = u64> {
        self.arming.trampolines.keys().map(|&start| self.there(start))
    }

    /// Whether a trampoline has a copy of the instruction at an address behind its displaced one.
    pub(crate) fn has_follower(&self, address: u64) -> bool {
        self.arming.followers.contains_key(&self.origin(address))
    }

    /// The mapping of its code in a process.
    pub(super) fn mapping<'a>(&self, mappings: &'a [Mapping]) -> Option<&'a Mapping> {
        let start = self.there(self.arming.start);
        let length = self.arming.code.bytes().len() as u64;
        mappings.iter().find(|mapping| mapping.start == start && mapping.end - mapping.start == length)
    }

    /// Whether the traps in its code are the same as when it was planned.
    pub(super) fn has_seen(&self, traps: impl Iterator<Item = u64>) -> bool {
        traps.eq(self.arming.seen.iter().map(|&trap| self.there(trap)))
    }

    /// Whether the handlers' memory is where their code expects it.
    pub(super) fn addresses_match(&self, handler_memory: &HandlerMemory) -> bool {
        self.arming.around == arming::HandlerAddresses::of(handler_memory)
    }

    /// Whether its handlers need the table of hidden memory.
    pub(super) fn hides(&self) -> bool {
        self.arming.around.hidden != 0
    }

    /// Memory to be mapped for trampolines, and for landing pads: addresses and sizes.
    pub(super) fn mapped(&self) -> [Vec<(u64, u64)>; 2] {
        let moved = |all: &[(u64, u64)]| all.iter().map(|&(base, size)| (self.there(base), size)).collect();
        [moved(&self.arming.areas), moved(&self.arming.pads)]
    }

    /// Its sites that do not become jumps.
    pub(super) fn left(&self) -> Vec<NotJumped> {
        let left = |(site, reason, can_trap): &(Rc<Site>, NoJump, bool)| NotJumped {
            site: Planned(Box::new(site.moved(self.by))),
            reason: reason.clone(),
            can_trap: *can_trap,
            was: None,
        };
        self.arming.left.iter().map(left).collect()
    }

    /// Writes trampolines and landing pads; if they are mapped from the file, only the fields that
    /// hold addresses.
    pub(super) fn write_code(&self, memory: &Memory, is_file: bool) -> std::io::Result<()> {
        let mut fields = self.arming.fields.iter().peekable();
        let (mut moved, mut written) = (Vec::new(), Vec::new());
        for (number, (address, bytes)) in self.arming.pieces.iter().enumerate() {
            let here = self.there(*address);
            if self.by == 0 || fields.peek().is_none_or(|(piece, _)| *piece > number) {
                if !is_file {
                    memory.poke(here, bytes)?;
                }
                continue;
            }
            moved.clear();
            moved.extend_from_slice(bytes);
            written.clear();
            while let Some((_, field)) = fields.next_if(|(piece, _)| *piece == number) {
                field.add(self.by, &mut moved);
                written.push(field.range());
            }
            if !is_file {
                memory.poke(here, &moved)?;
                continue;
            }
            written.sort_unstable_by_key(|range| range.start);
            for near in written.chunk_by(|one, next| next.start.saturating_sub(one.end) < NEAR) {
                let (Some(first), Some(last)) = (near.first(), near.last()) else { continue };
                let part = &moved[first.start as usize..last.end as usize];
                memory.poke(here.wrapping_add(first.start.into()), part)?;
            }
        }
        Ok(())
    }

    /// Writes the jumps and traps, while all threads are held.
    pub(super) fn write_sites(&self, memory: &Memory, _held: &Held) -> std::io::Result<()> {
        let mut written = Ok(());
        for (address, bytes) in &self.arming.written {
            // A failure does not keep the rest from being written.
            written = written.and(memory.poke(self.there(*address), bytes));
        }
        written
    }

    /// Whether its changes are still in a process that may have unmapped or remapped the module:
    /// checks one site of each page.
    pub(crate) fn is_there(&self, memory: &Memory) -> bool {
        const PAGE: u64 = 4096;
        let mut last = None;
        self.arming.sites.iter().all(|(address, _, jump)| {
            if last.replace(address / PAGE) == Some(address / PAGE) {
                return true;
            }
            let Some(change) = jump.changes.first() else { return true };
            let mut bytes = [0; LONGEST];
            let bytes = &mut bytes[..change.written().len()];
            memory.peek(self.there(change.address()), bytes).is_ok() && *bytes == *change.written()
        })
    }

    /// Counts one more copy.
    pub(super) fn count_copy(&self) {
        self.arming.copies.set(self.arming.copies.get() + 1);
    }
}
