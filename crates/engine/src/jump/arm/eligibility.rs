//! Which sites may become jumps, as far as that can be told without a plan.

use patch::{Displaced, Mode};

mod drafter;

/// Why an instruction cannot run in a trampoline, if it cannot.
pub(crate) fn unsuitable(displaced: &Displaced) -> Option<String> {
    if displaced.mode() != Mode::Bits64 {
        return Some("it is 32-bit code".to_owned());
    }
    if displaced.enters_kernel() {
        return Some(format!("`{}` enters the kernel", displaced.text()));
    }
    displaced.can_set_trap_flag().then(|| format!("`{}` can make the program step itself", displaced.text()))
}
