//! What attaches a program, and the ways in which the kernel can refuse.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

use crate::program::{Program, attach_type};
use crate::sys::{self, Command, LinkCreate, PerfEventAttr, PerfEventLink, event_flag, number};

/// A program that is attached. It is detached when this is dropped, or this process ends.
#[derive(Debug)]
pub struct Link {
    /// The kernel's link, which holds the event, if there is one. Closing it detaches.
    _link: OwnedFd,
}

/// Why a program is not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The kernel has no events of this kind (uprobes, kprobes): it is built without.
    #[error("the kernel has no such events: {0}")]
    NoEvents(Errno),
    /// The kernel does not create the event: it refuses this place, or forbids it.
    #[error("the kernel refuses the event: {0}")]
    Event(Errno),
    /// The kernel does not connect the program with the event, or refuses one of the places.
    #[error("the kernel does not attach the program: {0}")]
    Link(Errno),
    /// The event is not made to count.
    #[error("the kernel does not enable the event: {0}")]
    Enable(Errno),
    /// A path or a name contains a zero byte, or is too long.
    #[error("a name has a zero byte, or is too long")]
    Name,
    /// The lists of places and of what belongs to them differ in length, or are empty.
    #[error("the lists of places and cookies differ in length, or are empty")]
    Lengths,
}

impl AttachError {
    /// What the kernel returned.
    pub fn errno(self) -> Option<Errno> {
        match self {
            Self::NoEvents(errno) | Self::Event(errno) | Self::Link(errno) | Self::Enable(errno) => {
                Some(errno)
            }
            Self::Name | Self::Lengths => None,
        }
    }
}

impl Link {
    /// A link that the kernel has made.
    pub(crate) fn new(link: OwnedFd) -> Self {
        Self { _link: link }
    }
}

/// Whom an event of perf observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// A thread, or -1.
    pub(crate) thread: i32,
    /// A processor, or -1.
    pub(crate) processor: i32,
}

impl Scope {
    /// A process by its number, or all. For an event that a probe raises, a process is all threads
    /// of its address space, and all processes need any processor.
    pub(crate) fn of_probe(process: Option<u32>) -> Self {
        match process {
            Some(process) => Self { thread: process as i32, processor: -1 },
            None => Self { thread: -1, processor: 0 },
        }
    }
}

/// Creates an event, which does not count yet, connects a program with it and lets it count.
///
/// # Safety
/// As for [`sys::perf_event_open`].
pub(crate) unsafe fn attach_event(
    program: &Program,
    attr: PerfEventAttr,
    scope: Scope,
    cookie: u64,
) -> Result<Link, AttachError> {
    let attr = PerfEventAttr { flags: attr.flags | event_flag::DISABLED, ..attr };
    // SAFETY: the caller answers for the addresses.
    let event = unsafe { sys::perf_event_open(&attr, scope.thread, scope.processor) };
    let event = event.map_err(AttachError::Event)?;
    let mut attribute = LinkCreate {
        prog_fd: number(program),
        target_fd: number(&event),
        attach_type: attach_type::PERF_EVENT,
        flags: 0,
        kind: PerfEventLink { cookie },
    };
    // SAFETY: the argument has no addresses; the command returns a descriptor.
    let link = unsafe { sys::bpf_open(Command::LinkCreate, &mut attribute) }.map_err(AttachError::Link)?;
    sys::enable_event(event.as_fd()).map_err(AttachError::Enable)?;
    Ok(Link::new(link))
}

/// The type of the events of a kind that has a number only at run time.
pub(crate) fn event_type(name: &str) -> Result<u32, AttachError> {
    sys::read_number(&format!("/sys/bus/event_source/devices/{name}/type")).map_err(AttachError::NoEvents)
}

/// A path as the kernel reads it.
pub(crate) fn path_string(path: &Path) -> Result<CString, AttachError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| AttachError::Name)
}

/// A name as the kernel reads it.
pub(crate) fn string(name: &str) -> Result<CString, AttachError> {
    CString::new(name).map_err(|_| AttachError::Name)
}
