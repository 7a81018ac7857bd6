//! The planners of an address space: one for each module with jumps.
//!
//! Modules are planned separately: what one module's jumps change and rely on is inside that
//! module, so its plan fits other processes that map it elsewhere ([`Planner::moved`]). The landing
//! pads of all modules lie among each other, but not in the same pages.

use std::collections::HashMap;
use std::rc::Rc;

use patch::tactic::{Limits, Planner, Removal, Write};

use crate::module_key::ModuleKey;

#[derive(Clone, Debug, Default)]
pub(crate) struct Planners {
    all: HashMap<ModuleKey, ModulePlan>,
    /// The emptied planner of modules that are gone: the next new planner uses their pages of
    /// landing pads.
    idle: Option<Planner>,
}

/// The planner of one module.
#[derive(Clone, Debug)]
enum ModulePlan {
    /// Planned in this process.
    Here(Rc<Planner>),
    /// Planned in another process, where all addresses are `by` bytes lower. The traps in `out`
    /// have been removed here since.
    Moved { planner: Rc<Planner>, by: u64, out: Vec<u64> },
}

impl ModulePlan {
    fn planner(&self) -> Planner {
        match self {
            ModulePlan::Here(planner) => (**planner).clone(),
            ModulePlan::Moved { planner, by, out } => {
                let mut moved = planner.moved(*by);
                moved.remove(out);
                moved
            }
        }
    }

    /// Whether the instruction at an address is moved or trapped.
    fn has(&self, address: u64) -> bool {
        match self {
            ModulePlan::Here(planner) => planner.has(address),
            ModulePlan::Moved { planner, by, out } => {
                planner.has(address.wrapping_sub(*by)) && !out.contains(&address)
            }
        }
    }

    fn mappings(&self) -> usize {
        match self {
            ModulePlan::Here(planner) | ModulePlan::Moved { planner, .. } => planner.mappings(),
        }
    }

    /// Removes sites.
    fn remove(&mut self, addresses: &[u64]) -> Removal {
        if let ModulePlan::Moved { planner, by, out } = self {
            let lone = |address: &u64| {
                let byte = planner.lone_trap(address.wrapping_sub(*by)).filter(|_| !out.contains(address))?;
                Some(Write { address: *address, bytes: vec![byte] })
            };
            if let Some(restore) = addresses.iter().map(lone).collect::<Option<Vec<_>>>() {
                out.extend(addresses);
                return Removal { restore, ..Removal::default() };
            }
            *self = ModulePlan::Here(Rc::new(self.planner()));
        }
        match self {
            ModulePlan::Here(planner) => Rc::make_mut(planner).remove(addresses),
            ModulePlan::Moved { .. } => Removal::default(),
        }
    }
}

impl Planners {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a module has jumps, or traps that jumps rely on.
    pub(crate) fn has(&self, module: &ModuleKey) -> bool {
        self.all.contains_key(module)
    }

    /// Whether the next new planner starts empty.
    pub(crate) fn is_clean(&self) -> bool {
        self.idle.is_none()
    }

    /// The most mappings that the landing pads of all modules are.
    pub(crate) fn mappings(&self) -> usize {
        let known = self.all.values().map(ModulePlan::mappings);
        known.chain(self.idle.as_ref().map(Planner::mappings)).sum()
    }

    /// A copy of a module's planner, or a new one, to plan with. `limits` is for all modules
    /// together.
    pub(crate) fn planner(&self, module: &ModuleKey, limits: Limits) -> Planner {
        let known = self.all.get(module).map(ModulePlan::planner).or_else(|| self.idle.clone());
        let mut planner = known.unwrap_or_else(|| Planner::new(limits));
        let others = self.mappings() - planner.mappings();
        planner.allow(Limits { mappings: limits.mappings.saturating_sub(others), ..limits });
        planner
    }

    /// A module's planner, if the module was planned in this process.
    pub(crate) fn known(&self, module: &ModuleKey) -> Option<Rc<Planner>> {
        match self.all.get(module)? {
            ModulePlan::Here(planner) => Some(Rc::clone(planner)),
            ModulePlan::Moved { .. } => None,
        }
    }

    /// Sets the planner of a module, a changed copy from [`Planners::planner`].
    pub(crate) fn set(&mut self, module: ModuleKey, planner: Planner) {
        if self.all.insert(module, ModulePlan::Here(Rc::new(planner))).is_none() {
            self.idle = None;
        }
    }

    /// Uses another process's planner for a module, whose addresses are `by` bytes higher here.
    pub(crate) fn carry(&mut self, module: ModuleKey, planner: &Rc<Planner>, by: u64) {
        let known = ModulePlan::Moved { planner: Rc::clone(planner), by, out: Vec::new() };
        self.all.insert(module, known);
    }

