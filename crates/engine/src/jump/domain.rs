//! Assigns processes to trust domains, and moves them when their rights change.
//!
//! The tracer reads a process's credentials when it is found, born, or executes a program, before
//! it runs. A process that can change its ids in place is checked again after 10 milliseconds, then
//! after twice as long each time, up to 5 seconds (4, and up to one until the tracer is woken).
//! When it has changed, one of its threads maps the cells of the new domain in place of the old
//! ones, in one step for all threads; a thread in a handler goes on with either.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use process::{Caller, Error, Stop, Stopped};

use super::cells::Domain;
use super::trust::{Again, NextLook, Trust};
use crate::cache::Cache;
use crate::followed::Followed;
use crate::messages::Messages;
use crate::observer::Note;
use crate::programs::Programs;
use crate::sharing::Sharing;
use crate::site_use::Use;
use crate::space::Space;

/// When the process is checked again; soon while it is to change its domain.
fn next_look(space: &Space) -> NextLook {
    if space.trust.becomes.is_some() { NextLook::Soon } else { space.trust.again.next() }
}

/// Assigns processes to trust domains.
pub(crate) struct Domains<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl Domains<'_, '_> {
    /// The domain of processes with this trust. If there are too many, it is the tracer's own, and
    /// they are probed by traps.
    fn domain_of(&mut self, trust: &Trust) -> Domain {
        let trust = Rc::new(if self.sharing.everybody { Trust::default() } else { trust.clone() });
        let Some(cells) = &mut self.sharing.cells else { return Domain::OWN };
        if let Some(domain) = cells.domain(&trust) {
            return domain;
        }
        self.end_domains();
        self.sharing.cells.as_mut().and_then(|cells| cells.domain(&trust)).unwrap_or(Domain::OWN)
    }

    /// Ends domains without processes, and frees their memory.
    fn end_domains(&mut self) {
        if !self.sharing.tables.is_empty() {
            // The maps of scripts live on in the only domain.
            return;
        }
        let Some(cells) = &mut self.sharing.cells else { return };
        let spaces = self.followed.spaces.values();
        let used: HashSet<Domain> =
            spaces.flat_map(|space| space.trust.becomes.into_iter().chain([space.trust.domain])).collect();
        let all: Vec<Domain> = cells.domains().iter().map(|(domain, _)| *domain).collect();
        let left: Vec<Domain> = all.into_iter().filter(|domain| !used.contains(domain)).collect();
        left.iter().for_each(|&domain| self.cache.armings.leave_armings(self.programs, domain));
        let Some(cells) = &mut self.sharing.cells else { return };
        for domain in left {
            for program in self.programs.values_mut() {
                let definitions = &program.versions.main().probes;
                let probes = program.probes.iter_mut().zip(definitions);
                probes.for_each(|(probe, definition)| probe.end_domain(definition, domain));
            }
            cells.end_domain(domain);
        }
    }

    /// Assigns a new address space, or a copy of its parent's, to its process's domain; if it has
    /// cells of another one, the change is made later.
    pub(crate) fn enter_domain(&mut self, space: &mut Space) {
        let Some(trust) = Trust::of(space.code.process) else { return };
        let domain = self.domain_of(&trust);
        space.trust.again = Again::of(&trust);
        space.trust.becomes =
            (space.shared.handler_memory.is_some() && space.trust.domain != domain).then_some(domain);
        if space.shared.handler_memory.is_none() {
            space.trust.domain = domain;
        }
        self.sharing.next_look = self.sharing.next_look.max(next_look(space));
    }

    /// Checks the processes whose rights may have changed.
    pub(crate) fn look_for_others(&mut self) {
        if self.sharing.next_look == NextLook::Never {
            return;
        }
        let now = Instant::now();
        let due = self
            .followed
            .spaces
            .iter_mut()
            .filter_map(|(&number, space)| space.trust.again.is_due(now).then_some(number));
        for number in due.collect::<Vec<_>>() {
            self.look_who(number);
        }
        let changing = |space: &Space| space.trust.becomes.is_some();
        let changing: Vec<u32> = self
            .followed
            .spaces
            .iter()
            .filter(|(_, space)| changing(space))
            .map(|(&number, _)| number)
            .collect();
        // The thread asked before may be in the kernel, where it cannot be stopped.
        changing.iter().for_each(|&number| self.followed.ask_one(self.messages, number));
        self.sharing.next_look = self.followed.spaces.values().map(next_look).max().unwrap_or_default();
    }

    /// Checks the rights of a process now.
    pub(crate) fn look_who(&mut self, number: u32) {
        let pid = self.followed.spaces.get(&number).map(|space| space.code.process);
        let Some(trust) = pid.and_then(Trust::of) else { return };
        let domain = self.domain_of(&trust);
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        if domain == space.trust.becomes.unwrap_or(space.trust.domain) {
            return;
        }
        space.trust.again = Again::of(&trust);
        if space.shared.handler_memory.is_none() {
            space.trust.domain = domain;
        } else {
            space.trust.becomes = (space.trust.domain != domain).then_some(domain);
        }
    }

    /// Moves a process to its new domain, if it has one; `thread` belongs to it.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn change_domain(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), Error> {
        let number = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let space = number.and_then(|number| Some((number, self.followed.spaces.get_mut(&number)?)));
        let Some((number, space)) = space else { return Ok((thread, stop)) };
        let Some(domain) = space.trust.becomes.take() else { return Ok((thread, stop)) };
        let (pid, size) = (space.code.process, space.shared.cells);
        let base = space.shared.handler_memory.as_ref().map(|handler_memory| handler_memory.cells);
        let memory = self.sharing.cells.as_ref().and_then(|cells| cells.memory(domain));
        let descriptor = memory.as_ref().and_then(|memory| memory.descriptor());
        let Some((base, descriptor)) = base.zip(descriptor) else { return Ok((thread, stop)) };
        let failed = |reason: &dyn std::fmt::Display| {
            Note::Other(format!(
                "process {pid} has changed its credentials, and still counts in the memory of its earlier trust domain: {reason}"
            ))
        };
        let caller = match self.followed.spaces.find_syscall(number, &thread, &[])? {
            Ok(syscall) => Caller::begin(thread, stop, syscall),
            Err(reason) => {
                self.messages.tell_once(failed(&reason));
                return Ok((thread, stop));
            }
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err((_, error)) if error.is_gone() => return Err(error),
            Err((thread, error)) => {
                self.messages.tell_once(failed(&error));
                return Ok((thread, Stop::Other));
            }
        };
        let (caller, shared) =
            caller.share_instead(descriptor, base, size, libc::PROT_READ | libc::PROT_WRITE)?;
        let (thread, stop) = caller.end()?;
        match shared {
            Ok(()) => self.has_entered(number, domain),
            Err(error) => self.messages.tell_once(failed(&error)),
        }
        Ok((thread, stop))
    }

    /// Records that a process belongs to a domain now, with all its probes.
    fn has_entered(&mut self, number: u32, domain: Domain) {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        space.trust.domain = domain;
        let programs = &mut self.programs;
        space.sites.each_use(|wanted| {
            if let Use::Probe { program, probe } = *wanted {
                programs[program].probes[probe].placed.insert(domain);
            }
        });
    }
}
