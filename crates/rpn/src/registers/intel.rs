//! The registers of i386 and x86-64: the manual's appendix A, and what x86-64 adds to it.

use vm::RegisterSet;

use super::{CURRENT, GENERAL, READ_ONLY, Register, USER, Uses};

/// The registers of i386, or, if `long`, of x86-64.
pub(super) fn registers(long: bool) -> Vec<Register> {
    let has = |register: &&vm::Register| long || register.set() == RegisterSet::Both;
    let registers = vm::Register::ALL.iter().filter(has);
    let row = |register: &vm::Register| Register {
        index: *register as u16,
        name: register.name(),
        uses: uses(*register),
    };
    registers.map(row).collect()
}

fn uses(register: vm::Register) -> Uses {
    match register as u16 {
        // tr to dr7
        0x20..=0x33 => CURRENT,
        // fr0 to mxcsr
        0x3e..=0x55 => USER,
        _ if register.can_pop() => GENERAL,
        _ => READ_ONLY,
    }
}
