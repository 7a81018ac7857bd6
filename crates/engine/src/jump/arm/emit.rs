//! Emits the trampolines of a plan's jumps as bytes, and the changes that make the jumps.
//!
//! In: a plan of `patch`, and compiled handlers. Out: trampolines with their bytes and changes; or
//! obstacles.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use patch::Displaced;
use patch::tactic::{Jump as Shape, Plan, Write};

use super::handlers::ReadySite;
use super::plan_input::PlanInput;
use crate::jump::relocated_successors::{Behind, relocated_successors};
use crate::jump::shape;
use crate::jump::text::Text;
use crate::jump::trampoline_allocator::TrampolineAllocator;
use crate::jump::{Layout, Trampoline};
use crate::reason::NoJump;
use crate::site::{Armed, Jump, Planned};
use crate::site_use::Use;
use crate::sites::Sites;

/// The jumps of a plan, and the code that they lead to.
#[derive(Default)]
pub(crate) struct Emitted {
    /// Each with its site, unless the site is in `ready`.
    pub(crate) jumps: Vec<(Option<Planned>, Rc<Jump>)>,
    pub(crate) trampolines: Vec<Rc<Trampoline>>,
    pub(crate) code: Vec<(u64, Vec<u8>)>,
    pub(crate) pads: Vec<Write>,
    /// The intermediate jumps: address, site and trampoline of each.
    pub(crate) ways: Vec<(u64, u64, u64)>,
    /// Sites that become traps; and the tactic of the jump that each is now.
    pub(crate) demoted: Vec<(Planned, &'static str)>,
}

impl Emitted {
    /// Places a trampoline in `trampoline_allocator`; returns its start and its entry.
    fn put(
        &mut self,
        layout: Layout<'_>,
        room: &mut TrampolineAllocator,
        within: &Range<u64>,
        shape: &Shape,
    ) -> Result<(u64, u64), NoJump> {
        let (trampoline, bytes) = layout.put(room, within)?;
        if !trampoline.has_followers(shape) {
            return Err(NoJump::FollowersDoNotFit);
        }
        let place = (trampoline.start(), trampoline.entry());
        self.code.push((trampoline.start(), bytes));
        self.trampolines.push(Rc::new(trampoline));
        Ok(place)
    }
}

pub(crate) fn emit(
    around: &PlanInput<'_>,
    plan: &Plan,
    text: &Text,
    ready: &BTreeMap<u64, ReadySite>,
    room: &mut TrampolineAllocator,
) -> Result<Emitted, Vec<Obstacle>> {
    let (space, within) = (around.space, &around.trampolines);
    let mut emitted = Emitted::default();
    let stay = plan.traps.iter().filter(|(address, _)| around.stays_a_jump(*address));
    let stay: Vec<Obstacle> = stay.map(|(address, _)| in_the_way(*address)).collect();
    if !stay.is_empty() {
        return Err(stay);
    }
    let demoted = plan.traps.iter().filter_map(|(address, _)| around.jump_at(*address));
    emitted
        .demoted
        .extend(demoted.map(|(armed, jump)| (Planned(Box::new(armed.site().clone())), jump.tactic)));
    let count = plan.jumps.len();
    emitted.jumps.reserve(count);
    emitted.trampolines.reserve(count);
    emitted.code.reserve(count);
    emitted.ways.reserve(count);
    let shapes: HashMap<u64, &Shape> = plan.jumps.iter().map(|shape| (shape.address, shape)).collect();
    let trapped: HashSet<u64> = plan.traps.iter().map(|(address, _)| *address).collect();
    let behind = Following { sites: &space.sites, ready, shapes: &shapes, trapped: &trapped };
    for shape in &plan.jumps {
        let address = shape.address;
        let obstacle = |reason: NoJump| vec![Obstacle { at: address, reason, traps_too: false }];
        let mut planned = None;
        let mut followers = Vec::new();
        let next = address + shape.length as u64;
        let tail = |displaced: &Displaced| match displaced.falls_through() {
            true => relocated_successors(text, next, shape::end(shape), &around.kept, &behind),
            false => Vec::new(),
        };
        let (start, entry) = match (ready.get(&address), space.sites.get(&address)) {
            (Some(ready), _) => {
                let tail = tail(&ready.planned.0.displaced);
                let place = emitted.put(Layout { tail: &tail, ..ready.layout() }, room, within, shape);
                let place = place.map_err(obstacle)?;
                if !shape.followers.is_empty() {
                    followers = tail;
                }
                place
            }
            (None, Some(armed)) => {
                let jump = armed.jump().ok_or_else(|| obstacle(NoJump::TrapInTheWay))?;
                let (trampoline, _) =
                    space.jumps.at(jump.trampoline).ok_or_else(|| obstacle(NoJump::TrampolineGone))?;
                if !trampoline.has_followers(shape) {
                    return Err(obstacle(NoJump::FollowersElsewhere));
                }
                if !shape.followers.is_empty() {
                    followers.clone_from(&jump.followers);
                }
                planned = Some(Planned(Box::new(armed.site().clone())));
                (trampoline.start(), trampoline.entry())
            }
            (None, None) => {
                let neighbour = text.neighbour(around.module, shape).map_err(obstacle)?;
                let displaced = &neighbour.0.displaced;
                let layout = Layout { displaced, handlers: &[], commit: None, tail: &tail(displaced) };
                let place = emitted.put(layout, room, within, shape).map_err(obstacle)?;
                planned = Some(neighbour);
                place
            }
        };
        let written = text.written(shape, entry).ok_or_else(|| obstacle(NoJump::OutOfReach))?;
        emitted.ways.extend(shape::ways(address, &written).map(|at| (at, address, start)));
        let jump = Jump {
            changes: written.changes,
            trampoline: start,
            tactic: shape::name(shape.tactic),
            shape: shape.clone(),
            followers,
        };
        emitted.pads.extend(written.pad);
        emitted.jumps.push((planned, Rc::new(jump)));
    }
    Ok(emitted)
}

/// Why a plan cannot be carried out.
pub(crate) struct Obstacle {
    /// The site that is the reason.
    pub(crate) at: u64,
    pub(crate) reason: NoJump,
    /// Whether the sites around it must not trap, either.
    pub(crate) traps_too: bool,
}

/// The obstacle that a jump would have to become a trap, which is ruled out.
pub(crate) fn in_the_way(at: u64) -> Obstacle {
    Obstacle { at, reason: NoJump::WouldTrap(at), traps_too: true }
}

/// What stands behind a site, now or after the plan.
struct Following<'a> {
    sites: &'a Sites,
    ready: &'a BTreeMap<u64, ReadySite>,
    shapes: &'a HashMap<u64, &'a Shape>,
    trapped: &'a HashSet<u64>,
}

impl Behind for Following<'_> {
    fn stays(&self, address: u64) -> bool {
        let probed = |armed: &Armed| armed.site().uses.iter().any(|wanted| *wanted != Use::Neighbour);
        self.ready.contains_key(&address)
            || self.trapped.contains(&address)
            || self.sites.get(&address).is_some_and(probed)
    }

    fn jump_end(&self, address: u64) -> Option<u64> {
        let there =
            || Some(&self.sites.get(&address)?.jump().filter(|_| !self.trapped.contains(&address))?.shape);
        Some(shape::end(self.shapes.get(&address).copied().or_else(there)?))
    }
}
