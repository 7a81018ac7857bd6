//! Where a thread inside a slot is, in the program's terms.

use crate::lent::Argument;
use crate::machine::{RCX, RSI, RSP, Registers};

/// Where a thread is whose rip is somewhere in a slot, in the program's terms: what must be shown to a signal handler, a
/// debugger, or the program itself once the slot is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The instruction has not been executed, or wants to be executed again (a repeated string instruction that was
    /// interrupted, a system call that is restarted): rip is the site.
    Before,
    /// A call has pushed something and has not been completed: rip is the site, rsp is `bytes` higher. What was below the
    /// stack pointer has been overwritten, as the call will overwrite it. A debug exception of the trap flag here is not the
    /// program's: the thread is resumed as it is, until the call is complete.
    Pushed {
        /// How many bytes rsp must be raised by.
        bytes: u64,
    },
    /// A system call whose second argument is [lent](crate::Lent) has not been executed: rip is the site, rsi is the program's own
    /// argument.
    Prepared {
        /// What rsi must be set to.
        argument: Argument,
    },
    /// A system call whose second argument was [lent](crate::Lent) has been executed, and rsi is not the program's own yet.
    Done {
        /// Where the program goes on.
        rip: u64,
        /// What rcx must be set to, as in [`Place::After`].
        rcx: u64,
        /// What rsi must be set to.
        argument: Argument,
    },
    /// The instruction has been executed.
    After {
        /// Where the program goes on.
        rip: u64,
        /// What rcx must be set to: the return address of a `syscall`, which the processor put in rcx as it is in
        /// the slot. A thread is also here while the kernel is working on its system call.
        rcx: Option<u64>,
    },
    /// Nowhere that a thread can be: inside an instruction, or in the slot's data.
    Inside,
}

impl Place {
    /// The same place where the program's code is `by` bytes farther.
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

    /// Whether the instruction is still to be executed, all of it.
    pub fn is_before(self) -> bool {
        matches!(self, Place::Before | Place::Pushed { .. } | Place::Prepared { .. })
    }

    /// Whether the instruction has been executed.
    pub fn is_after(self) -> bool {
        matches!(self, Place::After { .. } | Place::Done { .. })
    }

    /// Sets the registers to what the program would see, `site` being the address of the original instruction. False, and
    /// nothing changed, for [`Place::Inside`].
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
