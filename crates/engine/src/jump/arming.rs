//! The result of arming a module in one process, kept for other processes that map the same file: a
//! program that is executed again and again.
//!
//! Sites, trampolines, landing pads and the bytes written for them move with the module, by whole
//! pages: distances stay the same, and the places of absolute addresses in the code are known
//! ([`Trampoline::site_fields`]). A process that has the handlers' memory at the same addresses,
//! and free memory where the trampolines go, needs no planning and no compiling. Sites and
//! trampolines are stored with the addresses of the first process; each is moved when it is asked
//! for.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use image::Image;
use jit::SiteField;
use patch::tactic::Planner;

use super::arm::writing::Writing;
use super::cells::Domain;
use super::code_cache::Kept;
use super::code_file::CodeFile;
use super::contexts::Contexts;
use super::handler_memory::HandlerMemory;
use super::trampoline::Trampoline;
use super::trampoline_allocator::TrampolineAllocator;
use super::{New, write};
use crate::change::Change;
use crate::jump::not_jumped::NotJumped;
use crate::ledger::Listed;
use crate::module_key::ModuleKey;
use crate::observer::Note;
use crate::placed_report::About;
use crate::program::Probe;
use crate::reason::NoJump;
use crate::site::{Jump, Site};
use crate::site_use::{INT3, Use};

/// Landing pads closer together than `NEAR` are written in one piece, and so are changes of code
/// closer than `CLOSE`.
const NEAR: u64 = 2048;
const CLOSE: u64 = 4096;

/// The conditions under which an arming was made. They must be equal in a process to which it is
/// copied, beside the module's file and the memory for handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// The program's number.
    pub(crate) program: usize,
    /// The trust domain: results are shared only between processes that could trace one another
    /// anyway.
    pub(crate) domain: Domain,
    /// Whether the program has not begun; and whether no thread has executed the module's code.
    pub(crate) starting: bool,
    pub(crate) fresh: bool,
    /// Whether threads have shadow stacks.
    pub(crate) shadow_stacks: bool,
}

/// What the caller supplies while a module is armed, so that the arming can be kept.
#[derive(Debug)]
pub(crate) struct Keep {
    /// The arming's number, which its records carry; never 0.
    pub(crate) number: u32,
    pub(crate) circumstances: Circumstances,
    pub(crate) image: Arc<Image>,
    /// How many sites were planned, for which probes, and the messages about them.
    pub(crate) count: usize,
    pub(crate) probes: Vec<About>,
    pub(crate) remarks: Vec<Note>,
}

/// The memory for handlers, as far as its addresses are in their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandlerAddresses {
    identity: u64,
    cells: u64,
    contexts: Contexts,
    ring_size: u64,
    code: (u64, u64),
    pub(super) hidden: u64,
}

impl HandlerAddresses {
    pub(super) fn of(handler_memory: &HandlerMemory) -> HandlerAddresses {
        let HandlerMemory { identity, cells, contexts, ring_size, code, hidden, .. } = *handler_memory;
        HandlerAddresses { identity, cells, contexts, ring_size, code, hidden }
    }
}

/// Bytes, and the address that they are written to.
pub(super) type Piece = (u64, Vec<u8>);

/// The result of arming a module. It has so many fields since all of it is built in one step, is
/// never changed, and belongs to the arming alone.
pub(crate) struct Arming {
    pub(super) keep: Keep,
    pub(super) module: ModuleKey,
    pub(super) around: HandlerAddresses,
    /// Whether a handler works in a context.
    pub(super) claims: bool,
    /// If the arming added descriptions of handlers: the state of the descriptions before
    /// ([`HandlerMemory::described`]), and handler memory with the new ones.
    pub(super) described: Option<(u64, HandlerMemory)>,
    /// The code of the mapping, and its start.
    pub(super) code: Rc<Kept>,
    pub(super) start: u64,
    /// Where there were traps before, ascending.
    pub(super) seen: Vec<u64>,
    /// The sites, ascending.
    pub(super) sites: Vec<(u64, Rc<Site>, Rc<Jump>)>,
    pub(super) trampolines: BTreeMap<u64, Rc<Trampoline>>,
    pub(super) ways: BTreeMap<u64, (u64, u64)>,
    pub(super) followers: BTreeMap<u64, Vec<u64>>,
    pub(super) planner: Rc<Planner>,
    pub(super) room: TrampolineAllocator,
    pub(super) areas: Vec<(u64, u64)>,
    pub(super) pads: Vec<(u64, u64)>,
    /// The bytes of trampolines and pads; and the fields in them that hold addresses, each with the
    /// index of its piece.
    pub(super) pieces: Vec<Piece>,
    pub(super) fields: Vec<(usize, SiteField)>,
    /// The bytes as a file, made for the first copy; `None` inside if there is no memory for it.
    file: OnceCell<Option<CodeFile>>,
    /// Whether code holds addresses at unknown places: the arming fits only where the module has
    /// the same address.
    pub(super) is_fixed: bool,
    /// The code around its changes, with the changes made.
    pub(super) written: Vec<Piece>,
    /// Sites that did not become jumps, each with the reason and whether it traps; and the changes
    /// that make them trap.
    pub(super) left: Vec<(Rc<Site>, NoJump, bool)>,
    pub(super) traps: Vec<Change>,
    /// Its changes as a list in the ledger, made for the first copy.
    pub(super) listed: OnceCell<Rc<Listed>>,
    /// How many sites each probe has by each tactic.
    pub(super) tactics: HashMap<usize, BTreeMap<&'static str, usize>>,
    /// How often it was copied since the last count.
    pub(super) copies: Cell<usize>,
}

