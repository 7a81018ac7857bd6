//! Steps a thread out of a trampoline: it runs to the end of it while its signals are blocked.
//!
//! The thread is single-stepped; in a long handler it runs to the displaced instruction, where a
//! debug register stops it. While single-stepping, the trap flag is set: it is removed from flags
//! that a displaced `pushf` has pushed meanwhile.

use libc::siginfo_t;
use process::{Registers, Stopped};

use super::{Part, Trampoline};

pub(super) mod stepper;

/// Signals that instructions raise. They stay unblocked: of a thread that blocks one, the kernel
/// resets the signal's handler to the default.
const RAISED: u64 = bit(libc::SIGTRAP)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

/// Steps after which a debug register is used instead; setting one up costs about as much as these
/// steps.
const STEPS: u32 = 16;

/// The flag that makes the processor trap after each instruction.
pub(super) const TRAP_FLAG: u64 = 1 << 8;
/// The flag that makes unaligned accesses fault.
const ALIGNMENT_CHECK: u64 = 1 << 18;
pub(super) const STATUS_FLAGS: u64 = 0x8d5;
/// `si_code` of the SIGBUS of an unaligned access.
const BUS_ADRALN: i32 = 1;

/// A signal as a bit of a signal set.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Flags of the program that a thread does without while it runs handlers or commits a record. They
/// are restored at the displaced instruction, or behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedFlags {
    /// The trap flag: the program single-steps itself. It sees one step when the displaced
    /// instruction is done.
    pub(super) trap: bool,
    pub(super) alignment: bool,
    /// The arithmetic flags, as they were at the site: handlers preserve them only where the
    /// program reads them.
    pub(super) status: Option<u64>,
}

impl SavedFlags {
    /// Restores all but the trap flag. Returns whether that changed anything.
    fn give(&mut self, registers: &mut Registers) -> bool {
        let mut flags = registers.rflags();
        if let Some(status) = self.status.take() {
            flags = flags & !STATUS_FLAGS | status;
        }
        if std::mem::take(&mut self.alignment) {
            flags |= ALIGNMENT_CHECK;
        }
        let changed = flags != registers.rflags();
        registers.set_rflags(flags);
        changed
    }
}

/// Whether a thread has faulted because of an unaligned access by a handler, the agent, or the code
/// that commits a record. Only accesses of the program itself are the program's fault.
pub(super) fn is_misaligned(
    (trampoline, part): (&Trampoline, Part),
    info: &siginfo_t,
    registers: &Registers,
) -> bool {
    info.si_signo == libc::SIGBUS
        && info.si_code == BUS_ADRALN
        && registers.rflags() & ALIGNMENT_CHECK != 0
        && (!matches!(part, Part::Displaced(_)) || trampoline.commits_at(registers.rip()))
}

/// Clears the alignment check.
pub(super) fn lend_alignment_check(registers: &mut Registers) {
    registers.set_rflags(registers.rflags() & !ALIGNMENT_CHECK);
}

/// How a thread has left a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SteppedOut {
    /// It is outside. It is stopped by the signal of its last step, which the caller drops or
    /// replaces.
    Outside {
        /// Whether the pending signal was sent again.
        waits: bool,
        /// Whether its process was stopped by job control meanwhile; the thread was stepped all the
        /// same.
        stopped: bool,
    },
    /// The displaced instruction has raised this signal; the thread is still in the trampoline,
    /// stopped by it. The pending signal was sent again.
    Fault(i32),
}

fn set_trap_flag(thread: &mut Stopped, flag: u64) -> Result<(), process::Error> {
    let mut registers = thread.registers()?;
    registers.set_rflags(registers.rflags() & !TRAP_FLAG | flag);
    thread.set_registers(&registers)
}

/// Clears the trap flag in the flags that a thread has just pushed.
fn unmark(tid: i32, rsp: u64) {
    let mut flags = [0; 2];
    if process::read(tid, rsp, &mut flags).is_ok() {
        flags[1] &= !1;
        // Cannot fail: the thread has just written there itself.
        let _ = process::write(tid, rsp, &flags);
    }
}
