//! The debug facilities that a handler of a kernel probe can exit to (`exit 1`, `exit 2`), through
//! the kernel's own door: `/proc/sysrq-trigger` (Documentation/admin-guide/sysrq.rst).
//!
//! | `exit` | facility | written |
//! |---|---|---|
//! | 1 | the kernel debugger (kgdb) | `g` |
//! | 2 | a crash, and a dump of it if kdump is set up | `c` |

/// Where the kernel takes such requests.
const TRIGGER: &str = "/proc/sysrq-trigger";

/// Calls a facility of the kernel. After a crash it does not return.
///
/// # Errors
/// Why it could not.
pub(super) fn call(facility: u8) -> Result<(), String> {
    let request = if facility == 1 { "g" } else { "c" };
    std::fs::write(TRIGGER, request).map_err(|cause| format!("{TRIGGER}: {cause}"))
}
