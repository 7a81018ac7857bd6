//! Drafts and carries out in turn, until the sites of a module are armed. A new draft is made if
//! the process has changed meanwhile.
//!
//! In: planned sites of a module, or a draft. Out: the sites that did not become jumps
//! (`NotJumped`).

use std::any::Any;

use layout::PAGE;
use process::{Module, Stop, Stopped};

use super::carry_out::CarryOutcome;
use super::draft::drafter::Drafter;
use super::draft::{Basis, Draft};
use crate::cache::Cache;
use crate::followed::Followed;
use crate::jump::arming::Keep;
use crate::jump::not_jumped::NotJumped;
use crate::jump::{Domain, MemoryMapper, proof};
use crate::loader::Arrived;
use crate::mapping::Called;
use crate::messages::Messages;
use crate::module_key::module_key;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::reason::NoJump;
use crate::sharing::Sharing;
use crate::site::Planned;
use crate::site_use::Use;
use crate::space::Space;

/// How many drafts are tried: another thread may map something at a chosen place, or load a module.
const TRIES: usize = 4;

/// What is to be armed in a module.
pub(crate) enum ToArm {
    /// Sites still to be planned.
    Planned(Vec<Planned>),
    /// A draft that was made before.
    Drafted(Box<Draft>),
}

/// Whether no thread has executed the code of a module yet, nor will before this thread goes on:
/// the program has not begun, and the thread is at its process's very first instruction, or at the
/// system call by which the dynamic linker has just mapped that code or closes its file. Of other
/// code that is not known. The linker itself is never fresh: the engine has its own sites there.
pub(super) fn is_fresh(space: &Space, thread: &Stopped, module: &Module) -> bool {
    if !space.modules.starting || proof::may_be_linker(thread.tid(), module) {
        return false;
    }
    let mapped = match space.modules.mapped_now {
        Some(Arrived::At(mapped)) => mapped,
        Some(Arrived::File(device, inode)) => {
            let is_its = (device, inode) == (module.device, module.inode);
            return is_its && !space.modules.seen.contains(&module_key(module));
        }
        None => {
            let registers = thread.registers();
            return registers.is_ok_and(|registers| proof::is_first(thread.tid(), registers.rip()));
        }
    };
    let mut segments = module.image.segments().iter().filter(|segment| segment.executable);
    let (segment, other) = (segments.next(), segments.next());
    segment.is_some_and(|segment| {
        let start = segment.vaddr.wrapping_add(module.bias);
        let offset = mapped.wrapping_sub(start / PAGE * PAGE);
        other.is_none() && offset < segment.mem_size
    })
}

/// Makes sites jumps: has a draft made, and carries it out.
pub(crate) struct Armer<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
    /// Takes what is no longer needed, to be freed when no thread waits for the tracer.
    pub(crate) spent: &'t mut Vec<Box<dyn Any>>,
    /// Whether the tracer serves requests.
    pub(crate) serving: bool,
    /// Whether no process has begun with its probes armed: then a refusal ends the session.
    pub(crate) is_first: bool,
}

impl<'a> Armer<'_, 'a> {
    /// Lends what makes drafts.
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

    /// Lends what maps handler memory and rings.
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
    ) -> Called<Vec<NotJumped>, NoJump> {
        let (mut thread, mut stop, mut sites, mut keep) = (thread, stop, sites, keep);
        let mut why = NoJump::ProbesChanged;
        for _ in 0..TRIES {
            let draft = match sites {
                ToArm::Drafted(draft) => *draft,
                ToArm::Planned(planned) => {
                    let Some(space) = self.followed.spaces.get(&number) else {
                        return Ok((thread, stop, Err(NoJump::Gone)));
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
        let can_trap = self
            .followed
            .spaces
            .get(&number)
            .is_some_and(|space| !space.plans.planners.has(&module_key(module)));
        let left = match sites {
            ToArm::Planned(planned) => planned,
            ToArm::Drafted(draft) => draft.into_sites().collect(),
        };
        let left = left.into_iter().map(|site| NotJumped { site, reason: why.clone(), can_trap, was: None });
        Ok((thread, stop, Ok(left.collect())))
    }

    /// Drops uses whose probes have ended meanwhile, and sites without any use left.
    fn still_wanted(&self, number: u32, sites: impl Iterator<Item = Planned>) -> Vec<Planned> {
        let domain = self.followed.spaces.get(&number).map_or(Domain::OWN, |space| space.trust.domain);
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