impl std::fmt::Debug for Arming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arming {{ number: {}, sites: {} }}", self.keep.number, self.sites.len())
    }
}

/// The input of [`Arming::of`]: its fields are arguments with names.
pub(crate) struct ArmingInput<'a> {
    pub(crate) keep: Keep,
    pub(crate) module: ModuleKey,
    pub(crate) handler_memory: &'a HandlerMemory,
    pub(crate) described: Option<(u64, HandlerMemory)>,
    pub(crate) start: u64,
    pub(crate) code: Rc<Kept>,
    pub(crate) seen: &'a [u64],
    pub(crate) writing: &'a Writing,
    pub(crate) trampolines: &'a New,
    pub(crate) planner: Rc<Planner>,
    pub(crate) room: TrampolineAllocator,
    pub(crate) areas: Vec<(u64, u64)>,
    pub(crate) pads: Vec<(u64, u64)>,
    /// The bytes of trampolines and of pads, each with its address.
    pub(crate) trampoline_bytes: &'a [Piece],
    pub(crate) pad_bytes: &'a BTreeMap<u64, Vec<u8>>,
    pub(crate) left: &'a [NotJumped],
}

impl Arming {
    /// Makes an arming of what was carried out. None if it cannot be moved to other processes.
    pub(crate) fn of(parts: ArmingInput<'_>) -> Option<Arming> {
        let ArmingInput { keep, trampolines, writing, code, start, left, .. } = parts;
        let mut pieces = write::together(
            parts.trampoline_bytes.iter().map(|(address, bytes)| (*address, &bytes[..])),
            super::trampoline_allocator::ALIGNMENT,
        );
        let (mut fields, mut is_fixed) = (Vec::new(), false);
        for trampoline in trampolines.trampolines.values() {
            let at = pieces.partition_point(|(begin, _)| *begin <= trampoline.start()).checked_sub(1)?;
            let offset = (trampoline.start() - pieces[at].0) as u32;
            match trampoline.site_fields() {
                Some(own) => fields.extend(own.into_iter().map(|field| (at, field.behind(offset)))),
                None => is_fixed = true,
            }
        }
        let pads = parts.pad_bytes.iter().map(|(&address, bytes)| (address, &bytes[..]));
        pieces.extend(write::together(pads, NEAR));
        let sites: Vec<(u64, Rc<Site>, Rc<Jump>)> = writing
            .armed
            .iter()
            .filter_map(|(&address, armed)| armed.shared().map(|(site, jump)| (address, site, jump)))
            .collect();
        let mut tactics: HashMap<usize, BTreeMap<&'static str, usize>> = HashMap::new();
        for (_, site, jump) in &sites {
            for wanted in &site.uses {
                if let Use::Probe { probe, .. } = *wanted {
                    *tactics.entry(probe).or_default().entry(jump.tactic).or_default() += 1;
                }
            }
        }
        let written = written(&code, start, &writing.changes(), parts.seen)?;
        let is_trap = |change: &&Change| change.written() == [INT3];
        let own = |change: &&Change| sites.binary_search_by_key(&change.address(), |site| site.0).is_err();
        let made = writing.batch.made();
        let traps = made.iter().filter(is_trap).filter(own).copied().collect();
        let left =
            left.iter().map(|left| (Rc::new((*left.site.0).clone()), left.reason.clone(), left.can_trap));
        Some(Arming {
            around: HandlerAddresses::of(parts.handler_memory),
            claims: parts.handler_memory.claims,
            described: parts.described,
            module: parts.module,
            seen: parts.seen.to_vec(),
            trampolines: trampolines.trampolines.clone(),
            ways: trampolines.ways.clone(),
            followers: trampolines.followers.clone(),
            planner: parts.planner,
            room: parts.room,
            areas: parts.areas,
            pads: parts.pads,
            left: left.collect(),
            file: OnceCell::new(),
            listed: OnceCell::new(),
            copies: Cell::new(0),
            keep,
            code,
            start,
            sites,
            pieces,
            fields,
            is_fixed,
            written,
            traps,
            tactics,
        })
    }

