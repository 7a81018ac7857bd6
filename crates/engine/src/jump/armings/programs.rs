//! Counts the copies of armings for the probes of their programs, before the armings are forgotten.

use std::rc::Rc;

use super::super::arming::Arming;
use super::super::cells::Domain;
use super::Armings;
use crate::programs::Programs;

impl Armings {
    /// Keeps an arming for other processes.
    pub(in crate::jump) fn keep_arming(&mut self, programs: &mut Programs, arming: Arming) {
        let gone = self.keep(arming);
        self.count_gone(programs, &gone);
    }

    /// Forgets the armings of a domain that is about to be given up.
    pub(in crate::jump) fn leave_armings(&mut self, programs: &mut Programs, domain: Domain) {
        let gone = self.remove_domain(domain);
        self.count_gone(programs, &gone);
    }

    /// Counts the copies of armings that are no longer kept.
    fn count_gone(&mut self, programs: &mut Programs, gone: &[Rc<Arming>]) {
        for arming in gone {
            if let Some(program) = programs.get_mut(arming.program()) {
                arming.count(&mut program.probes);
            }
        }
    }

    /// Counts the copies of a program's armings and forgets the armings: its probes are about to
    /// change.
    pub(crate) fn forget_armings(&mut self, programs: &mut Programs, program: usize) {
        self.count_copies(programs, program);
        self.forget(program);
    }

    /// Counts the copies of a program's armings for its probes.
    fn count_copies(&mut self, programs: &mut Programs, program: usize) {
        if let Some(of) = programs.get_mut(program) {
            self.count(program, &mut of.probes);
        }
    }
}
