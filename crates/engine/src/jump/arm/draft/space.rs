//! Reads from an address space what a draft needs: free memory, traps, room for trampolines.

use std::ops::RangeInclusive;

use process::{Mapping, Module};

use super::{AWAY, Basis, Draft, Group};
use crate::jump::reach::NEAR;
use crate::jump::trampoline_allocator::ALIGNMENT;
use crate::jump::{area, relocated_successors};
use crate::mapping;
use crate::reason::NotMapped;
use crate::space::Space;

impl Basis {
    /// The present state.
    pub(crate) fn of(space: &Space) -> Basis {
        Basis {
            generation: space.plans.generation,
            handler_memory: space.shared.handler_memory.clone(),
            planners: space.plans.planners.clone(),
            room: space.jumps.room.clone(),
            reserved: Vec::new(),
            avoided: Vec::new(),
        }
    }

    /// Avoids the surroundings of mappings that are neither the module's own nor (like earlier
    /// copies) ours.
    pub(super) fn avoid(&mut self, mappings: &[Mapping], module: &Module, space: &Space) {
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
}

impl Draft {
    /// Whether its code has exactly the traps that were there when the draft was made.
    pub(crate) fn has_seen_traps(&self, space: &Space) -> bool {
        let traps = self.texts.iter().flat_map(|text| space.traps_in(text.range()));
        traps.eq(self.seen.iter().copied())
    }

    /// Chooses areas for the trampolines of sites, and for copies of moved instructions, unless
    /// there is enough room already.
    pub(super) fn choose_areas(
        &mut self,
        space: &Space,
        tid: i32,
        mappings: &[Mapping],
        groups: &[Group],
        known: &mut Basis,
        more_to_come: bool,
    ) -> Result<(), NotMapped> {
        let mut reach: RangeInclusive<u64> = 0..=u64::MAX;
        let (mut size, mut near) = (0, 0);
        let slot = (patch::SLOT_CAPACITY as u64).next_multiple_of(ALIGNMENT);
        for ready in groups.iter().flat_map(|group| group.ready.values()) {
            let layout = ready.layout();
            let own = layout.reach();
            reach = *reach.start().max(own.start())..=*reach.end().min(own.end());
            size += (layout.size() + relocated_successors::USUAL).next_multiple_of(ALIGNMENT) + 2 * slot;
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
            .ok_or(NotMapped::TooLittleNear)?;
        mapping::count_mapping(mappings.len() + areas.len() - 1, space.mapped.mappings)?;
        for &(start, size) in &areas {
            known.room.add(start, size);
            known.reserve(start, size);
        }
        self.to_map.areas = areas;
        Ok(())
    }
}
