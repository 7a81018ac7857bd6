//! Maps handler memory in a process, and gives forked children their rings.
//!
//! Contexts and rings are mapped when the first handler is armed that works in a context. A forked
//! child has its parent's contexts, all zeros, and no rings: hits that need a context are missed
//! until the tracer gives it rings, which happens before it runs.

use std::fs::File;
use std::io;
use std::rc::Rc;

use agent::image::{Settings, image};
use layout::PAGE;
use process::{Call, Caller, Error, Memory, Step, Stop, Stopped};

use super::cells::{Cells, Domain};
use super::domain::Domains;
use super::handler_memory::HandlerMemory;
use super::rings::Rings;
use super::shared::within_limits;
use super::thread_names::ThreadNames;
use crate::cache::Cache;
use crate::followed::Followed;
use crate::mapping::{Called, unmap};
use crate::messages::Messages;
use crate::observer::Note;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::reason::{NotMapped, NotProbed};
use crate::sharing::Sharing;
use crate::space::Space;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps handler memory and rings in processes.
pub(crate) struct MemoryMapper<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl<'a> MemoryMapper<'_, 'a> {
    fn domains(&mut self) -> Domains<'_, 'a> {
        Domains {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            cache: self.cache,
            messages: self.messages,
        }
    }

    /// Maps the parts of a chosen handler memory that are not mapped yet: all or nothing. The
    /// result says why not. The space remembers the reason, unless a place was taken meanwhile:
    /// then a new handler memory has to be chosen.
    pub(crate) fn map_missing_handler_memory(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        handler_memory: &HandlerMemory,
    ) -> Called<()> {
        let cells = self.sharing.cells.as_ref().map_or(0, Cells::used);
        let (thread, stop, made) = self.map_handler_memory(number, thread, stop, handler_memory)?;
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            match &made {
                Ok(()) => {
                    if space.shared.handler_memory.is_none() {
                        space.mapped.mappings += handler_memory.mapped(cells).len();
                        space.shared.cells = cells;
                    }
                    space.shared.handler_memory = Some(handler_memory.clone());
                    space.shared.publish_tables(&space.code.memory);
                }
                Err(Failed::Taken(_)) => {}
                Err(Failed::For(reason)) if space.shared.handler_memory.is_none() => {
                    space.shared.no_handler_memory = Some(reason.clone())
                }
                Err(Failed::For(reason)) => space.shared.ringless = Some(reason.clone()),
            }
        }
        let reason = |failed| match failed {
            Failed::Taken(reason) | Failed::For(reason) => reason,
        };
        Ok((thread, stop, made.map_err(reason)))
    }

    fn map_handler_memory(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        handler_memory: &HandlerMemory,
    ) -> Laid {
        self.domains().look_who(number);
        let domain = self.followed.spaces.get(&number).map_or(Domain::OWN, |space| space.trust.domain);
        let failed = |reason| Err(Failed::For(reason));
        let mappings = match thread.mappings() {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, failed(NotMapped::Handlers(error.into())))),
        };
        // The first calls in a process give it its guard, through which further ones are made.
        let (thread, stop, allowed) = self.followed.spaces.with_calls(number, thread, stop, &mappings, Ok)?;
        if let Err(reason) = allowed {
            return Ok((thread, stop, Err(Failed::For(reason))));
        }
        let Some(entrance) = self.followed.spaces.get(&number).and_then(Space::entrance) else {
            return Ok((thread, stop, failed(NotMapped::Gone)));
        };
        let caller = match Caller::begin(thread, stop, entrance) {
            Ok(caller) => caller,
            Err((_, error)) if error.is_gone() => return Err(error),
            Err((thread, error)) => {
                return Ok((thread, Stop::Other, failed(NotMapped::Handlers(error.into()))));
            }
        };
        let Some(space) = self.followed.spaces.get(&number) else {
            return ended(caller, failed(NotMapped::Ended));
        };
        let mut mapped = Vec::new();
        let (mut caller, mut result) = (caller, Ok(()));
        if space.shared.handler_memory.is_none() {
            (caller, result) =
                self.lay_pieces(caller, handler_memory, domain, &space.code.memory, &mut mapped)?;
        }
        let mut rings = None;
        let signs = self.programs.is_lossless() && handler_memory.claims && !space.shared.has_sign;
        if result.is_ok()
            && signs
            && let Some(sign) = &self.sharing.sign
        {
            let (place, descriptor) = (handler_memory.sign(), sign.descriptor());
            (caller, result) = caller.share_over(descriptor, place, PAGE, libc::PROT_READ)?;
        }
        if result.is_ok() && handler_memory.claims && space.shared.rings.is_none() {
            let (next, laid) = map_contexts(caller, handler_memory, space.code.process, &mut mapped)?;
            caller = next;
            match laid {
                Ok(laid) => rings = Some(laid),
                Err(error) => result = Err(error),
            }
        }
        if result.is_err() {
            (caller, _) = unmap(caller, &mapped)?;
            mapped.clear();
        }
        let (thread, stop) = caller.end()?;
        if let Some(space) = self.followed.spaces.get_mut(&number).filter(|_| signs && result.is_ok()) {
            space.shared.has_sign = true;
            space.mapped.mappings += 1;
        }
        if let Some(rings) = rings {
            self.take_rings(number, rings, 3);
        }
        let result = result.map_err(|error| match &error {
            Error::Remote { cause, .. } if cause.raw_os_error() == Some(libc::EEXIST) => {
                Failed::Taken(NotMapped::Handlers(error.into()))
            }
            _ => Failed::For(NotMapped::Handlers(error.into())),
        });
        Ok((thread, stop, result))
    }

    /// Maps the parts that every handler memory has, and adds them to `mapped`.
    fn lay_pieces(
        &self,
        caller: Caller,
        handler_memory: &HandlerMemory,
        domain: Domain,
        memory: &Memory,
        mapped: &mut Vec<(u64, u64)>,
    ) -> Result<Step<()>, Error> {
        let pid = caller.thread().tid();
        let refused = |what: &'static str| Error::Refused { what, pid, cause: io::ErrorKind::Other.into() };
        let cells = self.sharing.cells.as_ref();
        let own = cells.and_then(|cells| Some((cells.used(), cells.memory(domain)?)));
        let Some((used, cells)) = own.as_ref().and_then(|(used, memory)| Some((*used, memory.descriptor()?)))
        else {
            return Ok((caller, Err(NotProbed::Domains.of(pid))));
        };
        let execute = libc::PROT_READ | libc::PROT_EXEC;
        let [own, shared, code] = handler_memory.mapped(used)[..] else {
            return Ok((caller, Err(refused("its memory for handlers"))));
        };
        let (caller, done) = caller.map_all(&[(own.0, own.1, READ_WRITE), (code.0, code.1, execute)])?;
        if done.is_err() {
            return Ok((caller, done));
        }
        mapped.extend([own, code]);
        let (caller, wiped) = caller.wipe_on_fork(own.0, own.1)?;
        if wiped.is_err() {
            return Ok((caller, wiped));
        }
        // The page for the sign of life, which is not in use yet, serves as scratch memory.
        let (caller, done) = caller.share(cells, shared.0, shared.1, READ_WRITE, handler_memory.sign())?;
        if done.is_err() {
            return Ok((caller, done));
        }
        mapped.push(shared);
        let reader = handler_memory.sign() as u32;
        let (identity, stacks) = (handler_memory.identity as u32, handler_memory.stacks() as u32);
        let settings = Settings { identity, reader, stacks };
        let written = memory.poke(handler_memory.code.0, &image().at(handler_memory.code.0, settings));
        Ok((caller, written.map_err(|_| refused("writing the memory mapped for probes"))))
    }

    /// Extends the mapping of the cells, if more are in use than are mapped. The result says why it
    /// cannot.
    pub(crate) fn grow_cells(&mut self, number: u32, thread: Stopped, stop: Stop) -> Called<()> {
        let used = self.sharing.cells.as_ref().map_or(0, Cells::used);
        let Some(space) = self.followed.spaces.get(&number) else { return Ok((thread, stop, Ok(()))) };
        let (base, now) = match &space.shared.handler_memory {
            Some(handler_memory) => (handler_memory.cells, space.shared.cells),
            None => return Ok((thread, stop, Ok(()))),
        };
        // A child may be a copy from before its parent's cells grew; and the program may have
        // unmapped them.
        if space.code.memory.peek(base + now - 1, &mut [0]).is_err() {
            return Ok((thread, stop, Err(NotMapped::CountersGone)));
        }
        if now >= used {
            return Ok((thread, stop, Ok(())));
        }
        let mut grown = Ok(());
        let done = self.followed.spaces.with_calls(number, thread, stop, &[], |caller| {
            // Without flags, mremap extends it in place, or fails.
            let arguments = [base, now, used, 0, 0, 0];
            let (caller, result) = caller.call("mremap", libc::SYS_mremap, arguments)?;
            grown = result.map(drop).map_err(|error| NotMapped::CountersRefused(error.into()));
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        let grown = allowed.and(grown);
        if let Some(space) = self.followed.spaces.get_mut(&number).filter(|_| grown.is_ok()) {
            space.shared.cells = used;
        }
        Ok((thread, stop, grown))
    }

    /// Gives a forked child rings of its own, if its parent has some. Its one thread is stopped and
    /// has not run yet.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn give_rings(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), Error> {
        let number = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let Some(number) = number else { return Ok((thread, stop)) };
        let syscall = self.followed.spaces.find_syscall(number, &thread, &[])?;
        let Some(space) = self.followed.spaces.get(&number) else { return Ok((thread, stop)) };
        let Some(handler_memory) = space.shared.handler_memory.clone().filter(|_| space.shared.lacks_rings)
        else {
            return Ok((thread, stop));
        };
        let has_contexts = handler_memory.contexts.are_mapped(&space.code.memory);
        let pid = space.code.process;
        let untold = |reason: &dyn std::fmt::Display| {
            Note::Other(format!(
                "process {pid} has no rings of its own, so hits that would log are missed: {reason}"
            ))
        };
        let begun = match syscall {
            Ok(syscall) => Caller::begin(thread, stop, syscall),
            Err(reason) => {
                self.messages.tell_once(untold(&reason));
                return Ok((thread, stop));
            }
        };
        let caller = match begun {
            Ok(caller) => caller,
            Err((_, error)) if error.is_gone() => return Err(error),
            Err((thread, error)) => {
                self.messages.tell_once(untold(&error));
                return Ok((thread, Stop::Other));
            }
        };
        let (caller, laid) = match has_contexts {
            true => map_rings(caller, &handler_memory, pid)?,
            // It was forked before its parent's contexts were mapped.
            false => map_contexts(caller, &handler_memory, pid, &mut Vec::new())?,
        };
        let (thread, stop) = caller.end()?;
        match laid {
            Ok(rings) => self.take_rings(number, rings, 1),
            Err(error) => self.messages.tell_once(untold(&error)),
        }
        Ok((thread, stop))
    }

    /// Records the rings of an address space, which took so many mappings, and starts reading them.
    fn take_rings(&mut self, number: u32, rings: Rings, mappings: usize) {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        let rings = Rc::new(rings);
        let mut who = ThreadNames::of(rings.pid());
        for tracked in self.followed.threads.values().filter(|tracked| tracked.space == Some(number)) {
            who.add(tracked.identity.tid, tracked.identity.pid);
        }
        space.plans.moved.iter().for_each(|moved| rings.add_moved(*moved));
        self.reader.drain.add(Rc::clone(&rings), who);
        space.shared.lacks_rings = false;
        space.mapped.mappings += mappings;
        space.shared.rings = Some(rings);
        space.shared.publish_tables(&space.code.memory);
        // Fails only if the process is gone.
        let _ = space.hide([]);
    }
}

