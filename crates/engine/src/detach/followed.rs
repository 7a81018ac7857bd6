//! Finds the threads that are to be detached, restores the bytes of their processes, and unmaps the
//! memory for probes with the last thread of each.

use std::collections::HashSet;

use process::{Caller, Status, Stop, Stopped};

use super::Leaving;
use crate::change::Fixed;
use crate::followed::Followed;
use crate::jump::forget_stranger;
use crate::mapping::{self, allow_call};
use crate::messages::Messages;
use crate::observer::Note;
use crate::programs::Programs;
use crate::restart;
use crate::space::Space;
use crate::tracked::{Activity, Tracked};

impl Followed {
    /// The processes that have no probe and that no program names by process id. Processes that
    /// share memory stay together.
    pub(crate) fn unprobed(&self, programs: &Programs) -> HashSet<i32> {
        let followed = self.threads.values().filter(|tracked| !tracked.exiting);
        let followed = followed.map(|tracked| (tracked.identity.pid, tracked.space));
        let announced = self.new_threads.announced.values().map(|announced| (announced.pid, announced.space));
        let processes: Vec<(i32, Option<u32>)> = followed.chain(announced).collect();
        let probed = self.spaces.iter().filter(|(_, space)| space.is_probed());
        let mut spaces: HashSet<u32> = probed.map(|(&number, _)| number).collect();
        let is_meant = |pid: i32| {
            let mut programs = programs.values().filter(|program| program.inserted);
            programs.any(|program| program.only.as_ref().is_some_and(|only| only.contains(&pid)))
        };
        let meant: HashSet<i32> =
            processes.iter().map(|&(pid, _)| pid).filter(|&pid| is_meant(pid)).collect();
        spaces
            .extend(processes.iter().filter(|(pid, _)| meant.contains(pid)).filter_map(|(_, space)| *space));
        let stays = |pid: i32, space: Option<u32>| {
            meant.contains(&pid) || space.is_some_and(|space| spaces.contains(&space))
        };
        let staying: HashSet<i32> =
            processes.iter().filter(|&&(pid, space)| stays(pid, space)).map(|&(pid, _)| pid).collect();
        processes.into_iter().map(|(pid, _)| pid).filter(|pid| !staying.contains(pid)).collect()
    }

    /// Asks the threads to stop that were resumed because they may wait for room in a ring. Returns
    /// whether there are any.
    pub(crate) fn ask_leaving(&mut self) -> bool {
        let mut any = false;
        for tracked in self.threads.values_mut() {
            if let Activity::Running(running) = &tracked.activity
                && !tracked.exiting
                && !tracked.asked
                && self.departure.who.includes(tracked.identity.pid)
            {
                tracked.asked = running.interrupt().is_ok();
                any = true;
            }
        }
        any
    }

    /// Restores all bytes of an address space.
    pub(crate) fn restore_all(&mut self, messages: &mut Messages<'_>, number: u32) {
        let Some(space) = self.spaces.get_mut(&number) else { return };
        space.semaphores.lower(&space.code.memory);
        if space.plans.planners.is_empty() {
            let fixed = Fixed::of(&process::maps(space.code.process).unwrap_or_default());
            match space.has_jumps() {
                false => space.disarm_traps(&fixed),
                true => space.traps().into_iter().for_each(|address| space.disarm(address)),
            }
        }
        if space.has_jumps() || !space.plans.planners.is_empty() {
            let batch = space.all_out();
            match self.hold(number) {
                Ok(held) => {
                    // Needs to know which jumps lead where, so it comes first.
                    self.bring_back(number, &held);
                    if let Some(space) = self.spaces.get_mut(&number) {
                        space.disarm_all(batch, &held);
                    }
                }
                Err(reason) => messages.tell_once(Note::Other(format!(
                    "the probes of a process stay in, without effect, and memory mapped for them: {reason}"
                ))),
            }
        }
    }

    /// Removes threads that have ended unreported: when a process's main thread is killed while
    /// exiting, there is no stop and no report while other threads live.
    pub(crate) fn look_after_ended(&mut self, messages: &mut Messages<'_>) {
        let ended = |tid: &i32| Status::read(*tid).is_ok_and(|status| status.has_ended());
        for tid in self.threads.keys().copied().filter(ended).collect::<Vec<_>>() {
            self.stop_following(messages, tid);
        }
    }

    /// Whether there are threads that are not detached and not about to end.
    pub(crate) fn anyone_left(&self) -> bool {
        let is_awaited = |tid: &i32| match &self.departure.who {
            Leaving::Everybody => true,
            some => Status::read(*tid).is_ok_and(|status| some.includes(status.tgid)),
        };
        self.new_threads.newborn.keys().any(is_awaited)
            || self.new_threads.announced.keys().any(is_awaited)
            || self.threads.values().any(|tracked| self.is_still_there(tracked))
    }

