//! `dprobes list kernel`: the functions of the running kernel, and why some cannot be probed.

use std::io::Write;

use glob::Pattern;

use crate::kernel_engine::{KernelFunction, has_kprobes, kernel_functions};
use crate::{Failure, messages};

/// Lists the functions that a pattern matches; returns their number.
///
/// # Errors
/// The kernel does not show its symbols.
pub(super) fn of_kernel(pattern: &Pattern, out: &mut dyn Write) -> Result<usize, Failure> {
    let functions = kernel_functions(|name| pattern.matches(name)).map_err(Failure::new)?;
    let mut refused = 0;
    for KernelFunction { address, size, name, refused: why } in &functions {
        let name = printable::text(name);
        let why = why.map(|why| format!("  (not probed: {why})")).unwrap_or_default();
        refused += usize::from(!why.is_empty());
        if writeln!(out, "{address:#018x} {size:>7}  kernel:{name}{why}").is_err() {
            break;
        }
    }
    let _ = out.flush();
    if refused > 0 {
        messages::tell(&format!("note: {refused} of {} functions cannot be probed", functions.len()));
    }
    if !functions.is_empty() && !has_kprobes() {
        messages::tell(
            "note: this kernel has no kprobes, or does not let this process use them: none is probed",
        );
    }
    Ok(functions.len())
}
