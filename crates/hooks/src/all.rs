//! All hooks of a process together.

use crate::head::HookHeader;
use crate::list::HookInfo;
use crate::{Error, registry};

/// The known hooks with their exits.
pub fn hooks() -> Vec<HookInfo> {
    registry::list()
}

/// The first known hook with this name.
pub fn find(name: &str) -> Option<&'static HookHeader> {
    registry::find(name)
}

/// Deletes all hooks (`hook_terminate`).
///
/// # Errors
/// [`Error::InUse`] if exits are registered and `force` is false.
pub fn terminate(force: bool) -> Result<(), Error> {
    registry::terminate(force)
}

/// Makes all hooks with sites known again (`hook_initialise`), after [`terminate`]. They are known
/// at the start.
pub fn initialise() {
    registry::initialise();
}