    /// Removes sites: returns what is to be done, module by module, and the sites that no planner
    /// knows.
    pub(crate) fn remove(&mut self, addresses: &[u64]) -> (Vec<Removal>, Vec<u64>) {
        let mut unknown = addresses.to_vec();
        let mut removals = Vec::new();
        for known in self.all.values_mut() {
            let own: Vec<u64> = unknown.extract_if(.., |address| known.has(*address)).collect();
            if !own.is_empty() {
                removals.push(known.remove(&own));
            }
        }
        (removals, unknown)
    }

    /// Forgets modules that are gone, but keeps the pages of their landing pads for others.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ModuleKey) -> bool) {
        for (_, gone) in self.all.extract_if(|module, _| !is_there(module)) {
            let emptied = match gone {
                ModulePlan::Here(planner) => planner.emptied(),
                ModulePlan::Moved { planner, by, .. } => planner.emptied().moved(by),
            };
            match &mut self.idle {
                Some(idle) => idle.adopt(emptied),
                None => self.idle = Some(emptied),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use patch::tactic::{Code, Site, Space};

    const LIMITS: Limits = Limits { mappings: 100, shadow_stacks: false, few_addresses: false };
    const START: u64 = 0x7000_0000_0000;
    const BY: u64 = 0x8000;

    fn module(bias: u64) -> ModuleKey {
        ((8, 1), 77, bias)
    }

    fn plan(planner: &mut Planner, start: u64) {
        let bytes =
            [0x48, 0x81, 0xec, 0, 1, 0, 0, 0x53, 0x8d, 0x04, 0x7f, 0x90, 0x90, 0x90, 0x90, 0x5b, 0xc3];
        let sites = [(0, 7, true), (7, 1, true), (15, 1, false)];
        let sites = sites.map(|(offset, length, jump)| Site { address: start + offset, length, jump });
        let code = Code {
            address: start,
            bytes: &bytes,
            instructions: &[],
            entered: &[],
            padding: &[],
            kept: &[],
            flow: None,
        };
        let free = start - 0x7000_0000..start - 0x100_0000;
        let above = start + 0x100_0000..start + 0x7000_0000;
        let trampolines = start - 0x100_0000..start - 0x80_0000;
        planner.plan(&code, &Space { free: &[free, above], trampolines }, &sites);
    }

    fn planned() -> Planners {
        let mut planners = Planners::default();
        let mut planner = planners.planner(&module(START), LIMITS);
        plan(&mut planner, START);
        planners.set(module(START), planner);
        planners
    }

    #[test]
    fn what_is_carried_to_another_process_is_taken_out_as_there() {
        let mut here = planned();
        let mut there = Planners::default();
        there.carry(module(START + BY), &here.known(&module(START)).expect("it was planned here"), BY);
        assert!(there.has(&module(START + BY)) && there.known(&module(START + BY)).is_none());
        assert_eq!(there.mappings(), here.mappings());
        // A lone trap is removed by restoring its byte: the planner is not copied for that.
        let (removals, unknown) = there.remove(&[START + BY + 15, START + BY + 3]);
        let byte = vec![Write { address: START + BY + 15, bytes: vec![0x5b] }];
        assert_eq!((removals.len(), &removals[0].restore), (1, &byte));
        assert_eq!(unknown, [START + BY + 3]);
        assert!(there.known(&module(START + BY)).is_none());
        // Now it is gone.
        assert_eq!(there.remove(&[START + BY + 15]).1, [START + BY + 15]);
        // A jump is removed as in the process where it was planned.
        here.remove(&[START + 15]);
        let (one, other) =
            (here.remove(&[START, START + 7]).0, there.remove(&[START + BY, START + BY + 7]).0);
        let moved = |removal: &Removal| -> Vec<Write> {
            let write = |write: &Write| Write { address: write.address + BY, bytes: write.bytes.clone() };
            removal.restore.iter().map(write).collect()
        };
        assert_eq!(moved(&one[0]), other[0].restore);
        assert!(!other[0].restore.is_empty() && there.known(&module(START + BY)).is_some());
    }

    #[test]
    fn the_pads_of_a_module_that_is_gone_have_room_for_another() {
        let mut planners = planned();
        let mappings = planners.mappings();
        assert!(mappings > 0 && planners.is_clean());
        planners.retain(|_| false);
        assert!(planners.is_empty() && !planners.is_clean());
        assert_eq!(planners.mappings(), mappings);
        let mut planner = planners.planner(&module(START), LIMITS);
        plan(&mut planner, START);
        assert_eq!(planner.mappings(), mappings, "nothing more is mapped");
        planners.set(module(START), planner);
        assert_eq!((planners.mappings(), planners.is_clean()), (mappings, true));
    }

    #[test]
    fn modules_share_what_may_be_used_up() {
        let planners = planned();
        let limits = Limits { mappings: planners.mappings(), ..LIMITS };
        let mut other = planners.planner(&module(START + (1 << 32)), limits);
        plan(&mut other, START + (1 << 32));
        assert_eq!(other.mappings(), 0, "the first module has all");
    }
}
