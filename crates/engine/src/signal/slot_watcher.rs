//! Follows the displaced instructions that threads execute in slots: whether they have completed,
//! and what becomes of their records.

use patch::SlotPosition;
use process::{Registers, Stopped};

use super::show;
use crate::followed::Followed;
use crate::messages::Messages;
use crate::programs::Programs;
use crate::restart;
use crate::tracked::{Activity, InSlot};

/// Follows the threads that execute displaced instructions in slots.
pub(crate) struct SlotWatcher<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl SlotWatcher<'_, '_> {
    /// Whether a thread is between the instructions of a slot that together make up one call.
    pub(crate) fn is_amid_a_call(&mut self, thread: &Stopped, registers: &Registers) -> bool {
        let place = self.followed.space_of(thread.tid()).and_then(|space| space.in_slot(registers.rip()));
        matches!(place, Some((_, SlotPosition::Pushed { .. })))
    }

    /// Moves a thread in a slot to where it would be in the unprobed program, and settles its
    /// displaced instruction. Returns the instruction pointer before and after, if it was moved.
    pub(crate) fn show_the_site(
        &mut self,
        thread: &Stopped,
        registers: &mut Registers,
        synchronous: bool,
    ) -> Option<(u64, u64)> {
        let tid = thread.tid();
        let rip = registers.rip();
        let tracked = self.followed.threads.get_mut(&tid)?;
        let space = self.followed.spaces.get(&tracked.space?)?;
        let waiting = tracked.in_slot.take();
        let Some((site, place)) = space.in_slot(rip) else {
            if let Some(waiting) = waiting {
                self.messages.commit(self.programs, waiting.records);
            }
            return None;
        };
        if space.is_amid_a_group(rip) {
            // Signals are delivered after a thread has left a group, and nothing in a group faults.
            // So the signal came from elsewhere, and the thread continues where it is.
            if let Some(waiting) = waiting {
                self.messages.commit(self.programs, waiting.records);
            }
            return None;
        }
        show(place, site, registers);
        if let Some(mut waiting) = waiting {
            if place.is_after() {
                self.messages.commit(self.programs, waiting.records);
            } else {
                // A string instruction may be partly done.
                waiting.registers = *registers;
                self.not_executed(tid, waiting, synchronous);
            }
        }
        Some((rip, registers.rip()))
    }

    /// A signal came before an instruction was executed: a fault of the instruction, or another
    /// signal.
    fn not_executed(&mut self, tid: i32, waiting: InSlot, fault: bool) {
        let armed = self.followed.space_of(tid).is_some_and(|space| space.sites.contains_key(&waiting.site));
        if fault {
            self.messages.fault(self.programs, waiting.records);
        } else if !armed {
            // The thread will execute it at its own address, unseen by the tracer.
            self.messages.commit(self.programs, waiting.records);
        } else if let Some(space) = self.followed.space_of(tid) {
            for given_up in space.interrupted.add(tid, waiting) {
                self.messages.drop_records(self.programs, given_up.records);
            }
        }
    }

    /// A thread has stopped, not by a signal: if its displaced instruction has completed, its
    /// records are passed on.
    pub(crate) fn check_slot(&mut self, thread: &Stopped) -> Result<(), process::Error> {
        let Some(tracked) = self.followed.threads.get_mut(&thread.tid()) else { return Ok(()) };
        if tracked.in_slot.is_none() {
            return Ok(());
        }
        let registers = thread.registers()?;
        let space = tracked.space.and_then(|space| self.followed.spaces.get(&space));
        let place = space.and_then(|space| space.in_slot(registers.rip())).map(|(_, place)| place);
        if !place.is_some_and(SlotPosition::is_before)
            && let Some(waiting) = tracked.in_slot.take()
        {
            self.messages.commit(self.programs, waiting.records);
        }
        Ok(())
    }

    /// Before a thread is detached: moves it to where it would be in the unprobed program. Records
    /// of an instruction that was not executed are passed on, since the thread executes it next.
    pub(crate) fn bring_home(&mut self, thread: &mut Stopped) -> Result<(), process::Error> {
        let mut registers = thread.registers()?;
        let Some(tracked) = self.followed.threads.get_mut(&thread.tid()) else { return Ok(()) };
        let mut moved = false;
        let place =
            tracked.space.and_then(|space| self.followed.spaces.get(&space)?.in_slot(registers.rip()));
        if let Some((site, place)) = place {
            show(place, site, &mut registers);
            moved = true;
        }
        for waiting in self.followed.unexecuted(thread.tid()) {
            self.messages.commit(self.programs, waiting.records);
        }
        moved |= restart::restart(thread.tid(), &mut registers);
        if moved { thread.set_registers(&registers) } else { Ok(()) }
    }

    /// Checks the threads that have pending records and have not been asked to stop.
    pub(crate) fn look_at_slots(&mut self) {
        let waiting = self.followed.threads.values().filter(|thread| thread.has_records() && !thread.asked);
        for tid in waiting.map(|thread| thread.identity.tid).collect::<Vec<_>>() {
            self.look_at_slot(tid);
        }
    }

    /// A thread with pending records has not stopped for a while: finds out whether its instruction
    /// has completed, if possible without stopping it.
    fn look_at_slot(&mut self, tid: i32) {
        let Some(tracked) = self.followed.threads.get_mut(&tid) else { return };
        let space = tracked.space.and_then(|space| self.followed.spaces.get(&space));
        match process::blocked_at(tid) {
            Ok(Some(rip)) => {
                let still = space.and_then(|space| space.in_slot(rip));
                if !still.is_some_and(|(_, place)| place.is_before())
                    && let Some(waiting) = tracked.in_slot.take()
                {
                    self.messages.commit(self.programs, waiting.records);
                }
            }
            _ => {
                if let Activity::Running(running) = &tracked.activity
                    && running.interrupt().is_ok()
                {
                    tracked.asked = true;
                }
            }
        }
    }
}
