//! Answers signal-delivery stops: handles hits of traps and faults of ours, passes on signals of
//! the program.
//!
//! In: a thread that is stopped by a signal. Out: it goes on, and the program sees what it would
//! see without probes. `signalled` asks in turn:
//!
//! | what stopped the thread | where it is answered |
//! |---|---|
//! | an `int3` of ours | `trapped`: handlers (`hit`), then the instruction, emulated or in its slot |
//! | something in a trampoline | `jump/signal`, which steps the thread out (`jump/step_out`) if need be |
//! | a signal in a slot | `slot_watcher`, which shows the thread at its site |
//!
//! Sites of the engine's own are hit here, too: at the program's entry and where the dynamic linker
//! has mapped a module (`loader`), `refresh` (`modules`) places probes.

use libc::siginfo_t;
use process::{Registers, Stop, Stopped};

use super::{
    PUT_BACK, SI_KERNEL, fault_address, is_ignored, is_interrupted, is_synchronous, set_fault_address,
};
use crate::hit::handler_runner::Ran;
use crate::hit::{ANSWERED, set_registers, word_at};
use crate::loader::{self, Arrived};
use crate::machine::{ThreadMemory, has_flat_segments};
use crate::patch_registers::{from_patch, to_patch};
use crate::restart;
use crate::site::Disarmed;
use crate::site_use::{INT3, OwnUses};
use crate::tracer::Tracer;
use crate::tracked::InSlot;

