//! Runs a stopped thread to the end of its trampoline, then answers its signal.

use libc::siginfo_t;
use process::{Stop, Stopped};

use super::super::Part;
use super::super::waiting::ProgressTimer;
use super::{
    RAISED, STEPS, SavedFlags, SteppedOut, TRAP_FLAG, bit, is_misaligned, lend_alignment_check,
    set_trap_flag, unmark,
};
use crate::followed::Followed;
use crate::jump::Drainer;
use crate::messages::Messages;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::sharing::Sharing;
use crate::signal::is_synchronous;

/// Steps threads out of trampolines, and answers their signals there. It reads rings meanwhile,
/// since such a thread may wait for room in one.
pub(crate) struct Stepper<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl<'a> Stepper<'_, 'a> {
    fn drainer(&mut self) -> Drainer<'_, 'a> {
        Drainer {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            reader: self.reader,
            messages: self.messages,
        }
    }

    /// Runs a thread that is in a trampoline until it is outside. `pending` is the signal by which
    /// it is stopped; it is not delivered.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn step_out(
        &mut self,
        number: u32,
        thread: Stopped,
        pending: Option<(i32, siginfo_t)>,
    ) -> Result<(Stopped, SteppedOut), process::Error> {
        self.step_out_and_give_back(number, thread, pending, SavedFlags::default())
    }

    /// The same for a thread whose flags in `lent` must be restored. A program that single-steps
    /// itself stops right behind its displaced instruction.
    pub(in crate::jump) fn step_out_and_give_back(
        &mut self,
        number: u32,
        mut thread: Stopped,
        mut pending: Option<(i32, siginfo_t)>,
        mut lent: SavedFlags,
    ) -> Result<(Stopped, SteppedOut), process::Error> {
        let tid = thread.tid();
        let mask = thread.signal_mask()?;
        let stepping = thread.registers()?.rflags() & TRAP_FLAG;
        // If the tracer dies while the thread's signal mask is not its own, the thread traps soon,
        // and the guard's handler restores the mask.
        if let Some(space) = self.followed.spaces.get(&number)
            && let Some(guard) = &space.calls.guard
        {
            guard.steps(mask, &space.code.memory);
        }
        set_trap_flag(&mut thread, TRAP_FLAG)?;
        thread.set_signal_mask(!RAISED)?;
        let (mut stopped, mut waits, mut held_stop) = (false, false, false);
        // Whether the last step is over and its own signal was seen; and the signal to be sent
        // again.
        let (mut over, mut requeue, mut steps) = (true, 0, 0);
        let mut pushed_at = None;
        let mut patience = ProgressTimer::new();
        let left = loop {
            let mut watched = false;
            if over {
                let mut registers = thread.registers()?;
                let found = self.followed.spaces.get(&number).and_then(|space| space.in_jump(&registers));
                let rip = registers.rip();
                let in_handlers = found.as_ref().is_some_and(|(trampoline, part)| {
                    !matches!(part, Part::Displaced(_)) || trampoline.commits_at(rip)
                });
                if !in_handlers && lent.give(&mut registers) {
                    thread.set_registers(&registers)?;
                }
                let Some((trampoline, part)) = found else { break SteppedOut::Outside { waits, stopped } };
                let covered =
                    || self.followed.spaces.get(&number).is_some_and(|space| space.is_amid_a_group(rip));
                if lent.trap && trampoline.is_between(rip) && !covered() {
                    break SteppedOut::Outside { waits, stopped };
                }
                pushed_at = trampoline.pushes_flags_at(rip).then_some(rip);
                let long = !matches!(part, Part::Displaced(_)) && steps >= STEPS;
                watched = long && thread.stop_at(trampoline.displaced()).is_ok();
            }
            if watched {
                // It runs, and the debug register stops it there.
                set_trap_flag(&mut thread, 0)?;
            }
            let signal = std::mem::take(&mut requeue);
            let stop;
            (thread, stop) = if watched {
                // It may wait for room in a ring, or for another thread that does.
                thread.run_while(signal, || self.drainer().wait_for_waiting(number, &mut patience))?
            } else {
                let stepped = thread.step(signal)?;
                // So may this one.
                self.drainer().wait_for_waiting(number, &mut patience);
                stepped
            };
            if watched {
                set_trap_flag(&mut thread, TRAP_FLAG)?;
                thread.stop_at([])?;
            }
            over = false;
            steps += 1;
            match stop {
                // SIGSTOP cannot be blocked. It is sent again below.
                Stop::Signal(libc::SIGSTOP) => held_stop = true,
                Stop::Signal(signal) => {
                    let info = thread.signal_info()?;
                    let mut registers = thread.registers()?;
                    if !is_synchronous(signal, &info) {
                        // A signal was sent that is not blocked: block it too.
                        thread.set_signal_mask(!RAISED | bit(signal))?;
                        requeue = signal;
                        continue;
                    }
                    over = true;
                    let part = self.followed.spaces.get(&number).and_then(|space| space.in_jump(&registers));
                    if part.is_some_and(|(within, part)| is_misaligned((&within, part), &info, &registers)) {
                        lend_alignment_check(&mut registers);
                        lent.alignment = true;
                        thread.set_registers(&registers)?;
                        continue;
                    }
                    if signal != libc::SIGTRAP && !self.mend_fault(number, &mut registers, &info) {
                        let Some((waiting, info)) = pending.take() else { break SteppedOut::Fault(signal) };
                        // The instruction is retried, and most likely raises the same signal again.
                        thread.set_signal_mask(!RAISED | bit(waiting))?;
                        thread.set_signal_info(&info)?;
                        (requeue, waits) = (waiting, true);
                        continue;
                    }
                    if pushed_at.is_some_and(|at| at != registers.rip()) && stepping == 0 && !lent.trap {
                        unmark(tid, registers.rsp());
                    }
                    registers.set_rflags(registers.rflags() | TRAP_FLAG);
                    thread.set_registers(&registers)?;
                }
                Stop::Group(_) => stopped = true,
                _ => {}
            }
        };
        self.drainer().no_longer_waiting(number, &patience);
        thread.set_signal_mask(mask)?;
        set_trap_flag(&mut thread, stepping)?;
        if let Some(space) = self.followed.spaces.get(&number)
            && let Some(guard) = &space.calls.guard
        {
            guard.stepped(&space.code.memory);
        }
        if held_stop {
            thread.stop_again();
        }
        Ok((thread, left))
    }

    /// Steps a thread out of its trampoline before it is let go or shown to others. `thread` is
    /// settled before and after.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn bring_out(
        &mut self,
        thread: Stopped,
        stop: Stop,
    ) -> Result<(Stopped, Stop), process::Error> {
        let Some(number) = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        let registers = thread.registers()?;
        if self.followed.spaces.get(&number).is_none_or(|space| space.in_jump(&registers).is_none()) {
            return Ok((thread, stop));
        }
        // A thread whose instruction faults stays: it retries the instruction.
        self.step_out(number, thread, None)?.0.settle()
    }
}