/// Ends a thread's calls with a result.
fn ended(caller: Caller, result: Result<(), Failed>) -> Laid {
    let (thread, stop) = caller.end()?;
    Ok((thread, stop, result))
}

/// Maps contexts, descriptions and rings in the process `owner`. Adds what was mapped to `mapped`,
/// so that it can be unmapped.
fn map_contexts(
    caller: Caller,
    handler_memory: &HandlerMemory,
    owner: i32,
    mapped: &mut Vec<(u64, u64)>,
) -> Result<Step<Rings>, Error> {
    let [(base, size), texts] = handler_memory.claimed();
    let execute = libc::PROT_READ | libc::PROT_EXEC;
    let (caller, done) = caller.map_all(&[(texts.0, texts.1, execute), (base, size, READ_WRITE)])?;
    if let Err(error) = done {
        return Ok((caller, Err(error)));
    }
    mapped.extend([(base, size), texts]);
    let (caller, results) =
        caller.calls(&[Call::wipe_on_fork(base, size), Call::leave_out_of_dumps(base, size)])?;
    match caller.first(results) {
        Ok(_) => map_rings(caller, handler_memory, owner),
        Err(error) => Ok((caller, Err(error))),
    }
}

/// Maps rings for existing contexts of the process `owner`, and enters them in the contexts.
fn map_rings(caller: Caller, handler_memory: &HandlerMemory, owner: i32) -> Result<Step<Rings>, Error> {
    let pid = caller.thread().tid();
    let refused = |cause| Error::Refused { what: "sharing memory", pid, cause };
    let count = handler_memory.contexts.count();
    let size = Rings::bytes(count, handler_memory.ring_size);
    let (caller, made) = caller.make_memory(handler_memory.contexts.scratch())?;
    let (made, file) = match made {
        Ok((made, copy)) => (made, File::from(copy)),
        Err(error) => return Ok((caller, Err(error))),
    };
    if let Err(error) = within_limits(|| process::fix_size(std::os::fd::AsFd::as_fd(&file), size)) {
        return Ok((caller.drop_memory(made)?, Err(refused(error))));
    }
    let (mut caller, placed) = caller.map_memory(made, size)?;
    let place = match placed {
        Ok(place) => place,
        Err(error) => return Ok((caller, Err(error))),
    };
    let mut rings = Rings::of(&file, place, count, handler_memory.ring_size, owner).map_err(refused);
    // Another process may share the descriptors of this one (CLONE_FILES), and have put its own
    // file in the place of the one that was just made.
    if rings.as_ref().is_ok_and(|rings| !rings.are_in_process(|place| caller.read(place).ok())) {
        rings = Err(refused(io::Error::other("its descriptors were changed meanwhile")));
    }
    if let Ok(laid) = &rings
        && !handler_memory.contexts.give(pid, laid)
    {
        rings = Err(refused(io::Error::from_raw_os_error(libc::EFAULT)));
    }
    if rings.is_err() {
        caller = caller.unmap(place, size)?.0;
    }
    Ok((caller, rings))
}

enum Failed {
    /// One of its places was taken meanwhile: another may do.
    Taken(NotMapped),
    /// It cannot be mapped in this process at all.
    For(NotMapped),
}

/// As [`Called`], with [`Failed`].
type Laid = Result<(Stopped, Stop, Result<(), Failed>), Error>;
