//! The registers of i386 and x86-64: the manual's appendix A, plus those of x86-64.

use vm::{Context, Push, RegisterSet};

use super::family::{CURRENT, GENERAL, READ_ONLY, Register, USER};

/// The registers of x86-64 if `long`, else of i386.
pub(super) fn registers(long: bool) -> Vec<Register> {
    let has = |register: &&vm::Register| long || register.set() == RegisterSet::Both;
    vm::Register::ALL.iter().filter(has).map(|register| row(*register)).collect()
}

fn row(register: vm::Register) -> Register {
    let uses = match register.push() {
        Push::Both if register.can_pop() => GENERAL,
        Push::Both => READ_ONLY,
        Push::Current => CURRENT,
        Push::User => USER,
    };
    let kernel = register.context() == Context::Kernel;
    Register { index: register as u16, name: register.name(), uses, kernel }
}
