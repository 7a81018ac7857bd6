//! A hit of a trap: the handlers run, then the instruction is executed elsewhere than at its site.
//!
//! In: a thread stopped at an `int3` of ours. Out: the thread behind the instruction or in its
//! slot, and records for the observer. `signal/tracer.rs` (`trapped`) does that in order;
//! `hit/handler_runner.rs` runs the handlers, and `hit/records.rs` passes their records on once the
//! instruction has completed, or drops them. This file has what they share.
//!
//! Each hit costs one stop. The thread has executed the `int3` and is stopped at the delivery of
//! its SIGTRAP, which the tracer drops. The handlers run on the thread's registers. Then the tracer
//! emulates the instruction, or the thread continues in the site's slot. The site stays as it is,
//! and no other thread is stopped.

use patch::Mode;
use process::{Registers, Stopped};
use vm::Word;

use crate::space::Space;

pub(crate) mod handler_runner;

mod records;

/// RF of rflags. It tells the guard (`guard`) that a trap has been handled although its signal is
/// still pending. The processor clears it with the next instruction.
pub(crate) const ANSWERED: u64 = 1 << 16;

/// The word size of the code at a site, if there is a site.
pub(crate) fn word_at(space: &Space, address: u64) -> Option<Word> {
    let armed = space.sites.get(&address)?;
    Some(match armed.site().displaced.mode() {
        Mode::Bits32 => Word::W4,
        Mode::Bits64 => Word::W8,
    })
}

/// Sets a thread's registers. If the kernel refuses a segment register that a handler has set, the
/// thread keeps the segment registers it had.
pub(crate) fn set_registers(
    thread: &mut Stopped,
    registers: &mut Registers,
    before: &Registers,
) -> Result<(), process::Error> {
    match thread.set_registers(registers) {
        Err(process::Error::Refused { .. }) => {
            registers.set_ds(before.ds());
            registers.set_es(before.es());
            registers.set_fs(before.fs());
            registers.set_gs(before.gs());
            thread.set_registers(registers)
        }
        result => result,
    }
}
