//! Plans the arming of one module's sites while the program runs. The result is a [`Draft`].
//!
//! Most instructions are shorter than a jump; [`patch::tactic`] plans how a jump fits nevertheless,
//! for all sites of a mapping at once. This file gives the planner what it has to know of the
//! process, compiles the handlers, chooses places for everything to be mapped, and collects
//! everything to be written. The process is only read; `carry` executes the draft.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use patch::tactic::Write;
use process::{Mapping, Module};

use super::area;
use super::arming::Keep;
use super::handlers::ReadySite;
use super::low_room::{ALIGNMENT, Room};
use super::plan_input::NEAR;
use super::tail;
use super::text::Text;
use super::writing::Writing;
use super::{HandlerMemory, New, NotJumped, Planners};
use crate::change::Change;
use crate::mapping;
use crate::site::{Jump, Planned};
use crate::slots::Growth;
use crate::space::{Space};
use crate::module_key::{Generation, ModuleKey};

mod tracer;

/// Bytes of code, from a site on, that are looked at to judge whether the flags are live there.
const AHEAD: usize = 128;

/// What is known of the jumps of an address space: what a draft starts from, and the state after
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// Of the address space.
    pub(crate) generation: Generation,
    pub(crate) ground: Option<HandlerMemory>,
    pub(crate) planners: Planners,
    pub(crate) room: Room,
    /// Memory that this draft, and earlier ones that build on the same state, will map.
    reserved: Vec<(u64, u64, Growth)>,
    /// Memory near which the draft must put nothing.
    avoided: Vec<(u64, u64, Growth)>,
}

/// What may be copied to other processes keeps this far away from foreign mappings: the kernel maps
/// large files at multiples of 2 MiB, so in another process modules may be closer to each other.
const AWAY: u64 = 4 << 20;

impl Basis {
    /// The present state.
    pub(crate) fn of(space: &Space) -> Basis {
        Basis {
            generation: space.generation,
            ground: space.ground.clone(),
            planners: space.planners.clone(),
            room: space.jumps.room.clone(),
            reserved: Vec::new(),
            avoided: Vec::new(),
        }
    }

    /// What is taken in a process's address space, ascending: mapped, reserved or avoided.
    pub(crate) fn taken(&self, tid: i32, mappings: &[Mapping]) -> Vec<(u64, u64, Growth)> {
        let mut taken = mapping::taken(tid, mappings);
        taken.extend(&self.reserved);
        taken.extend(&self.avoided);
        taken.sort_by_key(|&(start, ..)| start);
        taken
    }

    /// Avoids the surroundings of mappings that are neither the module's own nor (like earlier
    /// copies) ours.
    fn avoid(&mut self, mappings: &[Mapping], module: &Module, space: &Space) {
        let mut ours: Vec<(u64, u64)> = space.jumps.mapped().collect();
        ours.sort_unstable();
        let is_ours = |mapping: &&Mapping| {
            let at = ours.partition_point(|&(base, _)| base <= mapping.start);
            at.checked_sub(1).is_some_and(|at| mapping.start - ours[at].0 < ours[at].1)
        };
        let others = mappings.iter().filter(|mapping| !module.span().contains(&mapping.start));
        let far = |mapping: &Mapping| {
            let growth = mapping::growth(mapping);
            (mapping.start.saturating_sub(AWAY), mapping.end.saturating_add(AWAY), growth)
        };
        self.avoided = others.filter(|mapping| !is_ours(mapping)).map(far).collect();
    }

    pub(super) fn reserve(&mut self, base: u64, size: u64) {
        self.reserved.push((base, base + size, Growth::None));
    }
}

pub(crate) struct PlannedJump {
    pub(crate) planned: Planned,
    pub(crate) jump: Rc<Jump>,
    /// Whether it is one of the sites to be armed; else it was moved for one of them, or gets
    /// another jump.
    pub(crate) asked: bool,
}

/// Everything that is to be done to arm sites of a module.
#[derive(Default)]
pub(crate) struct Draft {
    /// The generation of the state that it builds on; and the state after it, none if there is
    /// nothing to do.
    pub(crate) generation: Generation,
    pub(crate) after: Option<Basis>,
    pub(crate) module: ModuleKey,
    /// Whether the ground must be mapped first.
    pub(crate) lays_ground: bool,
    /// Where to map the table of memory that handlers must not see ([`Hidden`](super::Hidden)), if
    /// it is to be mapped.
    pub(crate) hidden: Option<u64>,
    /// Memory to be mapped for trampolines, and for landing pads: addresses and sizes.
    pub(crate) areas: Vec<(u64, u64)>,
    pub(crate) pads: Vec<(u64, u64)>,
    /// The code as it was read, and the traps of ours that were in it then.
    pub(crate) texts: Vec<Text>,
    pub(super) seen: Vec<u64>,
    pub(super) jumps: Vec<PlannedJump>,
    pub(crate) trampolines: New,
    /// The bytes of trampolines, and of landing pads in pages that are newly mapped: no thread is
    /// there yet.
    pub(crate) code: Vec<(u64, Vec<u8>)>,
    pub(crate) new_page_pads: BTreeMap<u64, Vec<u8>>,
    /// Landing pads in pages that are mapped already.
    pub(crate) old_page_pads: Vec<Write>,
    /// Original bytes to be restored.
    pub(crate) restore: Vec<Write>,
    /// The `int3`s of sites that will trap.
    pub(super) traps: Vec<Change>,
    /// The jumps and the traps, ready to be written.
    pub(crate) writing: Writing,
    pub(crate) left: Vec<NotJumped>,
    /// If the result is to be kept for other processes: the data to keep with it, its own memory
    /// for trampolines, and the ground with new descriptions of handlers (after the state of the
    /// descriptions before).
    pub(super) keep: Option<Keep>,
    pub(super) own_room: Room,
    pub(super) described: Option<(u64, HandlerMemory)>,
    /// Sites that are jumps and become traps, because others could not be armed otherwise.
    pub(crate) demoted: Vec<NotJumped>,
}

