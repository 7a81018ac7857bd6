//! Attaches to tracepoints by their name, with the arguments as the kernel passes them, and to
//! functions of the kernel by their type.

use bpf::{AttachError, Program, RawTracepoint, attach_tracing};

use super::attached::Attached;

/// Attaches a program of the kind [`bpf::ProgramKind::RawTracepoint`]. It has no cookie.
///
/// # Errors
/// Why the kernel refuses: `ENOENT` if it has no such tracepoint, `EINVAL` if the program reads an
/// argument that it does not have.
pub fn attach_raw_tracepoint(program: &Program, name: &str) -> Result<Attached, AttachError> {
    let link = RawTracepoint { name }.attach(program, 0)?;
    Ok(Attached { links: vec![link], refused: Vec::new() })
}

/// Attaches a program of the kind [`bpf::ProgramKind::Tracing`] to its function. It has no cookie.
///
/// # Errors
/// Why the kernel refuses.
pub fn attach_function(program: &Program) -> Result<Attached, AttachError> {
    Ok(Attached { links: vec![attach_tracing(program, 0)?], refused: Vec::new() })
}