impl Tracer<'_> {
    /// Handles a thread that is stopped by a signal.
    pub(crate) fn signalled(&mut self, thread: Stopped, signal: i32) -> Result<(), process::Error> {
        let info = thread.signal_info()?;
        // Must come first: after an `int3` the thread's address may be inside a jump to a
        // trampoline, though it is not in that jump.
        let Some(thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let outside = self.stepper().signalled_in_jump(thread, signal, &info)?;
        let Some((thread, signal, mut info)) = outside else { return Ok(()) };
        // The thread may have left the trampoline and hit an `int3`.
        let Some(mut thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let mut registers = thread.registers()?;
        let synchronous = is_synchronous(signal, &info);
        let ignored = is_interrupted(&registers) && is_ignored(thread.tid(), signal);
        if ignored && !synchronous {
            // The program sees nothing of this stop. An interrupted system call restarts in place,
            // so that it does not look like a new call.
            self.slot_watcher().check_slot(&thread)?;
            if restart::restart(thread.tid(), &mut registers) {
                thread.set_registers(&registers)?;
            }
            self.followed.resume(thread, signal);
            return Ok(());
        }
        if signal == libc::SIGTRAP && synchronous && self.slot_watcher().is_amid_a_call(&thread, &registers) {
            // The program single-steps itself. The displaced call is not complete, so the step is
            // not shown yet.
            self.followed.resume(thread, 0);
            return Ok(());
        }
        let moved = self.slot_watcher().show_the_site(&thread, &mut registers, synchronous);
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

    /// Handles an `int3` that a thread has executed. Returns the thread if the `int3` is not one of
    /// ours.
    pub(crate) fn trapped(&mut self, mut thread: Stopped) -> Result<Option<Stopped>, process::Error> {
        let tid = thread.tid();
        let mut registers = thread.registers()?;
        let Some(tracked) = self.followed.threads.get_mut(&tid) else { return Ok(Some(thread)) };
        let put_back = std::mem::take(&mut tracked.before_trap);
        if put_back {
            registers.set_rip(registers.rip().wrapping_add(1));
        }
        let address = registers.rip().wrapping_sub(1);
        let Some(space) = tracked.space.and_then(|space| self.followed.spaces.get(&space)) else {
            return Ok(Some(thread));
        };
        let armed = space.sites.get(&address);
        let Some(word) = word_at(space, address) else {
            let mut byte = [0];
            let ours_before = armed.is_some() || space.disarmed.get(&address).is_some_and(Disarmed::trapped);
            if ours_before && space.code.memory.peek(address, &mut byte).is_ok() && byte[0] != INT3 {
                // The site was disarmed after the thread had hit it: its instruction, or a jump, is
                // there now.
                registers.set_rip(address);
                registers.set_rflags(registers.rflags() | ANSWERED);
                thread.set_registers(&registers)?;
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            if put_back {
                // The thread is at the instruction already.
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            return Ok(Some(thread));
        };
        registers.set_rip(address);
        let done = tracked.in_slot.take();
        if tracked.identity.rseq.is_none() {
            tracked.identity.rseq = Some(thread.rseq_area());
        }
        if let Some(done) = done {
            self.messages.commit(&mut self.programs, done.records);
        }
        let segments = registers;
        let again =
            self.followed.space_of(tid).and_then(|space| space.interrupted.take_resumed(address, &registers));
        let ran = match again {
            Some(waiting) => Ran { records: waiting.records, overridden: None },
            None => self.handler_runner().run_handlers(&thread, address, word, &mut registers),
        };
        let returned = ran.overridden.is_some_and(|result| returns(tid, &mut registers, result));
        let waiting = InSlot { site: address, registers, records: ran.records };
        let trap = Stop::Signal(libc::SIGTRAP);
        let (thread, stop) = match self.dumps.take_wanted() {
            Some(wanted) => self.dumper().dump(thread, trap, wanted, &segments)?,
            None => (thread, trap),
        };
        self.execute(thread, stop, waiting, &segments, returned)?;
        Ok(None)
    }

    /// Executes a site's instruction for a thread whose handlers have run: emulates it, or sends
    /// the thread to the slot. `stop` is why the thread is stopped. `segments`: the registers
    /// before the handlers ran, whose segment registers are known to be valid. `returned`: the
    /// function has been returned from instead.
    fn execute(
        &mut self,
        mut thread: Stopped,
        stop: Stop,
        mut waiting: InSlot,
        segments: &Registers,
        returned: bool,
    ) -> Result<(), process::Error> {
        let (tid, address) = (thread.tid(), waiting.site);
        let Some(tracked) = self.followed.threads.get_mut(&tid) else { return Ok(()) };
        let Some(space) = tracked.space.and_then(|space| self.followed.spaces.get(&space)) else {
            return Ok(());
        };
        let Some(site) = space.site(address) else { return Ok(()) };
        let own = site.own_uses();
        let mut registers = waiting.registers;
        let mut memory = ThreadMemory { tid };
        let mut emulated = to_patch(&registers);
        let done = !returned
            && has_flat_segments(&registers)
            && site.displaced.wants_emulation(&emulated, &mut memory)
            // If memory cannot be accessed from outside, the processor executes the instruction: it
            // raises the fault, if there is one.
            && site.displaced.emulate(&mut emulated, &mut memory).is_ok();
        if returned {
            self.messages.commit(&mut self.programs, waiting.records);
        } else if done {
            from_patch(&emulated, &mut registers);
            self.messages.commit(&mut self.programs, waiting.records);
        } else if let Some(slot) = &site.slot {
            registers.set_rip(slot.address);
            let certain = !site.displaced.may_fault();
            let complete = if certain { std::mem::take(&mut waiting.records) } else { Vec::new() };
            self.session.waiting |= !waiting.records.is_empty();
            tracked.in_slot = Some(waiting);
            self.messages.commit(&mut self.programs, complete);
        }
        registers.set_rflags(registers.rflags() | ANSWERED);
        set_registers(&mut thread, &mut registers, segments)?;
        let before = self.followed.threads.met(&self.followed.spaces, tid, address);
        let number = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
        let (thread, stop) = match number {
            Some(number) => self.followed.spaces.guard_again(number, thread, stop, before)?,
            None => (thread, stop),
        };
        self.after(thread, stop, own, &registers)
    }

    /// Does the engine's own work for a site of its own, then resumes the thread.
    fn after(
        &mut self,
        mut thread: Stopped,
        mut stop: Stop,
        own: OwnUses,
        registers: &Registers,
    ) -> Result<(), process::Error> {
        let tid = thread.tid();
        if own.entry {
            self.placer().begun(tid);
            self.followed.identify_begun(&thread);
        }
        let mapped = own.mapped && loader::mapped_code(registers);
        if own.entry || own.listed || own.closes || mapped {
            let number = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
            let mapped_now = match (mapped, own.closes) {
                (true, _) => Some(Arrived::At(registers.result() as u64)),
                (false, true) => loader::closed_file(tid, registers),
                (false, false) => None,
            };
            let note = |tracer: &mut Self, mapped| {
                if let Some(space) = number.and_then(|number| tracer.followed.spaces.get_mut(&number)) {
                    space.modules.mapped_now = mapped;
                }
            };
            note(self, mapped_now);
            let refreshed = self.placer().refresh(thread, stop);
            note(self, None);
            (thread, stop) = refreshed?;
        }
        if matches!(stop, Stop::Interrupt | Stop::Group(_)) {
            return self.followed.go_on(thread, stop);
        }
        self.followed.resume(thread, 0);
        Ok(())
    }
}

/// Has a thread at a function's entry return from it with a result. Returns false, with nothing
/// done, if the address to return to cannot be read.
fn returns(tid: i32, registers: &mut Registers, result: u64) -> bool {
    let mut bytes = [0; 8];
    let stack = registers.rsp();
    if process::read(tid, stack, &mut bytes).is_err() {
        return false;
    }
    let mut general = registers.general();
    (general[0], general[4]) = (result, stack.wrapping_add(8));
    registers.set_general(&general);
    registers.set_rip(u64::from_le_bytes(bytes));
    true
}
