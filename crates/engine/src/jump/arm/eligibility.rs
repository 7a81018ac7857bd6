//! Which sites may become jumps, as far as that can be told without a plan.

use patch::{Displaced, Mode};

use crate::reason::NoJump;

mod drafter;

/// Why an instruction cannot run in a trampoline, if it cannot.
pub(crate) fn unsuitable(displaced: &Displaced) -> Option<NoJump> {
    if displaced.mode() != Mode::Bits64 {
        return Some(NoJump::Narrow);
    }
    if displaced.enters_kernel() {
        return Some(NoJump::EntersKernel(displaced.text().to_owned()));
    }
    displaced.can_set_trap_flag().then(|| NoJump::StepsItself(displaced.text().to_owned()))
}
