//! Attaches to counted events, such as the time that passes, on all processors.

use bpf::{AttachError, Errno, Event, Link, Program};

use super::attached::Attached;
use super::breakpoints::online;

/// Attaches a program of the kind [`bpf::ProgramKind::PerfEvent`] to an event on each processor
/// that is online.
///
/// # Errors
/// Why the kernel refuses: `ENOENT` or `EOPNOTSUPP` if nothing counts it on this machine.
pub fn attach_event(program: &Program, event: &Event, cookie: u64) -> Result<Attached, AttachError> {
    let mut links: Vec<Link> = Vec::new();
    for processor in online() {
        match event.attach(program, processor, cookie) {
            Ok(link) => links.push(link),
            // It was taken offline meanwhile.
            Err(AttachError::Event(Errno::ENODEV)) => {}
            Err(error) => return Err(error),
        }
    }
    match links.is_empty() {
        true => Err(AttachError::Event(Errno::ENODEV)),
        false => Ok(Attached { links, refused: Vec::new() }),
    }
}
