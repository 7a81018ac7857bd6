//! Plans what to place in a process while it runs.
//!
//! In: a thread of a process, and the programs that are not placed there yet. Out: `Preplan`s in
//! its address space (`modules.foreseen`), and a thread that is asked to stop. At that stop
//! `refresh` (`modules`) carries them out; what does not hold any more is planned again. Until then
//! the process is only read.

use std::sync::Arc;

use super::Preplan;
use crate::jump::{Basis, Keep};
use crate::module_key::module_key;
use crate::placed_report::probes_of;
use crate::placing::placer::Placer;
use crate::placing::{join, note_offsets};
use crate::program::Engine;
use crate::site_plans;

impl Placer<'_, '_> {
    /// Whether a plan should be made before placing programs in the process of a thread.
    pub(crate) fn needs_preplan(&self, tid: i32) -> bool {
        let Some(space) = self
            .followed
            .threads
            .get(&tid)
            .and_then(|tracked| tracked.space)
            .and_then(|space| self.followed.spaces.get(&space))
        else {
            return false;
        };
        let jumps = || self.programs.values().any(|program| program.options.engine != Engine::Trap);
        // If threads are held, they would wait for the plan.
        !space.modules.starting
            && space.modules.foreseen.is_none()
            && self.followed.holds.events.is_empty()
            && jumps()
    }

    /// Plans what to place in the process of a thread, then asks one of its threads to stop.
    pub(crate) fn preplan(&mut self, tid: i32) {
        let Some(number) = self.followed.threads.get(&tid).and_then(|tracked| tracked.space) else { return };
        let mut foreseen: Vec<Preplan> = Vec::new();
        let modules = process::modules(tid, &mut self.cache.images).unwrap_or_default();
        let mut basis = self.followed.spaces.get(&number).map(Basis::of);
        let unplaced = self.unplaced(number, tid, &modules);
        if unplaced.iter().any(|(program, ..)| self.programs[*program].takes_stacks) {
            self.read_tables(&modules);
        }
        let count_of_modules = unplaced.len();
        for (place, (program, module, checks)) in unplaced.into_iter().enumerate() {
            let engine = self.programs[program].options.engine;
            // A draft does not know of other drafts for the same code.
            let key = module_key(&module);
            if engine == Engine::Trap || foreseen.iter().any(|other| other.here.1 == key) {
                continue;
            }
            let circumstances = self.armer().running(program, number, tid, &module);
            // An arming can be copied as soon as a thread is stopped.
            if circumstances.is_some_and(|these| !self.cache.armings.find(&these, &module).is_empty()) {
                continue;
            }
            let known = if place + 1 < count_of_modules { basis.clone() } else { basis.take() };
            let Some((space, known)) = self.followed.spaces.get(&number).zip(known) else { break };
            let here = (program, key);
            let checked = self.cache.checked.iter().position(|(other, _)| *other == here);
            let mut plan = match checked {
                Some(checked) => self.cache.checked.swap_remove(checked).1,
                None => site_plans::plan(program, &self.programs[program], &module, &space.text(), checks),
            };
            let planned = std::mem::take(&mut plan.planned);
            note_offsets(self.programs, &module, &planned);
            let (count, probes) = (planned.len(), probes_of(&planned));
            let strict = engine == Engine::Jump;
            let keep = circumstances.filter(|_| plan.refused.is_empty()).map(|circumstances| Keep {
                number: self.cache.armings.number(),
                circumstances,
                image: Arc::clone(&module.image),
                count,
                probes: probes.clone(),
                remarks: plan.remarks.clone(),
            });
            let draft =
                self.armer().drafter().draft(number, tid, &module, join(planned), known, strict, false, keep);
            if let Some(after) = draft.after.as_ref().filter(|_| place + 1 < count_of_modules) {
                basis = Some(after.clone());
            }
            foreseen.push(Preplan { here, plan, draft, count, probes });
        }
        self.cache.checked.clear();
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.modules.foreseen = Some(foreseen);
        }
        self.followed.ask_one(self.messages, number);
    }
}
