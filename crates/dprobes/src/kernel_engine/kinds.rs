//! Programs that scripts have and probe programs do not: they name no module.

use rpn::{ModuleKind, Object};

/// The module that a program names whose probes are at functions of the kernel by their types, and
/// at raw tracepoints.
pub(crate) const TYPED: &str = "typed";

/// The module that a program names whose probes are at events.
pub(crate) const EVENTS: &str = "events";

/// Whether a program's probes are at events.
pub(super) fn has_events(object: &Object) -> bool {
    object.kind != ModuleKind::User && object.module == EVENTS
}

/// Whether a program's probes are at functions by their types, or at raw tracepoints.
pub(super) fn is_typed(object: &Object) -> bool {
    object.kind != ModuleKind::User && object.module == TYPED
}
