//! Checks whether an instruction or a register is available for the program's machine and kind
//! (user or kernel).
//!
//! Unavailable ones are refused here, so that they never silently read as 0.

use source::{Diagnostic, SourceLocation};
use vm::{Context, Group, Op};

use crate::object::{ModuleKind, Object};
use crate::registers::{Register, Uses};

/// Checks that the instruction is available for the program's machine and kind.
pub(crate) fn instruction(op: Op, place: SourceLocation, object: &Object) -> Result<(), Diagnostic> {
    let name = op.row().name;
    if only_intel(op) && !object.arch.is_intel() {
        return Err(Diagnostic::error(place, format!("`{name}` is not available on {}", object.arch))
            .label("it needs an Intel processor"));
    }
    if op.row().context == Context::Both || object.kind != ModuleKind::User {
        return Ok(());
    }
    let what = match (op.row().group, op) {
        (Group::Port, _) => "I/O ports",
        (_, Op::PushField) => "records of tracepoints",
        _ => "the kernel's task structure",
    };
    Err(Diagnostic::error(place, format!("`{name}` cannot be used in a user program"))
        .label(format!("user mode has no access to {what}"))
        .help(FOR_THE_KERNEL))
}

const FOR_THE_KERNEL: &str = "it is for programs with `modtype = kernel` or `kmod`";

/// Instructions that the manual marks "IA32".
fn only_intel(op: Op) -> bool {
    op == Op::Seg2lin || op.row().group == Group::Port
}

/// Checks that a handler of this program may use the register in this way.
pub(crate) fn register(
    op: Op,
    register: &Register,
    place: SourceLocation,
    object: &Object,
) -> Result<(), Diagnostic> {
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
        return match register.kernel {
            true => {
                let message = format!("the register `{name}` cannot be read in a user program");
                let wrong = Diagnostic::error(place, message).label("user mode has no access to it");
                Err(wrong.help(FOR_THE_KERNEL))
            }
            false => Ok(()),
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
