//! Places the planned sites of a module: jumps first, traps for the rest.
//!
//! In: `Work`: a module and its planned sites. Out: the sites are armed, or it is told why they are
//! not.

use std::collections::HashMap;

use process::{Error as ProcessError, Module, Stop, Stopped};

use super::{Work, add_uses, count_asked, join, note_offsets, note_trapped, set_armed};
use crate::cache::Cache;
use crate::change::{Batch, Fixed};
use crate::counts::State;
use crate::error::{self, Error, Refused};
use crate::followed::Followed;
use crate::jump::{Armer, NotJumped, ToArm};
use crate::ledger::Full;
use crate::messages::Messages;
use crate::module_key::module_key;
use crate::observer::Note;
use crate::program::Engine;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::reason::{NotArmed, NotPlaced, NotProbed};
use crate::session::Session;
use crate::sharing::Sharing;
use crate::site::Planned;
use crate::site_use::Use;
use crate::slots::{self, Area};

/// Places programs in the modules of processes.
pub(crate) struct Placer<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
    pub(crate) session: &'t mut Session,
}

impl<'a> Placer<'_, 'a> {
    /// Lends what makes sites jumps.
    pub(crate) fn armer(&mut self) -> Armer<'_, 'a> {
        let is_first = self.session.is_first();
        Armer {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            reader: self.reader,
            cache: self.cache,
            messages: self.messages,
            spent: &mut self.session.spent,
            serving: self.session.serving,
            is_first,
        }
    }

    /// Arms the planned sites of one module.
    pub(crate) fn place(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        mut work: Work,
    ) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        let (thread, stop, copied) = self.armer().place_copy(number, thread, stop, &mut work)?;
        if !work.plan.refused.is_empty() && self.refuse(tid, &mut work) {
            return Ok((thread, stop));
        }
        let remarks = work.plan.remarks.clone();
        for remark in std::mem::take(&mut work.plan.remarks) {
            self.messages.tell_once(remark);
        }
        if work.count == 0 {
            return Ok((thread, stop));
        }
        let mut count = work.count;
        let (mut thread, mut stop) = (thread, stop);
        let mut traps = std::mem::take(&mut work.plan.planned);
        note_offsets(self.programs, &work.module, &traps);
        // Once a module has jumps, all changes to it go through its planner.
        let key = module_key(&work.module);
        let planned = self.followed.spaces.get(&number).is_some_and(|space| space.plans.planners.has(&key));
        if let Some(program) =
            work.program.filter(|&program| planned || self.programs[program].options.engine != Engine::Trap)
        {
            let strict = self.programs[program].options.engine == Engine::Jump;
            let sites = work
                .draft
                .take()
                .map_or_else(|| ToArm::Planned(join(std::mem::take(&mut traps))), ToArm::Drafted);
            let left = match copied {
                Some(left) => Ok(left),
                None => {
                    let keep = self.armer().plan_to_keep(program, &thread, &work, &sites, remarks);
                    let (stopped, now, left) =
                        self.armer().arm_jumps(number, thread, stop, &work.module, sites, strict, keep)?;
                    (thread, stop) = (stopped, now);
                    left
                }
            };
            let left = match left {
                Ok(left) => left,
                Err(reason) => {
                    self.cannot_place(tid, &work, reason.into());
                    return Ok((thread, stop));
                }
            };
            traps = self.settle_left(tid, &mut work, program, left);
            count -= work.plan.refused.len();
            if !work.plan.refused.is_empty() && self.refuse(tid, &mut work) {
                let addresses: Vec<u64> = traps.iter().map(|site| site.0.address).collect();
                self.give_up_traps(number, &addresses);
                // Threads may have hit them already.
                if let Some(space) = self.followed.spaces.get_mut(&number) {
                    space.disarmed.extend(traps.into_iter().map(|site| (site.0.address, site.unwritten())));
                }
                return Ok((thread, stop));
            }
        }
        let lends = traps.iter().any(|site| site.0.is_probed());
        let planned = self.followed.spaces.get(&number).is_some_and(|space| space.plans.planners.has(&key));
        if lends && !planned {
            // The signal masks must be lent before anything traps.
            (thread, stop) = self.lend_sets(number, thread, stop, &mut work)?;
        }
        if !traps.is_empty() {
            let (stopped, now, area) = self.followed.spaces.slot_area(number, thread, stop, &traps)?;
            (thread, stop) = (stopped, now);
            let addresses: Vec<u64> = traps.iter().map(|site| site.0.address).collect();
            if let Err(reason) = area.map_err(NotArmed::from).and_then(|area| self.arm(number, area, traps)) {
                self.give_up_traps(number, &addresses);
                self.cannot_place(tid, &work, reason);
                return Ok((thread, stop));
            }
            if let Some(space) = self.followed.spaces.get_mut(&number) {
                space.calls.trapping.clear();
            }
            if lends && planned {
                // The sites that the planner has made traps are traps already.
                (thread, stop) = self.lend_sets(number, thread, stop, &mut work)?;
            }
        }
        if let Some(program) = work.program {
            self.raise_semaphores(number, program, &work.module);
            let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
            self.messages.tell_placed(&self.followed.spaces, number, pid, &work.module, &work.probes);
            self.messages.observer.note(&Note::Armed {
                pid: Some(pid),
                module: work.module.path.clone(),
                probes: count,
            });
        }
        Ok((thread, stop))
    }

    /// Counts up the semaphores of a program's probes in a module.
    fn raise_semaphores(&mut self, number: u32, program: usize, module: &Module) {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        for &vaddr in &self.programs[program].options.semaphores {
            if let Err(full) = space.semaphores.raise(&space.code, module, vaddr) {
                let path = printable::path(&module.path);
                self.messages.tell_once(Note::Other(format!(
                    "{path}: the semaphore of a static probe is not counted up: {full}"
                )));
            }
        }
    }

    /// Sorts out sites that did not become jumps, or no longer are. Returns those to be armed as
    /// traps, and notes the reason. The others are refused.
    pub(crate) fn settle_left(
        &mut self,
        tid: i32,
        work: &mut Work,
        number: usize,
        left: Vec<NotJumped>,
    ) -> Vec<Planned> {
        let mut traps = Vec::with_capacity(left.len());
        let mut demoted = Vec::new();
        for NotJumped { site, reason, can_trap, was } in left {
            if was.is_some() {
                note_trapped(self.programs, &site.0.uses, &reason, was);
                demoted.push((site.0.address, reason));
                traps.push(site);
                continue;
            }
            let program = &mut self.programs[number];
            let probes = site.0.uses.iter().filter_map(|wanted| match *wanted {
                Use::Probe { program, probe } if program == number => Some(probe),
                _ => None,
            });
            for probe in probes {
                if program.options.engine == Engine::Jump || !can_trap {
                    work.plan.refused.push(Refused {
                        module: work.module.path.display().to_string(),
                        point: program.versions.main().probes[probe].point.clone(),
                        probe,
                        reason: match can_trap {
                            true => NotPlaced::NoJump(reason.clone()),
                            false => NotPlaced::NotWritten(reason.clone()),
                        },
                    });
                } else if program.options.engine != Engine::Trap {
                    program.probes[probe].trapped(&reason, None);
                }
            }
            if program.options.engine != Engine::Jump && can_trap {
                traps.push(site);
            }
        }
        if let Some((address, reason)) = demoted.first() {
            let others = match demoted.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let module = printable::path(&work.module.path);
            self.messages.tell_once(Note::Other(format!(
                "process {tid}: {module}: the jump at {address:#x}{others} became a trap, which is slower: {reason}"
            )));
        }
        traps
    }

    /// Gives up sites that were to trap: restores their bytes where a planner has already changed
    /// them.
    pub(crate) fn give_up_traps(&mut self, number: u32, addresses: &[u64]) {
        if self.followed.spaces.get(&number).is_some_and(|space| !space.plans.planners.is_empty()) {
            self.followed.take_out_jumps(number, addresses);
        }
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.calls.trapping.clear();
        }
    }

    /// Reports the refused probepoints of a plan. Before the session has begun, they end it
    /// instead: returns `true` then.
    fn refuse(&mut self, tid: i32, work: &mut Work) -> bool {
        let refused = std::mem::take(&mut work.plan.refused);
        for one in &refused {
            if let Some(program) = work.program
                && self.programs[program].probes[one.probe].state == State::Waiting
            {
                self.programs[program].probes[one.probe].state = State::Refused;
            }
        }
        if work.program.is_some_and(|program| self.programs[program].options.lenient) {
            return false;
        }
        if self.session.is_first() {
            self.session.failure.get_or_insert(Error::Refused(refused));
            return true;
        }
        for line in error::lines(&refused) {
            self.messages.tell_once(Note::Other(format!("process {tid}: {line}")));
        }
        false
    }

    /// Reports that a module's sites cannot be armed at all.
    fn cannot_place(&mut self, tid: i32, work: &Work, reason: NotArmed) {
        let reason = NotProbed::Module { module: work.module.path.clone(), reason };
        match work.program {
            Some(_) => self.cannot_probe(tid, reason),
            None => self.messages.tell_once(Note::Other(format!(
                "process {tid}: {reason}; modules that it loads later are not probed"
            ))),
        }
    }

    /// Writes the slots of planned sites into their area, then the `int3`s.
    pub(crate) fn arm(&mut self, number: u32, mut area: Area, planned: Vec<Planned>) -> Result<(), NotArmed> {
        let Some(space) = self.followed.spaces.get_mut(&number) else {
            return Err(NotArmed::Gone);
        };
        let failed = |cause: std::io::Error| NotArmed::Writing(cause.into());
        space.code.has_room(planned.len()).map_err(|Full| NotArmed::LedgerFull)?;
        let mut ready: Vec<Planned> = Vec::with_capacity(planned.len());
        let mut known: HashMap<u64, usize> = HashMap::with_capacity(planned.len());
        let mut code = Vec::with_capacity(planned.len() * slots::SLOT);
        for mut site in planned {
            let address = site.0.address;
            if let Some(&other) = known.get(&address) {
                add_uses(&mut ready[other].0.uses, site.0.uses);
                continue;
            }
            if let Some(armed) = space.sites.get_mut(&address) {
                set_armed(self.programs, space.trust.domain, &site.0.uses, address, None);
                add_uses(armed.uses_mut(), site.0.uses);
                continue;
            }
            if space.sites.is_covered(address) {
                return Err(NotArmed::Covered);
            }
            if let Some(slot) = space.slot_of(&site.0) {
                site.0.slot = Some(slot.clone());
                known.insert(address, ready.len());
                ready.push(site);
                continue;
            }
            let slot = area.take(address).ok_or(NotArmed::TooFewSlots)?;
            let emitted = site.0.displaced.slot(slot)?;
            if emitted.bytes.len() > slots::SLOT {
                return Err(NotArmed::TooLong(site.0.displaced.text().to_owned()));
            }
            // Slots are taken one behind the other.
            code.resize((slot - area.base()) as usize, 0);
            code.extend_from_slice(&emitted.bytes);
            site.0.slot = Some(emitted);
            known.insert(address, ready.len());
            ready.push(site);
        }
        if !code.is_empty() {
            space.code.memory.poke(area.base(), &code).map_err(failed)?;
        }
        // Registered before any thread can be in it.
        if area.size() > 0 {
            space.mapped.areas.push(area);
        }
        // Fails only if the process is gone.
        let _ = space.hide(ready.iter().map(|site| site.0.trap()).collect::<Vec<_>>());
        if let Some(guard) = &mut space.calls.guard {
            let slot = |site: &Planned| site.0.slot.as_ref().map_or(0, |slot| slot.address);
            let sites: Vec<(u64, u64)> = ready.iter().map(|site| (site.0.address, slot(site))).collect();
            guard.traps(&sites, &space.code.memory);
        }
        let mut batch = Batch::default();
        for site in ready {
            let (address, uses) = (site.0.address, site.0.uses.clone());
            let armed = site.arm(&space.code, &mut batch).map_err(failed)?;
            space.disarmed.remove(&address);
            space.sites.insert(address, armed);
            set_armed(self.programs, space.trust.domain, &uses, address, None);
            count_asked(self.programs, &uses);
        }
        // Writes them together: threads that hit the first ones would wait until all are written. A
        // single byte needs no mappings.
        let fixed = match batch.len() {
            ..=1 => Fixed::default(),
            _ => Fixed::of(&process::maps(space.code.process).unwrap_or_default()),
        };
        batch.write_bytes(&space.code.memory, &fixed).map_err(failed)
    }
}
