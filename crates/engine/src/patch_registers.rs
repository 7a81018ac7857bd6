//! Converts a thread's registers to those that emulation works on, and back.

use process::Registers;

/// Converts registers for the emulation.
pub(crate) fn to_patch(registers: &Registers) -> patch::Registers {
    patch::Registers {
        gpr: registers.general(),
        rip: registers.rip(),
        rflags: registers.rflags(),
        fs_base: registers.fs_base(),
        gs_base: registers.gs_base(),
    }
}

/// Copies the registers that the emulation may have changed.
pub(crate) fn from_patch(emulated: &patch::Registers, registers: &mut Registers) {
    registers.set_general(&emulated.gpr);
    registers.set_rip(emulated.rip);
    registers.set_rflags(emulated.rflags);
}
