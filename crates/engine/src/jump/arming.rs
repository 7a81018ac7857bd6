//! What arming a module came to in one process, for others that map the same file: a program that is executed again and again.
//!
//! All of it - the sites, their trampolines and landing pads, what is written for them - moves with the module, by whole pages: distances stay what
//! they are, and where bytes hold addresses is known ([`Trampoline::site_fields`]). Where a process has the same memory for handlers at the same addresses, and
//! free memory where the trampolines are to be, nothing is planned nor compiled for it. Sites and trampolines stay those of the process in which
//! they were worked out; each is moved when it is asked for.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use image::Image;
use jit::SiteField;
use patch::tactic::Planner;
use process::{Mapping, Memory, Module};

use super::cells::Domain;
use super::contexts::Contexts;
use super::ground::Ground;
use super::room::Room;
use super::texts::Kept;
use super::trampoline::Trampoline;
use super::writing::Writing;
use super::{Left, New, write};
use crate::change::Change;
use crate::ledger::{EnteredList, Full, Listed};
use crate::observer::Note;
use crate::placed::About;
use crate::program::{Probe, SiteCounts};
use crate::site::{Code, INT3, Jump, LONGEST, Planned, Site, Use};
use crate::space::{ModuleKey, module_key};
use crate::tracer::Tracer;

/// Armings that are kept at most, and sites of them all together.
const MOST: usize = 64;
const MOST_SITES: usize = 1 << 19;
/// Landing pads that are closer together than this are written together, and so are sites.
pub(super) const NEAR: u64 = 2048;
const CLOSE: u64 = 4096;

/// What has to be the same in a process for an arming to hold there: what was decided from, beside the module's file and the memory for handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// The program's number.
    pub(crate) program: usize,
    /// Whether the process's program has not begun, and whether nobody has executed the module's code.
    pub(crate) starting: bool,
    pub(crate) fresh: bool,
    /// Whether threads have shadow stacks.
    pub(crate) shadow_stacks: bool,
}

/// What is asked for while a module is armed, so that the arming can be kept.
#[derive(Debug)]
pub(crate) struct Keep {
    /// The number that records of its handlers are known by; never 0.
    pub(crate) number: u32,
    pub(crate) circumstances: Circumstances,
    pub(crate) image: Arc<Image>,
    /// How many sites were planned, for which probes, and what is to be known of them.
    pub(crate) count: usize,
    pub(crate) probes: Vec<About>,
    pub(crate) remarks: Vec<Note>,
}

/// The memory for handlers, as far as their code has addresses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Around {
    identity: u64,
    cells: u64,
    contexts: Contexts,
    ring_size: u64,
    code: (u64, u64),
    hidden: u64,
}

impl Around {
    fn of(ground: &Ground) -> Around {
        let Ground { identity, cells, contexts, ring_size, code, hidden, .. } = *ground;
        Around { identity, cells, contexts, ring_size, code, hidden }
    }
}

/// Bytes for one place.
type Piece = (u64, Vec<u8>);

/// What arming a module came to.
pub(crate) struct Arming {
    keep: Keep,
    module: ModuleKey,
    around: Around,
    /// Whether a handler works in a context.
    pub(super) claims: bool,
    /// The ground with the descriptions of handlers, if there are any that are new, and which there were before.
    pub(super) described: Option<(u64, Ground)>,
    /// The code of the mapping, and where it was.
    pub(super) code: Rc<Kept>,
    pub(super) start: u64,
    /// Where there were traps before, ascending.
    seen: Vec<u64>,
    /// The sites, ascending.
    sites: Vec<(u64, Rc<Site>, Rc<Jump>)>,
    trampolines: BTreeMap<u64, Rc<Trampoline>>,
    ways: BTreeMap<u64, (u64, u64)>,
    followers: BTreeMap<u64, Vec<u64>>,
    pub(super) planner: Rc<Planner>,
    pub(super) room: Room,
    areas: Vec<(u64, u64)>,
    pads: Vec<(u64, u64)>,
    /// The bytes of trampolines and pads, and the fields in them that hold addresses: each with the piece that it is in.
    pieces: Vec<Piece>,
    fields: Vec<(usize, SiteField)>,
    /// The code where it is changed, as it is then.
    written: Vec<Piece>,
    /// Sites that did not become jumps: with the reason, and whether they trap; and the changes that make them trap.
    left: Vec<(Rc<Site>, String, bool)>,
    traps: Vec<Change>,
    /// The list of its changes in the ledger, once it was copied.
    listed: OnceCell<Rc<Listed>>,
    /// How many sites each probe has by each tactic.
    tactics: HashMap<usize, BTreeMap<&'static str, usize>>,
    /// How often it was copied since that was counted last.
    copies: Cell<usize>,
    /// The domains in which its probes are known to be placed.
    domains: RefCell<BTreeSet<Domain>>,
}

