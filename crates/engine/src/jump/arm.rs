//! Turns sites into jumps: makes a [`Draft`], carries it out ([`CarryOutcome`]), and makes a new one if
//! the process has changed meanwhile.

use layout::PAGE;
use process::{Module, Stop, Stopped};

use super::Domain;
use super::arming::Keep;
use super::carry_out::CarryOutcome;
use super::{Basis, Draft, proof};
use crate::loader::Arrived;
use crate::mapping::Called;
use crate::site::{Planned, Use};
use crate::space::{Space, module_key};
use crate::tracer::Tracer;

/// How many drafts are tried: another thread may map something at a chosen place, or load a module.
const TRIES: usize = 4;

/// A site that did not become a jump.
pub(crate) struct NotJumped {
    pub(crate) site: Planned,
    pub(crate) reason: String,
    /// Whether it may trap instead: not if jumps of other sites rely on its bytes.
    pub(crate) can_trap: bool,
    /// The tactic of the jump that it was so far, if any: it is no jump any more.
    pub(crate) was: Option<&'static str>,
}

/// What is to be armed in a module.
pub(crate) enum ToArm {
    /// Sites still to be planned.
    Planned(Vec<Planned>),
    /// A draft that was made before.
    Drafted(Box<Draft>),
}

impl Tracer<'_> {
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
                    let Some(space) = self.spaces.get(&number) else {
                        return Ok((thread, stop, Err("the process is gone".to_owned())));
                    };
                    let basis = Basis::of(space);
                    let fresh = !self.session.serving && is_fresh(space, &thread, module);
                    self.draft(number, thread.tid(), module, planned, basis, strict, fresh, keep.take())
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
        let can_trap = self.spaces.get(&number).is_some_and(|space| !space.planners.has(&module_key(module)));
        let left = match sites {
            ToArm::Planned(planned) => planned,
            ToArm::Drafted(draft) => draft.into_sites().collect(),
        };
        let left = left.into_iter().map(|site| NotJumped { site, reason: why.clone(), can_trap, was: None });
        Ok((thread, stop, Ok(left.collect())))
    }

    /// Drops uses whose probes have ended meanwhile, and sites without any use left.
    fn still_wanted(&self, number: u32, sites: impl Iterator<Item = Planned>) -> Vec<Planned> {
        let domain = self.spaces.get(&number).map_or(Domain::OWN, |space| space.domain);
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

/// Whether no thread has executed the code of a module yet, nor will before this thread goes on:
/// the program has not begun, and the thread is at its process's very first instruction, or at the
/// system call by which the dynamic linker has just mapped that code or closes its file. Of other
/// code that is not known. The linker itself is never fresh: the engine has its own sites there.
pub(super) fn is_fresh(space: &Space, thread: &Stopped, module: &Module) -> bool {
    if !space.starting || proof::may_be_linker(thread.tid(), module) {
        return false;
    }
    let mapped = match space.mapped_now {
        Some(Arrived::At(mapped)) => mapped,
        Some(Arrived::File(device, inode)) => {
            let is_its = (device, inode) == (module.device, module.inode);
            return is_its && !space.seen.contains(&module_key(module));
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
