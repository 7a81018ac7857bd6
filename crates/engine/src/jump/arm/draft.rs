//! What a [`Draft`] has: everything that is to be done to arm one module's sites, worked out while
//! the program runs; and what it starts from ([`Basis`]).
//!
//! `draft/drafter.rs` makes it: in it are the sites as jumps or traps, the memory to be mapped, the
//! bytes to be written, and the sites that are left. `carry_out/armer.rs` takes it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use patch::tactic::Write;
use process::{Mapping, Module};

use super::handlers::ReadySite;
use super::writing::Writing;
use crate::change::Change;
use crate::jump::arming::Keep;
use crate::jump::not_jumped::NotJumped;
use crate::jump::text::Text;
use crate::jump::trampoline_allocator::TrampolineAllocator;
use crate::jump::{HandlerMemory, New, Planners};
use crate::mapping;
use crate::module_key::{Generation, ModuleKey};
use crate::reason::NoJump;
use crate::site::{Jump, Planned};
use crate::slots::Growth;

mod space;

pub(super) mod drafter;

/// Bytes of code, from a site on, that are looked at to judge whether the flags are live there.
const AHEAD: usize = 128;

/// What is known of the jumps of an address space: what a draft starts from, and the state after
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// Of the address space.
    pub(crate) generation: Generation,
    pub(crate) handler_memory: Option<HandlerMemory>,
    pub(crate) planners: Planners,
    pub(crate) room: TrampolineAllocator,
    /// Memory that this draft, and earlier ones that build on the same state, will map.
    reserved: Vec<(u64, u64, Growth)>,
    /// Memory near which the draft must put nothing.
    avoided: Vec<(u64, u64, Growth)>,
}

/// What may be copied to other processes keeps this far away from foreign mappings: the kernel maps
/// large files at multiples of 2 MiB, so in another process modules may be closer to each other.
const AWAY: u64 = 4 << 20;

impl Basis {
    /// What is taken in a process's address space, ascending: mapped, reserved or avoided.
    pub(crate) fn taken(&self, tid: i32, mappings: &[Mapping]) -> Vec<(u64, u64, Growth)> {
        let mut taken = mapping::taken(tid, mappings);
        taken.extend(&self.reserved);
        taken.extend(&self.avoided);
        taken.sort_by_key(|&(start, ..)| start);
        taken
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
    pub(crate) to_map: ToMap,
    /// The code as it was read, and the traps of ours that were in it then.
    pub(crate) texts: Vec<Text>,
    pub(super) seen: Vec<u64>,
    pub(super) jumps: Vec<PlannedJump>,
    pub(crate) trampolines: New,
    pub(crate) bytes: DraftBytes,
    /// The `int3`s of sites that will trap.
    pub(super) traps: Vec<Change>,
    /// The jumps and the traps, ready to be written.
    pub(crate) writing: Writing,
    pub(crate) left: Vec<NotJumped>,
    pub(super) to_keep: ToKeep,
    /// Sites that are jumps and become traps, because others could not be armed otherwise.
    pub(crate) demoted: Vec<NotJumped>,
}

/// Memory that a draft has to be mapped.
#[derive(Debug, Default)]
pub(crate) struct ToMap {
    /// Whether handler memory must be mapped first.
    pub(crate) maps_handler_memory: bool,
    /// Where to map the table of memory that handlers must not see
    /// ([`Hidden`](crate::jump::Hidden)), if it is to be mapped.
    pub(crate) hidden: Option<u64>,
    /// Memory to be mapped for trampolines, and for landing pads: addresses and sizes.
    pub(crate) areas: Vec<(u64, u64)>,
    pub(crate) pads: Vec<(u64, u64)>,
}

/// Bytes that a draft has to be written, but for the sites themselves.
#[derive(Debug, Default)]
pub(crate) struct DraftBytes {
    /// The bytes of trampolines, and of landing pads in pages that are newly mapped: no thread is
    /// there yet.
    pub(crate) code: Vec<(u64, Vec<u8>)>,
    pub(crate) new_page_pads: BTreeMap<u64, Vec<u8>>,
    /// Landing pads in pages that are mapped already.
    pub(crate) old_page_pads: Vec<Write>,
    /// Original bytes to be restored.
    pub(crate) restore: Vec<Write>,
}

/// What is needed if the result of a draft is to be kept for other processes.
#[derive(Debug, Default)]
pub(crate) struct ToKeep {
    /// The data to keep with it, if it is to be kept.
    pub(super) keep: Option<Keep>,
    /// Its own memory for trampolines.
    pub(super) own_room: TrampolineAllocator,
    /// Handler memory with new descriptions of handlers, after the state of the descriptions
    /// before.
    pub(super) described: Option<(u64, HandlerMemory)>,
}

impl Draft {
    /// The sites to be armed, as they were before the draft.
    pub(crate) fn into_sites(self) -> impl Iterator<Item = Planned> {
        let asked = self.jumps.into_iter().filter(|drafted| drafted.asked);
        let asked = asked.map(|drafted| drafted.planned).chain(self.writing.into_sites());
        asked.chain(self.left.into_iter().map(|left| left.site))
    }

    pub(super) fn give_no_jump(
        &mut self,
        sites: impl IntoIterator<Item = (Planned, NoJump)>,
        can_trap: bool,
    ) {
        let left = sites.into_iter().map(|(site, reason)| NotJumped { site, reason, can_trap, was: None });
        self.left.extend(left);
    }
}

/// A site; and why it gets no jump, if that is known already.
type Wanted = (Planned, Option<NoJump>);

/// The sites of one mapping.
pub(super) struct Group {
    pub(super) text: Text,
    pub(super) ready: BTreeMap<u64, ReadySite>,
    /// Sites that will trap, and why.
    pub(super) others: Vec<(Planned, NoJump)>,
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
    /// Gives up the draft: all of its sites, even those that could be jumps, are left for this
    /// reason.
    fn into_all_left(mut self, can_trap: bool, reason: NoJump) -> Vec<NotJumped> {
        let mut left = std::mem::take(&mut self.left);
        left.extend(self.into_sites().map(|site| NotJumped {
            site,
            reason: reason.clone(),
            can_trap,
            was: None,
        }));
        left
    }
}
