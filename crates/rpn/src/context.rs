//! What a handler can do where its probe is: on which machine, in user programs or in the kernel.
//!
//! What cannot be done is refused here, so that it never reads as a silent 0.

use vm::Op;

use crate::diagnostic::Diagnostic;
use crate::object::{ModuleKind, Object};
use crate::registers::{Register, Uses};
use crate::source::Place;

/// Checks that the machine and the program's kind have the instruction.
pub(crate) fn instruction(op: Op, place: Place, object: &Object) -> Result<(), Diagnostic> {
    let name = op.row().name;
    if only_intel(op) && !object.arch.is_intel() {
        return Err(Diagnostic::error(place, format!("`{name}` is not for {}", object.arch))
            .label("only Intel processors have what it uses"));
    }
    match of_the_kernel(op) {
        Some(what) if object.kind == ModuleKind::User => {
            Err(Diagnostic::error(place, format!("`{name}` cannot be used in a user program"))
                .label(format!("user mode has no access to {what}"))
                .help("it is for programs with `modtype = kernel` or `kmod`"))
        }
        _ => Ok(()),
    }
}

/// Checks that a handler of this program may do this with the register.
pub(crate) fn register(op: Op, register: &Register, place: Place, object: &Object) -> Result<(), Diagnostic> {
    let name = register.name;
    let Uses { push_u, push_r, pop_u, pop_r } = register.uses;
    let pops = matches!(op, Op::PopR | Op::PopU);
    if pops && !(pop_u || pop_r) {
        return Err(Diagnostic::error(place, format!("the register `{name}` cannot be changed"))
            .label("expected a register that a handler may set")
            .help(
                "general registers can be changed, and on Intel ds, es, fs and gs; others can only be pushed",
            ));
    }
    if object.kind == ModuleKind::User {
        // The contexts are one here: what the kernel alone can read is what neither gives.
        let system = !push_u || (object.arch.is_intel() && name == "msr");
        return if system {
            Err(Diagnostic::error(place, format!("the register `{name}` cannot be read in a user program"))
                .label("it belongs to the system")
                .help("it is for programs with `modtype = kernel` or `kmod`"))
        } else {
            Ok(())
        };
    }
    let (fits, other) = match op {
        Op::PushR => (push_r, "push u"),
        Op::PushU => (push_u, "push r"),
        Op::PopR => (pop_r, "pop u"),
        _ => (pop_u, "pop r"),
    };
    if fits {
        return Ok(());
    }
    let context = if matches!(op, Op::PushR | Op::PopR) { "current" } else { "user" };
    Err(Diagnostic::error(place, format!("the register `{name}` is not in the {context} context"))
        .label("expected a register of that context")
        .suggest(Some(format!("{other}, {name}"))))
}

/// Instructions of which the manual says "IA32".
fn only_intel(op: Op) -> bool {
    let name = op.row().name;
    name == "seg2lin" || name.starts_with("push io") || name.starts_with("pop io")
}

/// What of the kernel an instruction needs.
fn of_the_kernel(op: Op) -> Option<&'static str> {
    match op.row().name {
        "push task" => Some("the kernel's task structure"),
        "callk" => Some("the kernel's modules"),
        name if name.starts_with("push io") || name.starts_with("pop io") => Some("I/O ports"),
        _ => None,
    }
}