    /// Whether a thread is to be detached and has not been.
    pub(crate) fn is_still_there(&self, tracked: &Tracked) -> bool {
        !tracked.exiting && self.departure.who.includes(tracked.identity.pid)
    }

    /// Whether a followed thread is to be detached.
    pub(crate) fn is_leaving(&self, tid: i32) -> bool {
        !matches!(self.departure.who, Leaving::Nobody)
            && self.threads.get(&tid).is_some_and(|tracked| self.departure.who.includes(tracked.identity.pid))
    }

    /// Detaches from the last thread of an address space, after it has unmapped the slots.
    pub(crate) fn detach_last(
        &mut self,
        messages: &mut Messages<'_>,
        number: u32,
        thread: Stopped,
    ) -> Result<(), process::Error> {
        let thread = self.unmap(messages, number, thread);
        let space = self.spaces.remove(&number);
        thread?.detach(0);
        self.holds.released_if_alone();
        // Slow if there were many sites, so it comes after the thread has been released.
        drop(space);
        Ok(())
    }

    /// Handles the death of a thread that was kept to unmap the slots.
    pub(crate) fn unmapper_died(&mut self, messages: &mut Messages<'_>, tid: i32) {
        let held = |space: &Space| space.unmapper.as_ref().is_some_and(|anchor| anchor.tid() == tid);
        let number = self.spaces.iter().find(|(_, space)| held(space)).map(|(&number, _)| number);
        if let Some(number) = number {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.unmapper = None;
            }
            self.release_space(messages, number, tid);
        }
    }

    /// Detaches from threads that were kept to unmap the slots, where other threads could not be
    /// stopped.
    pub(crate) fn drop_anchors(&mut self) {
        for anchor in self.spaces.values_mut().filter_map(|space| space.unmapper.take()) {
            anchor.detach(0);
        }
    }

    /// Unmaps the memory for probes in an address space, by calls of its last thread.
    fn unmap(
        &mut self,
        messages: &mut Messages<'_>,
        number: u32,
        mut thread: Stopped,
    ) -> Result<Stopped, process::Error> {
        let Some(space) = self.spaces.get_mut(&number) else { return Ok(thread) };
        let mapped = space.mapped();
        let Some(entrance) = space.entrance() else { return Ok(thread) };
        // Jumps that could not be removed lead there.
        if mapped.is_empty() && space.calls.guard.is_none() || space.has_jumps() {
            return Ok(thread);
        }
        // The thread was brought out of that memory. If it is there nevertheless, the memory stays.
        let rip = thread.registers()?.rip();
        if mapped.iter().any(|&(base, size)| rip.wrapping_sub(base) < size) {
            let pid = space.code.process;
            messages.tell_once(Note::Other(format!(
                "a thread of process {pid} is still in memory that was mapped for the probes, which stays there"
            )));
            return Ok(thread);
        }
        // If the process entered a sandbox after the memory was mapped, it stays.
        let Ok(suspended) = allow_call(&mut thread) else { return Ok(thread) };
        // This is the last thread, so nothing else is mapped meanwhile.
        let mappings = process::maps(thread.tid()).unwrap_or_default();
        let spans = mapping::spans(mapped, &mappings);
        if let Some(space) = self.spaces.get_mut(&number) {
            space.strike_memory();
        }
        // What cannot be unmapped stays, without effect.
        let caller = Caller::unfiltered(thread, Stop::Interrupt, entrance);
        let (stopped, stop) = mapping::unmap(caller, &spans)?.0.end()?;
        thread = self.spaces.unguard(number, stopped, stop)?.0;
        if suspended {
            thread.restore_seccomp()?;
        }
        // The call has settled the thread once more: a wait that the kernel does not restart must
        // be restarted again.
        let mut registers = thread.registers()?;
        if restart::restart(thread.tid(), &mut registers) {
            thread.set_registers(&registers)?;
        }
        Ok(thread)
    }

    /// Removes a thread that executes no more of the program. Its end may come much later: a main
    /// thread waits for the others.
    pub(crate) fn stop_following(&mut self, messages: &mut Messages<'_>, tid: i32) {
        if let Some(tracked) = self.threads.get_mut(&tid) {
            tracked.exiting = true;
            if let Some(space) = tracked.space.take() {
                self.release_space(messages, space, tid);
            }
        }
    }

    /// Removes a thread from its address space, and the address space with its last thread.
    pub(crate) fn release_space(&mut self, messages: &mut Messages<'_>, number: u32, tid: i32) {
        if let Some(space) = self.spaces.get_mut(&number) {
            forget_stranger(space, tid);
            space.members -= 1;
            if space.members == 0 {
                self.spaces.remove(&number);
            } else if space.members == 1
                && let Some(anchor) = space.unmapper.take()
            {
                let gone = self.detach_last(messages, number, anchor);
                messages.tell_failure(gone);
            }
        }
    }
}
