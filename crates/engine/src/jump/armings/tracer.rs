//! Keeps a finished arming, and finds the one that another process can have.

use std::rc::Rc;

use super::super::arming::Arming;
use super::super::cells::Domain;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Keeps an arming for other processes.
    pub(in crate::jump) fn keep_arming(&mut self, arming: Arming) {
        let gone = self.cache.armings.keep(arming);
        self.count_gone(&gone);
    }

    /// Forgets the armings of a domain that is about to be given up.
    pub(in crate::jump) fn leave_armings(&mut self, domain: Domain) {
        let gone = self.cache.armings.leave(domain);
        self.count_gone(&gone);
    }

    /// Counts the copies of armings that are no longer kept.
    fn count_gone(&mut self, gone: &[Rc<Arming>]) {
        for arming in gone {
            if let Some(program) = self.programs.get_mut(arming.program()) {
                arming.count(&mut program.probes);
            }
        }
    }

    /// Counts the copies of a program's armings and forgets the armings: its probes are about to
    /// change.
    pub(crate) fn forget_armings(&mut self, program: usize) {
        self.count_copies(program);
        self.cache.armings.forget(program);
    }

    /// Counts the copies of a program's armings for its probes.
    pub(crate) fn count_copies(&mut self, program: usize) {
        if let Some(of) = self.programs.get_mut(program) {
            self.cache.armings.count(program, &mut of.probes);
        }
    }
}
