//! Signals of threads that are in a trampoline.
//!
//! | where | what | answer |
//! |---|---|---|
//! | the displaced instruction | its own fault | shown at the site; the record is dropped |
//! | an access to the program's memory | its own fault | the handler goes on where it deals with that |
//! | a prologue | a fault: the stack has no room | the instruction, without the handler; a hit that is missed |
//! | anywhere | a step of a program that steps itself | it goes on; it sees one step, from the site (and over what its jump covers, where that runs there alone) |
//! | anywhere | any other signal | it is delivered when the thread has left the trampoline |

use libc::siginfo_t;
use patch::Place;
use process::{Registers, Stopped};
use rpn::Location;

use super::out::Left;
use super::{Part, has_limits};
use crate::program::MISSED;
use crate::signal::{fault_address, is_ignored, is_synchronous};
use crate::site::Use;
use crate::space::ModuleKey;
use crate::tracer::Tracer;

/// Bytes below the stack pointer at the site where a handler keeps the address of the state of its record, across an
/// instruction that can fault.
const COMMIT_CELL: u64 = 136;

impl Tracer<'_> {
    /// Answers a signal at which a thread is stopped, if it is in a trampoline. Gives the thread back where the signal is to be
    /// dealt with as it would be outside.
    pub(crate) fn signalled_in_jump(
        &mut self,
        mut thread: Stopped,
        signal: i32,
        info: &siginfo_t,
    ) -> Result<Option<(Stopped, i32, siginfo_t)>, process::Error> {
        let tid = thread.tid();
        let Some(number) = self.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok(Some((thread, signal, *info)));
        };
        if !self.spaces.get(&number).is_some_and(|space| space.jumps.any()) {
            return Ok(Some((thread, signal, *info)));
        }
        let mut registers = thread.registers()?;
        let found = self.spaces.get(&number).and_then(|space| space.in_jump(&registers));
        let Some((trampoline, part)) = found else {
            return Ok(Some((thread, signal, *info)));
        };
        if is_synchronous(signal, info) {
            if signal == libc::SIGTRAP {
                let covered = self.spaces.get(&number).is_some_and(|it| it.is_amid_a_group(registers.rip()));
                if trampoline.is_between(registers.rip()) && !covered {
                    // A program that single-steps itself has done one instruction, and sees where the next one is.
                    return Ok(Some((thread, signal, *info)));
                }
                // The instruction is not done, or all but the jump back.
                self.resume(thread, 0);
                return Ok(None);
            }
            if self.mend_fault(number, &mut registers, info) {
                thread.set_registers(&registers)?;
                self.resume(thread, 0);
                return Ok(None);
            }
            if let Part::Displaced(_) = part {
                self.drop_tentative(tid, number, &registers);
            }
            return Ok(Some((thread, signal, *info)));
        }
        if signal == libc::SIGSTOP || is_ignored(tid, signal) {
            // Nothing of the program sees where it comes.
            self.resume(thread, signal);
            return Ok(None);
        }
        let (mut thread, left) = self.step_out(number, thread, Some((signal, *info)))?;
        match left {
            // Its own signal comes first; the other waits again.
            Left::Fault(fault) => {
                let info = thread.signal_info()?;
                let registers = thread.registers()?;
                self.drop_tentative(tid, number, &registers);
                Ok(Some((thread, fault, info)))
            }
            Left::Outside { waits: true, .. } => {
                self.resume(thread, 0);
                Ok(None)
            }
            Left::Outside { stopped, .. } => {
                thread.set_signal_info(info)?;
                self.resume(thread, signal);
                if stopped {
                    // As soon as it runs it finds out that its process is stopped.
                    self.ask(tid);
                }
                Ok(None)
            }
        }
    }

    /// Lets a thread go on that has faulted in a trampoline for a reason that is not the program's: changes its registers.
    pub(crate) fn mend_fault(&mut self, number: u32, registers: &mut Registers, info: &siginfo_t) -> bool {
        let Some(space) = self.spaces.get(&number) else { return false };
        let Some((trampoline, part)) = space.in_jump(registers) else { return false };
        match part {
            Part::Access { repair } => {
                registers.set_rax(fault_address(info));
                registers.set_rip(repair);
                true
            }
            Part::Prologue { below } => {
                registers.set_rsp(registers.rsp().wrapping_add(u64::from(below)));
                registers.set_rip(trampoline.displaced());
                let site = space.site(trampoline.site());
                let site = site.map(|site| (site.uses.clone(), site.module, site.address));
                if let Some((uses, module, address)) = site {
                    uses.iter().for_each(|wanted| self.miss(*wanted, &module, address));
                }
                true
            }
            // The agent has broken a rule of its own. It gives the run up.
            Part::Handler => match &space.ground {
                Some(ground) if ground.is_agent(registers.rip()) => {
                    registers.set_rip(ground.give_up);
                    true
                }
                _ => false,
            },
            Part::Displaced(_) => false,
        }
    }

    /// Counts a hit that found no room to run its handler.
    fn miss(&mut self, wanted: Use, module: &ModuleKey, address: u64) {
        let Use::Probe { program, probe } = wanted else { return };
        let program = &self.programs[program];
        let definition = &program.versions.main().probes[probe];
        let Some(counted) = &program.probes[probe].counted else { return };
        match definition.location {
            _ if has_limits(definition) => {
                counted.turn();
            }
            Location::Points { .. } => program.places.borrow().count(probe, module, address),
            _ => counted.hits.count(),
        }
        counted.count(MISSED);
    }

    /// The displaced instruction at which a thread is has faulted: what its handler logged is dropped.
    fn drop_tentative(&mut self, tid: i32, number: u32, registers: &Registers) {
        let Some(space) = self.spaces.get(&number) else { return };
        let Some((trampoline, Part::Displaced(place))) = space.in_jump(registers) else { return };
        let Some(contexts) = space.ground.as_ref().map(|ground| &ground.contexts) else { return };
        if !trampoline.tentative || matches!(place, Place::After { .. }) {
            return;
        }
        // Where the handler has kept the address of its record's state: the stack pointer is as at the site.
        let mut address = [0; 8];
        if process::read(tid, registers.rsp().wrapping_sub(COMMIT_CELL), &mut address).is_ok() {
            contexts.drop_record(u64::from_le_bytes(address));
        }
    }
}