impl Draft {
    /// The sites to be armed, as they were before the draft.
    pub(crate) fn into_sites(self) -> impl Iterator<Item = Planned> {
        let asked = self.jumps.into_iter().filter(|drafted| drafted.asked);
        let asked = asked.map(|drafted| drafted.planned).chain(self.writing.into_sites());
        asked.chain(self.left.into_iter().map(|left| left.site))
    }

    /// Whether its code has exactly the traps that were there when the draft was made.
    pub(crate) fn has_seen_traps(&self, space: &Space) -> bool {
        let traps = self.texts.iter().flat_map(|text| space.traps_in(text.range()));
        traps.eq(self.seen.iter().copied())
    }

    pub(super) fn leave(&mut self, sites: impl IntoIterator<Item = (Planned, String)>, can_trap: bool) {
        let left = sites.into_iter().map(|(site, reason)| NotJumped { site, reason, can_trap, was: None });
        self.left.extend(left);
    }
}

/// A site; and why it gets no jump, if that is known already.
type Wanted = (Planned, Option<String>);

/// The sites of one mapping.
pub(super) struct Group {
    pub(super) text: Text,
    pub(super) ready: BTreeMap<u64, ReadySite>,
    /// Sites that will trap, and why.
    pub(super) others: Vec<(Planned, String)>,
}

/// Where the program may have its heap in another process: the kernel puts it somewhere in the GiB
/// behind the program, and it may grow. Empty for other modules.
fn heaps(tid: i32, module: &Module) -> Range<u64> {
    const BEHIND: u64 = (1 << 30) + (256 << 20);
    let behind = module.span().end..module.span().end.saturating_add(BEHIND);
    let has_heap = process::heap_start(tid).is_some_and(|heap| behind.contains(&heap));
    if has_heap { behind } else { 0..0 }
}

/// A result is kept only with at most `FEW` landing pads where a heap may be: most heaps then miss
/// all of them. With more than `MANY` sites there are too many such pads.
const FEW: usize = 4;
const MANY: usize = 64;

impl Draft {
    /// Chooses areas for the trampolines of sites, and for copies of moved instructions, unless
    /// there is enough room already.
    fn choose_areas(
        &mut self,
        space: &Space,
        tid: i32,
        mappings: &[Mapping],
        groups: &[Group],
        known: &mut Basis,
        more_to_come: bool,
    ) -> Result<(), String> {
        let mut reach: RangeInclusive<u64> = 0..=u64::MAX;
        let (mut size, mut near) = (0, 0);
        let slot = (patch::SLOT_CAPACITY as u64).next_multiple_of(ALIGNMENT);
        for ready in groups.iter().flat_map(|group| group.ready.values()) {
            let layout = ready.layout();
            let own = layout.reach();
            reach = *reach.start().max(own.start())..=*reach.end().min(own.end());
            size += (layout.size() + tail::USUAL).next_multiple_of(ALIGNMENT) + 2 * slot;
            near = ready.planned.0.address.min(u64::MAX - NEAR);
        }
        let first = near.saturating_sub(NEAR).max(*reach.start());
        let last = (near + NEAR).min(*reach.end());
        if known.room.has(size, area::AREA, &(first..=last)) {
            return Ok(());
        }
        let lowest = groups.iter().map(|group| group.text.range().start).min().unwrap_or(near);
        let taken = known.taken(tid, mappings);
        let areas = area::choose(&taken, size, &(first..=last), near, lowest, more_to_come)
            .ok_or("there is not enough free memory within 1 GiB of the module")?;
        mapping::count_mapping(mappings.len() + areas.len() - 1, space.mappings)?;
        for &(start, size) in &areas {
            known.room.add(start, size);
            known.reserve(start, size);
        }
        self.areas = areas;
        Ok(())
    }

    /// Gives up the draft: all of its sites, even those that could be jumps, are left for this
    /// reason.
    fn into_all_left(mut self, can_trap: bool, reason: &str) -> Vec<NotJumped> {
        let mut left = std::mem::take(&mut self.left);
        left.extend(self.into_sites().map(|site| NotJumped {
            site,
            reason: reason.to_owned(),
            can_trap,
            was: None,
        }));
        left
    }
}
