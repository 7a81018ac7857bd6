//! Maps slots for sites that are about to trap.

use std::ops::RangeInclusive;

use image::Machine;
use process::{Stop, Stopped};

use super::{Area, range};
use crate::mapping::{Called, Wanted};
use crate::site::{Planned, Site};
use crate::spaces::Spaces;

impl Spaces {
    /// A slot area for sites: the spare one, or one mapped by a system call of the process.
    pub(crate) fn slot_area(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        sites: &[Planned],
    ) -> Called<Area> {
        let guarded: Vec<&Site> = sites.iter().map(|site| &*site.0).collect();
        let (thread, stop) = self.guard_sites(number, thread, stop, &guarded)?;
        let space = self.get_mut(&number);
        let has_slot = |site: &Site| space.as_deref().is_some_and(|space| space.slot_of(site).is_some());
        let missing: Vec<&Site> = sites.iter().map(|site| &*site.0).filter(|site| !has_slot(site)).collect();
        if missing.is_empty() {
            return Ok((thread, stop, Ok(Area::new(0, 0))));
        }
        let wanted = wanted_slots(missing.iter().copied(), thread.registers()?.is_32_bit());
        if let Some(spare) =
            space.and_then(|space| space.mapped.spare_slots.take_if(|spare| spare.satisfies(&wanted)))
        {
            return Ok((thread, stop, Ok(spare)));
        }
        let (thread, stop, base) = self.map_code(number, thread, stop, &wanted)?;
        Ok((thread, stop, base.map(|base| Area::new(base, wanted.size))))
    }

    /// Maps slots for sites that are about to trap, before anything is written for them.
    pub(crate) fn map_spare(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        sites: &[&Site],
    ) -> Called<()> {
        let (thread, stop) = match sites {
            [] => (thread, stop),
            _ => self.guard_sites(number, thread, stop, sites)?,
        };
        let space = self.get(&number);
        let has_slot = |site: &&&Site| space.is_some_and(|space| space.slot_of(site).is_some());
        let missing: Vec<&Site> = sites.iter().filter(|site| !has_slot(site)).copied().collect();
        if missing.is_empty() {
            return Ok((thread, stop, Ok(())));
        }
        let wanted = wanted_slots(missing.iter().copied(), thread.registers()?.is_32_bit());
        if let Some(space) = self.get_mut(&number) {
            if space.mapped.spare_slots.as_ref().is_some_and(|spare| spare.satisfies(&wanted)) {
                return Ok((thread, stop, Ok(())));
            }
            // The spare area is unmapped with the others.
            space.mapped.areas.extend(space.mapped.spare_slots.take());
        }
        let (thread, stop, base) = self.map_code(number, thread, stop, &wanted)?;
        let mapped = base.map(|base| {
            if let Some(space) = self.get_mut(&number) {
                space.mapped.spare_slots = Some(Area::new(base, wanted.size));
            }
        });
        Ok((thread, stop, mapped))
    }
}

/// The memory that the slots of sites need.
fn wanted_slots<'a>(sites: impl Iterator<Item = &'a Site> + Clone, is_32_bit: bool) -> Wanted {
    let machine = if is_32_bit { Machine::I386 } else { Machine::X86_64 };
    let reach = sites.clone().map(|site| site.displaced.reach()).fold(range(machine), intersect);
    let near = sites.clone().next().map_or(0, |site| site.address);
    Wanted { size: Area::size_for(sites.count()), near, reach }
}

/// The intersection of two ranges.
fn intersect(one: RangeInclusive<u64>, other: RangeInclusive<u64>) -> RangeInclusive<u64> {
    *one.start().max(other.start())..=*one.end().min(other.end())
}