impl std::fmt::Debug for Arming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arming {{ number: {}, sites: {} }}", self.keep.number, self.sites.len())
    }
}

/// What an arming is made of when it was carried out.
pub(crate) struct Parts<'a> {
    pub(crate) keep: Keep,
    pub(crate) module: ModuleKey,
    pub(crate) ground: &'a Ground,
    pub(crate) described: Option<(u64, Ground)>,
    pub(crate) start: u64,
    pub(crate) code: Rc<Kept>,
    pub(crate) seen: &'a [u64],
    pub(crate) writing: &'a Writing,
    pub(crate) trampolines: &'a New,
    pub(crate) planner: Rc<Planner>,
    pub(crate) room: Room,
    pub(crate) areas: Vec<(u64, u64)>,
    pub(crate) pads: Vec<(u64, u64)>,
    /// The bytes of trampolines, by address; and of pads.
    pub(crate) trampoline_bytes: &'a [Piece],
    pub(crate) pad_bytes: &'a BTreeMap<u64, Vec<u8>>,
    pub(crate) left: &'a [Left],
    pub(crate) domain: Domain,
}

impl Arming {
    /// What can be moved of what was carried out; none if it is of this process alone.
    pub(crate) fn of(parts: Parts<'_>) -> Option<Arming> {
        let Parts { keep, trampolines, writing, code, start, left, .. } = parts;
        let mut pieces = write::together(
            parts.trampoline_bytes.iter().map(|(address, bytes)| (*address, &bytes[..])),
            super::room::ALIGNMENT,
        );
        let mut fields = Vec::new();
        for trampoline in trampolines.trampolines.values() {
            let at = pieces.partition_point(|(begin, _)| *begin <= trampoline.start()).checked_sub(1)?;
            let offset = (trampoline.start() - pieces[at].0) as u32;
            fields.extend(trampoline.site_fields()?.into_iter().map(|field| (at, field.behind(offset))));
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
            around: Around::of(parts.ground),
            claims: parts.ground.claims,
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
            listed: OnceCell::new(),
            copies: Cell::new(0),
            domains: RefCell::new(BTreeSet::from([parts.domain])),
            keep,
            code,
            start,
            sites,
            pieces,
            fields,
            written,
            traps,
            tactics,
        })
    }

    /// What records of its handlers are known by.
    pub(super) fn number(&self) -> u32 {
        self.keep.number
    }

    /// Adds what was counted by copying it to the counts of its probes.
    fn count(&self, probes: &mut [Probe]) {
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

/// The code where it is changed, as it is then: what lies close together is one piece. `seen` is where there were traps before. None if a change is elsewhere.
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

/// An arming in a process in which all of it is so many bytes farther.
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
    /// The module, as it is mapped in this process.
    pub(crate) fn module(&self) -> ModuleKey {
        let (device, inode, bias) = self.arming.module;
        (device, inode, bias.wrapping_add(self.by))
    }

    /// What records of its handlers are known by, and how much farther their sites are.
    pub(crate) fn moved(&self) -> (u32, u64) {
        (self.arming.keep.number, self.by)
    }

    /// The program's number.
    pub(crate) fn program(&self) -> usize {
        self.arming.keep.circumstances.program
    }

    /// How many sites were planned, and what is to be known of them.
    pub(crate) fn count(&self) -> (usize, &[Note]) {
        (self.arming.keep.count, &self.arming.keep.remarks)
    }

    /// The probes for which they were planned.
    pub(crate) fn probes(&self) -> Vec<About> {
        let moved = |&(address, program, probe): &About| (self.there(address), program, probe);
        self.arming.keep.probes.iter().map(moved).collect()
    }

    /// An address here, where it was worked out.
    fn origin(&self, address: u64) -> u64 {
        address.wrapping_sub(self.by)
    }

    /// An address where it was worked out, here.
    fn there(&self, address: u64) -> u64 {
        address.wrapping_add(self.by)
    }

    fn index(&self, address: u64) -> Option<usize> {
        let origin = self.origin(address);
        self.arming.sites.binary_search_by_key(&origin, |(address, ..)| *address).ok()
    }

    /// Whether there is a site of it at an address.
    pub(crate) fn has_site(&self, address: u64) -> bool {
        self.index(address).is_some()
    }

    /// The site at an address, and its jump.
    pub(crate) fn site(&self, address: u64) -> Option<(Site, Jump)> {
        let (_, site, jump) = &self.arming.sites[self.index(address)?];
        Some((site.moved(self.by), jump.moved(self.by)))
    }

    /// Those of some code, in the addresses of the process in which they were worked out.
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

    /// The addresses of its sites in some code, ascending.
    pub(crate) fn sites_in(&self, addresses: Range<u64>) -> impl Iterator<Item = u64> {
        self.slice(&addresses).iter().map(|(address, ..)| self.there(*address))
    }

    /// Shows who wants to know of each site.
    pub(crate) fn each_use(&self, mut show: impl FnMut(&Use)) {
        self.arming.sites.iter().for_each(|(_, site, _)| site.uses.iter().for_each(&mut show));
    }

    /// Shows what is written for the sites in some code.
    pub(crate) fn each_change(&self, addresses: Range<u64>, mut show: impl FnMut(&Change)) {
        for (.., jump) in self.slice(&addresses) {
            jump.changes.iter().for_each(|change| show(&change.moved(self.by)));
        }
    }

    /// All that is written for its sites and its traps.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let jumps = self.arming.sites.iter().flat_map(|(.., jump)| &jump.changes);
        jumps.chain(&self.arming.traps).map(|change| change.moved(self.by))
    }

    /// Enters what is written for its sites in the ledger, until what is returned is dropped.
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

    /// What makes those sites trap that do.
    pub(crate) fn traps(&self) -> Vec<Change> {
        self.arming.traps.iter().map(|change| change.moved(self.by)).collect()
    }

    /// The jump on the way to a trampoline that is at an address: its site, and the trampoline.
    pub(crate) fn way(&self, at: u64) -> Option<(u64, u64)> {
        let &(site, trampoline) = self.arming.ways.get(&self.origin(at))?;
        Some((self.there(site), self.there(trampoline)))
    }

    /// All of these: where each is, its site, and its trampoline.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let ways = self.arming.ways.iter();
        ways.map(|(&at, &(site, trampoline))| (self.there(at), self.there(site), self.there(trampoline)))
    }

    /// Where the trampoline begins that begins last before an address, or there.
    pub(crate) fn trampoline_before(&self, address: u64) -> Option<u64> {
        let before = self.arming.trampolines.range(..=self.origin(address)).next_back();
        let (&start, trampoline) = before?;
        trampoline.contains(self.origin(address)).then(|| self.there(start))
    }

    /// The trampoline that begins at an address.
    pub(crate) fn trampoline(&self, start: u64) -> Option<Trampoline> {
        Some(self.arming.trampolines.get(&self.origin(start))?.moved(self.by))
    }

    /// Where its trampolines begin.
    pub(crate) fn trampolines(&self) -> impl Iterator<Item = u64> {
        self.arming.trampolines.keys().map(|&start| self.there(start))
    }

    /// Whether a trampoline has a copy of an instruction behind its own.
    pub(crate) fn has_follower(&self, address: u64) -> bool {
        self.arming.followers.contains_key(&self.origin(address))
    }

    /// The mapping of its code in a process.
    pub(super) fn mapping<'a>(&self, mappings: &'a [Mapping]) -> Option<&'a Mapping> {
        let start = self.there(self.arming.start);
        let length = self.arming.code.bytes().len() as u64;
        mappings.iter().find(|mapping| mapping.start == start && mapping.end - mapping.start == length)
    }

    /// Whether these are the sites that trapped in its code before.
    pub(super) fn has_seen(&self, traps: impl Iterator<Item = u64>) -> bool {
        traps.eq(self.arming.seen.iter().map(|&trap| self.there(trap)))
    }

    /// Whether handlers find all where their code has it.
    pub(super) fn suits(&self, ground: &Ground) -> bool {
        self.arming.around == Around::of(ground)
    }

    /// Whether handlers need the table of what they do not see.
    pub(super) fn hides(&self) -> bool {
        self.arming.around.hidden != 0
    }

    /// Memory that is to be mapped for trampolines, and for landing pads: addresses and sizes.
    pub(super) fn mapped(&self) -> [Vec<(u64, u64)>; 2] {
        let moved = |all: &[(u64, u64)]| all.iter().map(|&(base, size)| (self.there(base), size)).collect();
        [moved(&self.arming.areas), moved(&self.arming.pads)]
    }

    /// Sites that do not become jumps.
    pub(super) fn left(&self) -> Vec<Left> {
        let left = |(site, reason, can_trap): &(Rc<Site>, String, bool)| Left {
            site: Planned(Box::new(site.moved(self.by))),
            reason: reason.clone(),
            can_trap: *can_trap,
            was: None,
        };
        self.arming.left.iter().map(left).collect()
    }

    /// Writes trampolines and landing pads.
    pub(super) fn write_code(&self, memory: &Memory) -> std::io::Result<()> {
        let mut fields = self.arming.fields.iter().peekable();
        let mut moved = Vec::new();
        for (number, (address, bytes)) in self.arming.pieces.iter().enumerate() {
            if fields.peek().is_none_or(|(piece, _)| *piece > number) || self.by == 0 {
                memory.poke(self.there(*address), bytes)?;
                continue;
            }
            moved.clear();
            moved.extend_from_slice(bytes);
            while let Some((_, field)) = fields.next_if(|(piece, _)| *piece == number) {
                field.add(self.by, &mut moved);
            }
            memory.poke(self.there(*address), &moved)?;
        }
        Ok(())
    }

    /// Writes the sites, and the traps, all threads being held.
    pub(super) fn write_sites(&self, memory: &Memory, _held: &crate::hold::Held) -> std::io::Result<()> {
        let mut written = Ok(());
        for (address, bytes) in &self.arming.written {
            // What cannot be written does not keep the rest from being written.
            written = written.and(memory.poke(self.there(*address), bytes));
        }
        written
    }

    /// Whether the program has still what was written for it, in a process where this may have been unmapped, or mapped anew: it is looked at one site of
    /// each page.
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

    /// It was carried out in a process of a domain: its probes are placed there. Shows each site that is to be noted as such.
    pub(super) fn count_copy(&self, domain: Domain, mut note: impl FnMut(&[Use], u64, &'static str)) {
        self.arming.copies.set(self.arming.copies.get() + 1);
        if self.arming.domains.borrow_mut().insert(domain) {
            for (address, site, jump) in &self.arming.sites {
                note(&site.uses, self.there(*address), jump.tactic);
            }
        }
    }
}

