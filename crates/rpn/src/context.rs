//! What a register instruction can do in a probe's context.

use vm::{Op, Register, RegisterSet, Word};

use crate::diagnostic::Diagnostic;
use crate::source::Place;

/// Checks that the probed program's processor has the register, and that a handler may change it where it
/// would (manual, appendix A).
pub(crate) fn check(op: Op, register: Register, place: Place, word: Word) -> Result<(), Diagnostic> {
    let name = register.name();
    if register.set() == RegisterSet::Long && word == Word::W4 {
        let wrong = Diagnostic::error(place, format!("an i386 program has no register `{name}`"))
            .label("expected an i386 register");
        let narrow = name.strip_prefix('r').map(|rest| format!("e{rest}"));
        return Err(wrong.suggest(narrow.filter(|name| Register::from_name(name).is_some())));
    }
    if matches!(op, Op::PopR | Op::PopU) && !register.can_pop() {
        return Err(Diagnostic::error(place, format!("the register `{name}` cannot be changed"))
            .label("expected a register that a handler may set")
            .help(
                "cs, ss, and the stack, instruction, flags and segment base registers can only be pushed",
            ));
    }
    Ok(())
}
