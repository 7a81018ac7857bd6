//! Attaching to the kernel's tracepoints.

use nix::errno::Errno;

use crate::link::{AttachError, Link, Scope, attach_event, string};
use crate::program::Program;
use crate::sys::{self, Command, PerfEventAttr, RawTracepointOpen, number};

/// A tracepoint by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number: see [`find`](Self::find).
    pub id: u32,
}

impl Tracepoint {
    /// The tracepoint with a name, such as `sched` and `sched_switch`, in the file system of
    /// tracing, where it is mounted.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tracepoint, or the file system is not mounted.
    pub fn find(category: &str, name: &str) -> Result<Self, Errno> {
        let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let mut last = Errno::ENOENT;
        for place in places {
            match sys::read_number(&format!("{place}/events/{category}/{name}/id")) {
                Ok(id) => return Ok(Self { id }),
                Err(errno) => last = errno,
            }
        }
        Err(last)
    }

    /// Attaches a program of the kind [`Tracepoint`](crate::ProgramKind::Tracepoint).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&self, program: &Program, cookie: u64) -> Result<Link, AttachError> {
        const TRACEPOINT: u32 = 2;
        let attr = PerfEventAttr {
            kind: TRACEPOINT,
            config: u64::from(self.id),
            sample_period: 1,
            ..Default::default()
        };
        // SAFETY: a tracepoint's attributes have no addresses.
        unsafe { attach_event(program, attr, Scope::of_probe(None), cookie) }
    }
}

/// A tracepoint by its name, with its arguments as the kernel's code passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTracepoint<'a> {
    /// The name without a category: `sched_switch`.
    pub name: &'a str,
}

impl RawTracepoint<'_> {
    /// Attaches a program of the kind [`RawTracepoint`](crate::ProgramKind::RawTracepoint). A
    /// cookie other than 0 needs Linux 6.10.
    ///
    /// # Errors
    /// If the kernel refuses: `ENOENT` if it has no such tracepoint.
    pub fn attach(&self, program: &Program, cookie: u64) -> Result<Link, AttachError> {
        let name = string(self.name)?;
        let (name_address, prog_fd) = (name.as_ptr() as u64, number(program));
        let mut attribute = RawTracepointOpen { name: name_address, prog_fd, pad: 0, cookie };
        // SAFETY: the name ends by zero and lives until the return; the command returns a
        // descriptor.
        let link = unsafe { sys::bpf_open(Command::RawTracepointOpen, &mut attribute) };
        link.map(Link::new).map_err(AttachError::Link)
    }
}
