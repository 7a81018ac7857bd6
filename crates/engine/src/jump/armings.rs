//! The armings that are kept for other processes.

use std::rc::Rc;
use std::sync::Arc;

use process::Module;

use super::arming::{Arming, Circumstances};
use super::cells::Domain;
use super::copied::Copied;
use crate::counts::SiteCounts;
use crate::module_key::module_key;
use crate::program::Probe;

mod programs;

/// The most armings that are kept, and the most sites of them all together.
const MAX_ARMINGS: usize = 64;
const MAX_SITES: usize = 1 << 19;

/// The armings that are kept.
#[derive(Debug, Default)]
pub(crate) struct Armings {
    all: Vec<Rc<Arming>>,
    /// The last number that was given to an arming.
    last: u32,
    /// How many copies were made.
    pub(crate) copied: u64,
}

impl Armings {
    /// A new number for an arming.
    pub(crate) fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.last
    }

    /// Keeps an arming. Returns the oldest ones, which had to make room.
    fn keep(&mut self, arming: Arming) -> Vec<Rc<Arming>> {
        self.all.push(Rc::new(arming));
        let sites = |all: &[Rc<Arming>]| all.iter().map(|arming| arming.sites.len()).sum::<usize>();
        let mut gone = Vec::new();
        while self.all.len() > MAX_ARMINGS || self.all.len() > 1 && sites(&self.all) > MAX_SITES {
            gone.push(self.all.remove(0));
        }
        gone
    }

    /// The armings that may fit a module in these circumstances, the newest first.
    pub(crate) fn find(&self, circumstances: &Circumstances, module: &Module) -> Vec<Copied> {
        let is_one = |arming: &&Rc<Arming>| {
            arming.keep.circumstances == *circumstances && Arc::ptr_eq(&arming.keep.image, &module.image)
        };
        let copied = |arming: &Rc<Arming>| {
            let by = module_key(module).2.wrapping_sub(arming.module.2);
            Copied { arming: Rc::clone(arming), by }
        };
        let holds = |copied: &Copied| copied.by == 0 || !copied.arming.is_fixed;
        self.all.iter().rev().filter(is_one).map(copied).filter(holds).collect()
    }

    pub(crate) fn any_of(&self, program: usize) -> bool {
        self.all.iter().any(|arming| arming.program() == program)
    }

    /// Counts the copies of a program's armings for its probes.
    pub(crate) fn count(&self, program: usize, probes: &mut [Probe]) {
        let of_program = |arming: &&Rc<Arming>| arming.program() == program;
        self.all.iter().filter(of_program).for_each(|arming| arming.count(probes));
    }

    /// The sites of a program's probe, with those of copies that are not counted yet.
    pub(crate) fn with_copies(&self, program: usize, probe: usize, mut sites: SiteCounts) -> SiteCounts {
        let of_program = |arming: &&Rc<Arming>| arming.program() == program;
        for arming in self.all.iter().filter(of_program).filter(|arming| arming.copies.get() > 0) {
            for (&tactic, &count) in arming.tactics.get(&probe).into_iter().flatten() {
                sites.jumps_more(tactic, count * arming.copies.get());
            }
        }
        sites
    }

    /// Removes and returns the armings of a domain that has no process any more.
    pub(super) fn remove_domain(&mut self, domain: Domain) -> Vec<Rc<Arming>> {
        self.all.extract_if(.., |arming| arming.keep.circumstances.domain == domain).collect()
    }

    pub(crate) fn forget(&mut self, program: usize) {
        self.all.retain(|arming| arming.program() != program);
    }
}
