//! What the handlers of a script name.

use script::{AttachTarget, Compiled, Handler};
use vm::Op;

use super::scope;

/// Whether an action names a function of the C library.
pub(super) fn names_in_libc(handler: &Handler, name: &str) -> bool {
    handler.points.iter().any(|point| match &point.place {
        AttachTarget::Function { binary, function, .. } => scope::is_libc(&binary.path) && function == name,
        _ => false,
    })
}

/// Whether a handler asks which attach point was hit.
pub(super) fn names_its_point(compiled: &Compiled, handler: &Handler) -> bool {
    let code = compiled.code.get(handler.entry..handler.end).unwrap_or(&[]);
    let instructions = vm::instructions(code, vm::Word::W8);
    instructions.filter_map(|it| it.instruction()).any(|it| it.op == Op::PushMinor)
}
