//! The state of a thread that is inside a slot.

use crate::machine::{RCX, RSI, RSP, Registers};
use crate::substituted_argument::Argument;

/// The state of a thread whose rip is in a slot: how to set its registers before a signal handler,
/// a debugger, or the program itself (once the slot is gone) sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPosition {
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
    /// A system call with a substituted second argument has not been executed: rip
    /// is the site, rsi is the program's own argument.
    Prepared {
        /// The value for rsi.
        argument: Argument,
    },
    /// A system call with a substituted second argument has been executed, but rsi
    /// is not restored yet.
    Done {
        /// Where the program continues.
        rip: u64,
        /// The value for rcx, as in [`SlotPosition::After`].
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

impl SlotPosition {
    /// The same place where the program's code is `by` bytes higher.
    #[must_use]
    pub(crate) fn moved(self, by: u64) -> SlotPosition {
        let moved = |address: u64| address.wrapping_add(by);
        match self {
            SlotPosition::Prepared { argument } => SlotPosition::Prepared { argument: argument.moved(by) },
            SlotPosition::Done { rip, rcx, argument } => {
                SlotPosition::Done { rip: moved(rip), rcx: moved(rcx), argument: argument.moved(by) }
            }
            SlotPosition::After { rip, rcx } => SlotPosition::After { rip: moved(rip), rcx: rcx.map(moved) },
            SlotPosition::Before | SlotPosition::Pushed { .. } | SlotPosition::Inside => self,
        }
    }

    /// Whether the instruction has not begun, or must be redone completely.
    pub fn is_before(self) -> bool {
        matches!(self, SlotPosition::Before | SlotPosition::Pushed { .. } | SlotPosition::Prepared { .. })
    }

    /// Whether the instruction has been executed.
    pub fn is_after(self) -> bool {
        matches!(self, SlotPosition::After { .. } | SlotPosition::Done { .. })
    }

    /// Sets the registers to what the program would see; `site` is the address of the original
    /// instruction. Returns false, and changes nothing, for [`SlotPosition::Inside`].
    pub fn mend(self, site: u64, registers: &mut Registers) -> bool {
        match self {
            SlotPosition::Before => registers.rip = site,
            SlotPosition::Pushed { bytes } => {
                registers.rip = site;
                registers.gpr[RSP] = registers.gpr[RSP].wrapping_add(bytes);
            }
            SlotPosition::Prepared { argument } => {
                registers.rip = site;
                registers.gpr[RSI] = argument.value(registers);
            }
            SlotPosition::Done { rip, rcx, argument } => {
                registers.rip = rip;
                registers.gpr[RCX] = rcx;
                registers.gpr[RSI] = argument.value(registers);
            }
            SlotPosition::After { rip, rcx } => {
                registers.rip = rip;
                if let Some(value) = rcx {
                    registers.gpr[RCX] = value;
                }
            }
            SlotPosition::Inside => return false,
        }
        true
    }
}
