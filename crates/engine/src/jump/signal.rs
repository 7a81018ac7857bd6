//! Answers signals of threads that are in a trampoline.
//!
//! | where | what | answer |
//! |---|---|---|
//! | the displaced instruction | its own fault | shown at the site; the record is dropped |
//! | an access to the program's memory | its own fault | the handler goes on at the address for that case |
//! | a handler | `rdtsc` or `cpuid`, which the process has forbidden itself | the tracer emulates the instruction |
//! | a prologue | a fault: the stack has no room | the thread goes on at the displaced instruction, without the handler and without what commits its record; the hit is missed |
//! | anywhere | a step of a program that single-steps itself | it goes on without the trap flag; it sees one step, from the site (and over what its jump covers, where that runs only here), with the flags that it would have |
//! | a handler | SIGBUS, because the program has the alignment check on | it goes on without the check, up to the displaced instruction |
//! | anywhere | any other signal | delivered when the thread has left the trampoline |

use layout::COMMIT_CELL;
use libc::siginfo_t;
use patch::SlotPosition;
use process::{Registers, Stopped};
use rpn::Location;

use super::Domain;
use super::Part;
use super::step_out::stepper::Stepper;
use super::step_out::{STATUS_FLAGS, SavedFlags, SteppedOut, TRAP_FLAG, is_misaligned, lend_alignment_check};
use crate::jump_counters::MISSED;
use crate::module_key::ModuleKey;
use crate::program::has_limits;
use crate::signal::{fault_address, is_ignored, is_synchronous, set_fault_address};
use crate::site_use::Use;

/// `si_code` of the SIGTRAP of a single step.
const TRAP_TRACE: i32 = 2;

