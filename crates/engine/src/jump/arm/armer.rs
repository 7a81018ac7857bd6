//! Drafts and carries out in turn, until the sites of a module are armed or trapped.

use std::any::Any;

use process::{Module, Stop, Stopped};

use super::super::arming::Keep;
use super::super::carry_out::CarryOutcome;
use super::super::not_jumped::NotJumped;
use super::super::{Basis, Domain};
use super::{TRIES, ToArm, is_fresh};
use crate::cache::Cache;
use crate::followed::Followed;
use crate::jump::{Drafter, MemoryMapper};
use crate::mapping::Called;
use crate::messages::Messages;
use crate::module_key::module_key;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::sharing::Sharing;
use crate::site::Planned;
use crate::site_use::Use;

/// What sites are made jumps with: a draft is made, then carried out.
pub(crate) struct Armer<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
    /// What is no longer needed, and is freed when no thread waits for the tracer.
    pub(crate) spent: &'t mut Vec<Box<dyn Any>>,
    /// Whether the tracer serves requests.
    pub(crate) serving: bool,
    /// Whether no process has begun with its probes armed: then a refusal ends the session.
    pub(crate) is_first: bool,
}

impl<'a> Armer<'_, 'a> {
    /// Makes drafts.
    pub(crate) fn drafter(&mut self) -> Drafter<'_, 'a> {
        Drafter {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            reader: self.reader,
            cache: self.cache,
            messages: self.messages,
            serving: self.serving,
            is_first: self.is_first,
        }
    }

    /// Maps handler memory and rings.
    pub(in crate::jump) fn memory_mapper(&mut self) -> MemoryMapper<'_, 'a> {
        MemoryMapper {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            reader: self.reader,
            cache: self.cache,
            messages: self.messages,
        }
    }

    /// Makes jumps of planned sites where possible, and returns the others. `thread` belongs to the
    /// address space. If `strict`, no site may trap. With `keep`, the result is kept for other
    /// processes.
    #[expect(clippy::too_many_arguments, reason = "what arming is asked for with")]
    pub(crate) fn arm_jumps(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        module: &Module,
        sites: ToArm,
        strict: bool,
        keep: Option<Keep>,
    ) -> Called<Vec<NotJumped>> {
        let (mut thread, mut stop, mut sites, mut keep) = (thread, stop, sites, keep);
        let mut why = String::new();
        for _ in 0..TRIES {
            let draft = match sites {
                ToArm::Drafted(draft) => *draft,
                ToArm::Planned(planned) => {
                    let Some(space) = self.followed.spaces.get(&number) else {
                        return Ok((thread, stop, Err("the process is gone".to_owned())));
                    };
                    let basis = Basis::of(space);
                    let fresh = !self.serving && is_fresh(space, &thread, module);
                    self.drafter().draft(
                        number,
                        thread.tid(),
                        module,
                        planned,
                        basis,
                        strict,
                        fresh,
                        keep.take(),
                    )
                }
            };
            let (stopped, now, carried) = self.carry_out(number, thread, stop, draft)?;
            (thread, stop) = (stopped, now);
            match carried {
                Ok(CarryOutcome::Out(left)) => return Ok((thread, stop, Ok(left))),
                Ok(CarryOutcome::Outdated(draft, reason)) => {
                    sites = ToArm::Planned(self.still_wanted(number, draft.into_sites()));
                    why = reason;
                }
                Err(reason) => return Ok((thread, stop, Err(reason))),
            }
        }
        let can_trap =
            self.followed.spaces.get(&number).is_some_and(|space| !space.planners.has(&module_key(module)));
        let left = match sites {
            ToArm::Planned(planned) => planned,
            ToArm::Drafted(draft) => draft.into_sites().collect(),
        };
        let left = left.into_iter().map(|site| NotJumped { site, reason: why.clone(), can_trap, was: None });
        Ok((thread, stop, Ok(left.collect())))
    }

    /// Drops uses whose probes have ended meanwhile, and sites without any use left.
    fn still_wanted(&self, number: u32, sites: impl Iterator<Item = Planned>) -> Vec<Planned> {
        let domain = self.followed.spaces.get(&number).map_or(Domain::OWN, |space| space.domain);
        let is_wanted = |wanted: &Use| match *wanted {
            Use::Probe { program, probe } => !self.programs[program].probes[probe].is_over_in(domain),
            _ => true,
        };
        let mut sites: Vec<Planned> = sites.collect();
        sites.iter_mut().for_each(|site| site.0.uses.retain(is_wanted));
        sites.retain(|site| !site.0.uses.is_empty());
        sites
    }
}