    /// Its trampolines and landing pads as a file; none if there is no memory for it.
    pub(super) fn file(&self) -> Option<&CodeFile> {
        let mapped = || self.areas.iter().chain(&self.pads).copied().collect();
        self.file.get_or_init(|| CodeFile::of(mapped(), &self.pieces).ok()).as_ref()
    }

    /// The number that records of its handlers carry.
    pub(super) fn number(&self) -> u32 {
        self.keep.number
    }

    pub(super) fn program(&self) -> usize {
        self.keep.circumstances.program
    }

    /// Adds the sites of all copies since the last count to the counts of its probes.
    pub(super) fn count(&self, probes: &mut [Probe]) {
        let copies = self.copies.take();
        if copies == 0 {
            return;
        }
        for (&probe, tactics) in &self.tactics {
            for (&tactic, &count) in tactics {
                probes[probe].sites.jumps_more(tactic, count * copies);
            }
        }
    }
}

/// The code with its changes made, in pieces: changes close to one another are one piece. `seen`
/// has the traps that were there before. None if a change is outside of the code.
fn written(code: &Kept, start: u64, changes: &[Change], seen: &[u64]) -> Option<Vec<Piece>> {
    let mut places: Vec<(u64, &Change)> = changes.iter().map(|change| (change.address(), change)).collect();
    places.sort_unstable_by_key(|(address, _)| *address);
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, change) in places {
        let (bytes, end) = (change.written(), address + change.written().len() as u64);
        let known = |from: u64, to: u64| {
            let (from, to) = (from.checked_sub(start)?, to.checked_sub(start)?);
            code.bytes().get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
        };
        known(address, end)?;
        match pieces.last_mut().filter(|(begin, last)| address < begin + last.len() as u64 + CLOSE) {
            Some((begin, last)) => {
                let behind = *begin + last.len() as u64;
                if behind < end {
                    last.extend_from_slice(known(behind, end)?);
                }
                last[(address - *begin) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            None => pieces.push((address, bytes.to_vec())),
        }
    }
    for (begin, piece) in &mut pieces {
        let inside = *begin..*begin + piece.len() as u64;
        seen.iter()
            .filter(|trap| inside.contains(trap))
            .for_each(|trap| piece[(trap - *begin) as usize] = INT3);
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7000_0000_0000;

    fn written_at(places: &[(u64, &[u8])], seen: &[u64]) -> Option<Vec<Piece>> {
        let code: Vec<u8> = (0..20_000_u32).map(|byte| (byte % 251) as u8).collect();
        let of = |(offset, bytes): &(u64, &[u8])| {
            let original = &code.get(*offset as usize..)?.get(..bytes.len())?;
            Some(Change::new(START + offset, original, bytes))
        };
        let outside = Change::new(START + 30_000, &[1], &[2]);
        let changes: Vec<Change> = places.iter().map(|place| of(place).unwrap_or(outside)).collect();
        let seen: Vec<u64> = seen.iter().map(|offset| START + offset).collect();
        written(&Kept::of(code), START, &changes, &seen)
    }

    #[test]
    fn what_lies_close_together_is_written_in_one_piece_with_what_is_between() {
        // Two changes close to each other, in any order, one of which covers the other's end; and
        // one far away.
        let pieces =
            written_at(&[(110, &[9; 5]), (100, &[7; 2]), (19_000, &[8; 3]), (113, &[6])], &[105, 50]);
        let pieces = pieces.expect("all of them are in the code");
        let near = [7, 7, 102, 103, 104, INT3, 106, 107, 108, 109, 9, 9, 9, 6, 9];
        assert_eq!(pieces, [(START + 100, near.to_vec()), (START + 19_000, vec![8; 3])]);
    }

    #[test]
    fn what_is_changed_elsewhere_is_not_copied() {
        assert_eq!(written_at(&[(100, &[1]), (30_000, &[2])], &[]), None);
        assert_eq!(written_at(&[], &[]), Some(Vec::new()));
    }
}