impl Stepper<'_, '_> {
    /// Answers a signal by which a thread is stopped, if it is in a trampoline. Returns the thread
    /// if the signal must be handled as it would be outside.
    pub(crate) fn signalled_in_jump(
        &mut self,
        mut thread: Stopped,
        signal: i32,
        info: &siginfo_t,
    ) -> Result<Option<(Stopped, i32, siginfo_t)>, process::Error> {
        let tid = thread.tid();
        let Some(number) = self.followed.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok(Some((thread, signal, *info)));
        };
        if !self.followed.spaces.get(&number).is_some_and(|space| space.jumps.any()) {
            return Ok(Some((thread, signal, *info)));
        }
        let mut registers = thread.registers()?;
        let found = self.followed.spaces.get(&number).and_then(|space| space.in_jump(&registers));
        let Some((trampoline, part)) = found else {
            return Ok(Some((thread, signal, *info)));
        };
        if is_synchronous(signal, info) {
            if is_misaligned((&trampoline, part), info, &registers) {
                lend_alignment_check(&mut registers);
                thread.set_registers(&registers)?;
                let lent = SavedFlags { alignment: true, ..SavedFlags::default() };
                return self.step_out_with(number, thread, *info, lent);
            }
            if signal == libc::SIGTRAP {
                let inside = matches!(part, Part::Prologue { .. } | Part::Handler | Part::Access { .. });
                if info.si_code == TRAP_TRACE && inside && registers.rflags() & TRAP_FLAG != 0 {
                    // The processor single-steps on from here. In a handler the thread would lose
                    // the flag.
                    let begins =
                        trampoline.begins_at(registers.rip()) || !trampoline.contains(registers.rip());
                    let status = begins.then(|| registers.rflags() & STATUS_FLAGS);
                    registers.set_rflags(registers.rflags() & !TRAP_FLAG);
                    thread.set_registers(&registers)?;
                    let lent = SavedFlags { trap: true, alignment: false, status };
                    return self.step_out_with(number, thread, *info, lent);
                }
                let covered =
                    self.followed.spaces.get(&number).is_some_and(|it| it.is_amid_a_group(registers.rip()));
                if trampoline.is_between(registers.rip()) && !covered {
                    // A program that single-steps itself has done one instruction, and sees the
                    // address of the next one.
                    return Ok(Some((thread, signal, *info)));
                }
                // The instruction is not done yet; or everything is done but the jump back.
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            if self.mend_fault(number, &mut registers, info) {
                thread.set_registers(&registers)?;
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            if let Part::Displaced(_) = part {
                self.drop_tentative(tid, number, &registers);
            }
            return Ok(Some((thread, signal, *info)));
        }
        if signal == libc::SIGSTOP || is_ignored(tid, signal) {
            // The program cannot see where these arrive.
            self.followed.resume(thread, signal);
            return Ok(None);
        }
        let (mut thread, left) = self.step_out(number, thread, Some((signal, *info)))?;
        match left {
            // The fault comes first; the other signal was sent again.
            SteppedOut::Fault(fault) => {
                let info = thread.signal_info()?;
                let registers = thread.registers()?;
                self.drop_tentative(tid, number, &registers);
                Ok(Some((thread, fault, info)))
            }
            SteppedOut::Outside { waits: true, .. } => {
                self.followed.resume(thread, 0);
                Ok(None)
            }
            SteppedOut::Outside { stopped, .. } => {
                thread.set_signal_info(info)?;
                self.followed.resume(thread, signal);
                if stopped {
                    // As soon as it runs, it learns that its process is stopped.
                    self.followed.ask(self.messages, tid);
                }
                Ok(None)
            }
        }
    }

    /// Steps a thread whose flags in `lent` must be restored out of a trampoline. Returns it with a
    /// signal that it must see: the step of a program that single-steps itself, or the fault of the
    /// displaced instruction.
    fn step_out_with(
        &mut self,
        number: u32,
        thread: Stopped,
        mut info: siginfo_t,
        lent: SavedFlags,
    ) -> Result<Option<(Stopped, i32, siginfo_t)>, process::Error> {
        let tid = thread.tid();
        let (mut thread, left) = self.step_out_and_give_back(number, thread, None, lent)?;
        let mut registers = thread.registers()?;
        if lent.trap {
            registers.set_rflags(registers.rflags() | TRAP_FLAG);
            thread.set_registers(&registers)?;
        }
        match left {
            SteppedOut::Fault(fault) => {
                let info = thread.signal_info()?;
                self.drop_tentative(tid, number, &registers);
                Ok(Some((thread, fault, info)))
            }
            SteppedOut::Outside { .. } if lent.trap => {
                set_fault_address(&mut info, registers.rip());
                thread.set_signal_info(&info)?;
                Ok(Some((thread, libc::SIGTRAP, info)))
            }
            SteppedOut::Outside { stopped, .. } => {
                self.followed.resume(thread, 0);
                if stopped {
                    self.followed.ask(self.messages, tid);
                }
                Ok(None)
            }
        }
    }

    /// Handles a fault in a trampoline that is not the program's: changes `registers` so that the
    /// thread goes on. Returns whether it was one.
    pub(crate) fn mend_fault(&mut self, number: u32, registers: &mut Registers, info: &siginfo_t) -> bool {
        let part = self
            .followed
            .spaces
            .get(&number)
            .and_then(|space| space.in_jump(registers))
            .map(|(_, part)| part);
        if part == Some(Part::Handler) && self.execute_forbidden(number, registers, info) {
            return true;
        }
        let Some(space) = self.followed.spaces.get(&number) else { return false };
        let Some((trampoline, part)) = space.in_jump(registers) else { return false };
        match part {
            Part::Access { repair } => {
                registers.set_rax(fault_address(info));
                registers.set_rip(repair);
                true
            }
            Part::Prologue { below, handler } => {
                registers.set_rsp(registers.rsp().wrapping_add(u64::from(below)));
                registers.set_rip(trampoline.without(handler));
                let site = space.site(trampoline.site()).map(|site| (site.module, site.address));
                if let Some((module, address)) = site {
                    let domain = space.trust.domain;
                    trampoline
                        .uses_from(handler)
                        .for_each(|wanted| self.miss(wanted, domain, &module, address));
                }
                true
            }
            // The agent has faulted where it must not. It abandons the run.
            Part::Handler => match &space.shared.handler_memory {
                Some(handler_memory) if handler_memory.is_agent(registers.rip()) => {
                    registers.set_rip(handler_memory.give_up);
                    true
                }
                _ => false,
            },
            Part::Displaced(_) => false,
        }
    }

    /// Counts a hit whose handler had no room on the stack.
    fn miss(&mut self, wanted: Use, domain: Domain, module: &ModuleKey, address: u64) {
        let Use::Probe { program, probe } = wanted else { return };
        let program = &self.programs[program];
        let definition = &program.versions.main().probes[probe];
        let Some(counted) = &program.probes[probe].counted else { return };
        match definition.location {
            _ if has_limits(definition) => {
                counted.turn(domain);
            }
            Location::Points { .. } => program.places.borrow().count(probe, module, address),
            _ => counted.hits.count(),
        }
        counted.count(MISSED);
    }

    /// Drops the record of a thread that has faulted at its displaced instruction.
    fn drop_tentative(&mut self, tid: i32, number: u32, registers: &Registers) {
        let Some(space) = self.followed.spaces.get(&number) else { return };
        let Some((trampoline, Part::Displaced(place))) = space.in_jump(registers) else { return };
        let Some(rings) = &space.shared.rings else { return };
        if !trampoline.is_awaited_at(registers.rip()) || matches!(place, SlotPosition::After { .. }) {
            return;
        }
        // The handler has stored the address of its record's state there; the stack pointer is as
        // at the site.
        let mut address = [0; 8];
        if process::read(tid, registers.rsp().wrapping_sub(COMMIT_CELL), &mut address).is_ok() {
            rings.drop_record(u64::from_le_bytes(address));
        }
    }
}
