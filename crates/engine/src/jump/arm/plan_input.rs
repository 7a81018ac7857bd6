//! Collects what the planner has to know of the process, and plans the jumps of one mapping.
//!
//! In: an address space and a module. Out: `PlanInput`, and the plan of `patch` for it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use patch::tactic::{Code, Flow, Limits, Plan, Planner, Site, Space as Free};
use process::{Mapping, Module};

use super::draft::Basis;
use super::handlers::ReadySite;
use crate::jump::proof;
use crate::jump::reach::{NEAR, REACH};
use crate::jump::text::Text;
use crate::reason::NoJump;
use crate::site::{Armed, Jump, Planned};
use crate::site_use::Use;
use crate::slots;
use crate::space::Space;

/// What a plan for one mapping has to know beside its sites.
pub(crate) struct PlanInput<'a> {
    pub(crate) space: &'a Space,
    pub(crate) module: &'a Module,
    /// Where code jumps into the middle of an instruction.
    pub(crate) entered: Vec<u64>,
    /// Code that must run where it is: restartable sequences.
    pub(crate) kept: Vec<Range<u64>>,
    pub(crate) free: Vec<Range<u64>>,
    pub(crate) trampolines: Range<u64>,
    pub(crate) limits: Limits,
    /// Whether no thread has executed the module's code yet.
    pub(crate) fresh: bool,
    /// The programs whose probes must never trap (`--engine jump`).
    pub(crate) by_jump_alone: Vec<usize>,
}

impl PlanInput<'_> {
    /// The site at an address, and its jump, if it is a jump now.
    pub(crate) fn jump_at(&self, address: u64) -> Option<(&Armed, &Rc<Jump>)> {
        let armed = self.space.sites.get(&address)?;
        Some((armed, armed.jump()?))
    }

    /// Whether there is a jump at an address that must not become a trap.
    pub(crate) fn stays_a_jump(&self, address: u64) -> bool {
        let strict = |wanted: &Use| matches!(wanted, Use::Probe { program, .. } if self.by_jump_alone.contains(program));
        self.jump_at(address).is_some_and(|(armed, _)| armed.site().uses.iter().any(strict))
    }

    /// Plans the jumps of sites; with `groups`, one jump may cover several instructions.
    pub(crate) fn plan(
        &self,
        planner: &mut Planner,
        text: &Text,
        ready: &BTreeMap<u64, ReadySite>,
        others: &[(Planned, NoJump)],
        groups: bool,
    ) -> Plan {
        let site = |planned: &Planned, jump| Site {
            address: planned.0.address,
            length: planned.0.displaced.length(),
            jump,
        };
        let mut sites: Vec<Site> = ready.values().map(|ready| site(&ready.planned, true)).collect();
        sites.extend(others.iter().map(|(planned, _)| site(planned, false)));
        sites.extend(self.space.traps_in(text.range()).map(|address| {
            let length = self.space.sites.get(&address).map_or(1, |armed| armed.site().displaced.length());
            Site { address, length, jump: false }
        }));
        sites.sort_by_key(|site| (site.address, site.jump));
        sites.dedup_by_key(|site| site.address);
        let (image, start) = (&self.module.image, text.range().start);
        let known = proof::prove_code_near(image, self.module.bias, text.bytes(), start, &sites, groups);
        let code = Code {
            address: start,
            bytes: text.bytes(),
            instructions: &known.instructions,
            padding: &known.padding,
            entered: &self.entered,
            kept: &self.kept,
            flow: groups.then_some(Flow { functions: &known.functions, targets: &known.landings }),
        };
        planner.plan(&code, &Free { free: &self.free, trampolines: self.trampolines.clone() }, &sites)
    }
}

/// What is free for landing pads around some code, and the range of its trampolines.
pub(crate) fn free(
    known: &Basis,
    tid: i32,
    mappings: &[Mapping],
    text: &Text,
) -> (Vec<Range<u64>>, Range<u64>) {
    let range = text.range();
    // Jumps of earlier plans may get other landing pads, which must reach their trampolines.
    let near = |&(base, size): &(u64, u64)| {
        base + size > range.start.saturating_sub(NEAR) && base < range.end.saturating_add(NEAR)
    };
    let areas = known.room.areas().filter(near);
    let trampolines = areas.fold(0..0, |all: Range<u64>, (base, size)| match all.is_empty() {
        true => base..base + size,
        false => all.start.min(base)..all.end.max(base + size),
    });
    (free_for_pads(&known.taken(tid, mappings), &range), trampolines)
}

/// The ranges that are free for landing pads of code, ascending: all within reach that is not
/// `taken`.
pub(crate) fn free_for_pads(taken: &[(u64, u64, slots::Growth)], code: &Range<u64>) -> Vec<Range<u64>> {
    slots::free(taken, &(code.start.saturating_sub(REACH)..code.end.saturating_add(REACH)))
}
