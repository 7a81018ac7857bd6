//! All hooks of a process together.

use crate::head::Head;
use crate::list::HookInfo;
use crate::{Error, registry};

/// The hooks that are known, with their exits.
pub fn hooks() -> Vec<HookInfo> {
    registry::list()
}

/// The first known hook of a name.
pub fn find(name: &str) -> Option<&'static Head> {
    registry::find(name)
}

/// Deletes all hooks (`hook_terminate`).
///
/// # Errors
/// [`Error::InUse`] where exits are registered and it is not to be forced.
pub fn terminate(force: bool) -> Result<(), Error> {
    registry::terminate(force)
}

/// Makes all hooks known again that have sites (`hook_initialise`). They are at the start; this is for after [`terminate`].
pub fn initialise() {
    registry::initialise();
}
