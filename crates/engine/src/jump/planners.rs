//! The planners of an address space: one for each module in which there are jumps.
//!
//! What one module's jumps change and rely on is that module's own, so modules are planned apart: what was planned for one in a process
//! holds in others that map it elsewhere ([`Planner::moved`]). Their landing pads lie among each other, in pages of their own.

use std::collections::HashMap;
use std::rc::Rc;

use patch::tactic::{Limits, Planner, Removal, Write};

use crate::space::ModuleKey;

/// The planners, by module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planners {
    all: HashMap<ModuleKey, Known>,
    /// The landing pads of modules that are gone: the next new planner has room there.
    idle: Option<Planner>,
}

/// What is known of one module.
#[derive(Clone, Debug)]
enum Known {
    /// This.
    Here(Rc<Planner>),
    /// What is known of it in another process, where all is so many bytes nearer; but for these traps, which are not there any more.
    Moved { planner: Rc<Planner>, by: u64, out: Vec<u64> },
}

impl Known {
    fn planner(&self) -> Planner {
        match self {
            Known::Here(planner) => (**planner).clone(),
            Known::Moved { planner, by, out } => {
                let mut moved = planner.moved(*by);
                moved.remove(out);
                moved
            }
        }
    }

    /// Whether an instruction at an address is moved or trapped.
    fn has(&self, address: u64) -> bool {
        match self {
            Known::Here(planner) => planner.has(address),
            Known::Moved { planner, by, out } => {
                planner.has(address.wrapping_sub(*by)) && !out.contains(&address)
            }
        }
    }

    fn mappings(&self) -> usize {
        match self {
            Known::Here(planner) | Known::Moved { planner, .. } => planner.mappings(),
        }
    }

    /// Takes sites out.
    fn remove(&mut self, addresses: &[u64]) -> Removal {
        if let Known::Moved { planner, by, out } = self {
            let lone = |address: &u64| {
                let byte = planner.lone_trap(address.wrapping_sub(*by)).filter(|_| !out.contains(address))?;
                Some(Write { address: *address, bytes: vec![byte] })
            };
            if let Some(restore) = addresses.iter().map(lone).collect::<Option<Vec<_>>>() {
                out.extend(addresses);
                return Removal { restore, ..Removal::default() };
            }
            *self = Known::Here(Rc::new(self.planner()));
        }
        match self {
            Known::Here(planner) => Rc::make_mut(planner).remove(addresses),
            Known::Moved { .. } => Removal::default(),
        }
    }
}

impl Planners {
    /// Whether nothing was planned yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there are jumps in a module, or traps that jumps know of.
    pub(crate) fn has(&self, module: &ModuleKey) -> bool {
        self.all.contains_key(module)
    }

    /// Whether the next planner begins without anything.
    pub(crate) fn is_clean(&self) -> bool {
        self.idle.is_none()
    }

    /// How many mappings the landing pads of all modules are, at most.
    pub(crate) fn mappings(&self) -> usize {
        let known = self.all.values().map(Known::mappings);
        known.chain(self.idle.as_ref().map(Planner::mappings)).sum()
    }

    /// The planner of a module, to be planned with; a new one where there is none. `limits` are what all of them together may use up.
    pub(crate) fn planner(&self, module: &ModuleKey, limits: Limits) -> Planner {
        let known = self.all.get(module).map(Known::planner).or_else(|| self.idle.clone());
        let mut planner = known.unwrap_or_else(|| Planner::new(limits));
        let others = self.mappings() - planner.mappings();
        planner.allow(Limits { mappings: limits.mappings.saturating_sub(others), ..limits });
        planner
    }

    /// What is known of a module, as it is in this process.
    pub(crate) fn known(&self, module: &ModuleKey) -> Option<Rc<Planner>> {
        match self.all.get(module)? {
            Known::Here(planner) => Some(Rc::clone(planner)),
            Known::Moved { .. } => None,
        }
    }

    /// Sets the planner of a module, which [`Planners::planner`] has given.
    pub(crate) fn set(&mut self, module: ModuleKey, planner: Planner) {
        if self.all.insert(module, Known::Here(Rc::new(planner))).is_none() {
            self.idle = None;
        }
    }

    /// Sets what is known of a module to what is known of it in another process, where all is so many bytes nearer.
    pub(crate) fn carry(&mut self, module: ModuleKey, planner: &Rc<Planner>, by: u64) {
        let known = Known::Moved { planner: Rc::clone(planner), by, out: Vec::new() };
        self.all.insert(module, known);
    }

    /// Takes sites out: what is to be done for it, module by module, and those of which no planner knows.
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

    /// Forgets the modules that are gone, and keeps what was mapped for their landing pads.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ModuleKey) -> bool) {
        for (_, gone) in self.all.extract_if(|module, _| !is_there(module)) {
            let emptied = match gone {
                Known::Here(planner) => planner.emptied(),
                Known::Moved { planner, by, .. } => planner.emptied().moved(by),
            };
            match &mut self.idle {
                Some(idle) => idle.adopt(emptied),
                None => self.idle = Some(emptied),
            }
        }
    }
}
