//! Answers signal-delivery stops: handles faults of ours, passes on signals of the program.

use libc::siginfo_t;
use patch::SlotPosition;
use process::{Registers, Stopped};

use super::{
    PUT_BACK, SI_KERNEL, fault_address, is_ignored, is_interrupted, is_synchronous, set_fault_address, show,
};
use crate::restart;
use crate::tracer::Tracer;
use crate::tracked::InSlot;

impl Tracer<'_> {
    /// Handles a thread that is stopped by a signal.
    pub(crate) fn signalled(&mut self, thread: Stopped, signal: i32) -> Result<(), process::Error> {
        let info = thread.signal_info()?;
        // Must come first: after an `int3` the thread's address may be inside a jump to a
        // trampoline, though it is not in that jump.
        let Some(thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let outside = self.signalled_in_jump(thread, signal, &info)?;
        let Some((thread, signal, mut info)) = outside else { return Ok(()) };
        // The thread may have left the trampoline and hit an `int3`.
        let Some(mut thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let mut registers = thread.registers()?;
        let synchronous = is_synchronous(signal, &info);
        let ignored = is_interrupted(&registers) && is_ignored(thread.tid(), signal);
        if ignored && !synchronous {
            // The program sees nothing of this stop. An interrupted system call restarts in place,
            // so that it does not look like a new call.
            self.check_slot(&thread)?;
            if restart::restart(thread.tid(), &mut registers) {
                thread.set_registers(&registers)?;
            }
            self.followed.resume(thread, signal);
            return Ok(());
        }
        if signal == libc::SIGTRAP && synchronous && self.is_amid_a_call(&thread, &registers) {
            // The program single-steps itself. The displaced call is not complete, so the step is
            // not shown yet.
            self.followed.resume(thread, 0);
            return Ok(());
        }
        let moved = self.show_the_site(&thread, &mut registers, synchronous);
        if let Some((hidden, shown)) = moved
            && synchronous
            && matches!(signal, libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS)
            && fault_address(&info) == hidden
        {
            // These signals carry the address of the instruction; SIGSYS carries, in the same
            // field, that of the next one.
            set_fault_address(&mut info, shown);
            thread.set_signal_info(&info)?;
        }
        if moved.is_some() {
            thread.set_registers(&registers)?;
        }
        self.followed.resume(thread, signal);
        Ok(())
    }

    /// Handles the signal of an `int3` of ours. Returns the thread if it is another signal.
    fn trapped_by(
        &mut self,
        thread: Stopped,
        signal: i32,
        info: &siginfo_t,
    ) -> Result<Option<Stopped>, process::Error> {
        match signal == libc::SIGTRAP && matches!(info.si_code, SI_KERNEL | PUT_BACK) {
            true => self.trapped(thread),
            false => Ok(Some(thread)),
        }
    }

    /// Whether a thread is between the instructions of a slot that together make up one call.
    fn is_amid_a_call(&mut self, thread: &Stopped, registers: &Registers) -> bool {
        let place = self.followed.space_of(thread.tid()).and_then(|space| space.in_slot(registers.rip()));
        matches!(place, Some((_, SlotPosition::Pushed { .. })))
    }

    /// Moves a thread in a slot to where it would be in the unprobed program, and settles its
    /// displaced instruction. Returns the instruction pointer before and after, if it was moved.
    fn show_the_site(
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
                self.messages.commit(&mut self.programs, waiting.records);
            }
            return None;
        };
        if space.is_amid_a_group(rip) {
            // Signals are delivered after a thread has left a group, and nothing in a group faults.
            // So the signal came from elsewhere, and the thread continues where it is.
            if let Some(waiting) = waiting {
                self.messages.commit(&mut self.programs, waiting.records);
            }
            return None;
        }
        show(place, site, registers);
        if let Some(mut waiting) = waiting {
            if place.is_after() {
                self.messages.commit(&mut self.programs, waiting.records);
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
            self.messages.fault(&mut self.programs, waiting.records);
        } else if !armed {
            // The thread will execute it at its own address, unseen by the tracer.
            self.messages.commit(&mut self.programs, waiting.records);
        } else if let Some(space) = self.followed.space_of(tid) {
            for given_up in space.interrupted.add(tid, waiting) {
                self.messages.drop_records(&mut self.programs, given_up.records);
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
            self.messages.commit(&mut self.programs, waiting.records);
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
            self.messages.commit(&mut self.programs, waiting.records);
        }
        moved |= restart::restart(thread.tid(), &mut registers);
        if moved { thread.set_registers(&registers) } else { Ok(()) }
    }
}
