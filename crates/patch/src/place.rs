//! The state of a thread that is inside a slot.

use crate::lent::Argument;
use crate::machine::{RCX, RSI, RSP, Registers};

/// The state of a thread whose rip is in a slot: how to set its registers before a signal handler,
/// a debugger, or the program itself (once the slot is gone) sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The instruction has not been executed, or will be executed again (an interrupted string
    /// instruction, a restarted system call): rip is the site.
    Before,
    /// A call has pushed something and has not completed: rip is the site, rsp is `bytes` higher.
    /// Memory below the stack pointer has been overwritten, as the call will overwrite it. A debug
    /// exception of the trap flag here is not the program's: resume the thread as it is until the
    /// call completes.
    Pushed {
        /// The number of bytes to add to rsp.
        bytes: u64,
    },
    /// A system call with a [substituted second argument](crate::Lent) has not been executed: rip
    /// is the site, rsi is the program's own argument.
    Prepared {
        /// The value for rsi.
        argument: Argument,
    },
    /// A system call with a [substituted second argument](crate::Lent) has been executed, but rsi
    /// is not restored yet.
    Done {
        /// Where the program continues.
        rip: u64,
        /// The value for rcx, as in [`Place::After`].
        rcx: u64,
        /// The value for rsi.
        argument: Argument,
    },
    /// The instruction has been executed.
    After {
        /// Where the program continues.
        rip: u64,
        /// The value for rcx: the return address of a `syscall`, since the processor stored an
        /// address in the slot. A thread is also here while the kernel executes its system call.
        rcx: Option<u64>,
    },
    /// Not an instruction boundary: inside an instruction or in the slot's data. No thread can be
    /// here.
    Inside,
}

impl Place {
    /// The same place where the program's code is `by` bytes higher.
    #[must_use]
    pub(crate) fn moved(self, by: u64) -> Place {
        let moved = |address: u64| address.wrapping_add(by);
        match self {
            Place::Prepared { argument } => Place::Prepared { argument: argument.moved(by) },
            Place::Done { rip, rcx, argument } => {
                Place::Done { rip: moved(rip), rcx: moved(rcx), argument: argument.moved(by) }
            }
            Place::After { rip, rcx } => Place::After { rip: moved(rip), rcx: rcx.map(moved) },
            Place::Before | Place::Pushed { .. } | Place::Inside => self,
        }
    }

    /// Whether the instruction has not begun, or must be redone completely.
    pub fn is_before(self) -> bool {
        matches!(self, Place::Before | Place::Pushed { .. } | Place::Prepared { .. })
    }

    /// Whether the instruction has been executed.
    pub fn is_after(self) -> bool {
        matches!(self, Place::After { .. } | Place::Done { .. })
    }

    /// Sets the registers to what the program would see; `site` is the address of the original
    /// instruction. Returns false, and changes nothing, for [`Place::Inside`].
    pub fn mend(self, site: u64, registers: &mut Registers) -> bool {
        match self {
            Place::Before => registers.rip = site,
            Place::Pushed { bytes } => {
                registers.rip = site;
                registers.gpr[RSP] = registers.gpr[RSP].wrapping_add(bytes);
            }
            Place::Prepared { argument } => {
                registers.rip = site;
                registers.gpr[RSI] = argument.value(registers);
            }
            Place::Done { rip, rcx, argument } => {
                registers.rip = rip;
                registers.gpr[RCX] = rcx;
                registers.gpr[RSI] = argument.value(registers);
            }
            Place::After { rip, rcx } => {
                registers.rip = rip;
                if let Some(value) = rcx {
                    registers.gpr[RCX] = value;
                }
            }
            Place::Inside => return false,
        }
        true
    }
}