impl Tracer<'_> {
    /// Keeps an arming for other processes.
    pub(super) fn keep_arming(&mut self, arming: Arming) {
        for gone in self.cache.armings.keep(arming) {
            if let Some(program) = self.programs.get_mut(gone.keep.circumstances.program) {
                gone.count(&mut program.probes);
            }
        }
    }

    /// Counts what was copied of a program's armings, and forgets them: its probes are about to be others.
    pub(crate) fn forget_armings(&mut self, program: usize) {
        self.count_copies(program);
        self.cache.armings.forget(program);
    }

    /// Counts for a program's probes what was copied of its armings.
    pub(crate) fn count_copies(&mut self, program: usize) {
        if let Some(of) = self.programs.get_mut(program) {
            self.cache.armings.count(program, &mut of.probes);
        }
    }
}

/// The armings that are kept.
#[derive(Debug, Default)]
pub(crate) struct Armings {
    all: Vec<Rc<Arming>>,
    /// The last number that was given.
    last: u32,
    /// How often one was copied.
    pub(crate) copied: u64,
}

impl Armings {
    /// A number for one that may be kept.
    pub(crate) fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.last
    }

    /// Keeps one; the oldest ones make room.
    fn keep(&mut self, arming: Arming) -> Vec<Rc<Arming>> {
        self.all.push(Rc::new(arming));
        let sites = |all: &[Rc<Arming>]| all.iter().map(|arming| arming.sites.len()).sum::<usize>();
        let mut gone = Vec::new();
        while self.all.len() > MOST || self.all.len() > 1 && sites(&self.all) > MOST_SITES {
            gone.push(self.all.remove(0));
        }
        gone
    }

    /// Those that may hold for a module, which is as they were made for.
    pub(crate) fn find(&self, circumstances: &Circumstances, module: &Module) -> Vec<Copied> {
        let is_one = |arming: &&Rc<Arming>| {
            arming.keep.circumstances == *circumstances && Arc::ptr_eq(&arming.keep.image, &module.image)
        };
        let copied = |arming: &Rc<Arming>| {
            let by = module_key(module).2.wrapping_sub(arming.module.2);
            Copied { arming: Rc::clone(arming), by }
        };
        self.all.iter().rev().filter(is_one).map(copied).collect()
    }

    /// Whether one is of a program.
    pub(crate) fn any_of(&self, program: usize) -> bool {
        self.all.iter().any(|arming| arming.keep.circumstances.program == program)
    }

    /// Counts for the probes of a program what was copied of it.
    pub(crate) fn count(&self, program: usize, probes: &mut [Probe]) {
        let of_program = |arming: &&Rc<Arming>| arming.keep.circumstances.program == program;
        self.all.iter().filter(of_program).for_each(|arming| arming.count(probes));
    }

    /// The sites of a program's probe, with those that were copied and are not counted yet.
    pub(crate) fn with_copies(&self, program: usize, probe: usize, mut sites: SiteCounts) -> SiteCounts {
        let of_program = |arming: &&Rc<Arming>| arming.keep.circumstances.program == program;
        for arming in self.all.iter().filter(of_program).filter(|arming| arming.copies.get() > 0) {
            for (&tactic, &count) in arming.tactics.get(&probe).into_iter().flatten() {
                sites.jumps_more(tactic, count * arming.copies.get());
            }
        }
        sites
    }

    /// Forgets those of a program: its probes are not what they were.
    pub(crate) fn forget(&mut self, program: usize) {
        self.all.retain(|arming| arming.keep.circumstances.program != program);
    }
}
