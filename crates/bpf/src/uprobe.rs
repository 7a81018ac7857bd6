//! Attaching to instructions of files that processes execute.

use std::path::Path;

use crate::link::{AttachError, Link, Scope, attach_event, event_type, path_string};
use crate::program::{Program, attach_type};
use crate::sys::{self, Command, LinkCreate, PerfEventAttr, UprobeMultiLink, address, number};

/// One instruction of a file, in every process that maps it, or in one.
///
/// The kernel puts a trap into the processes' pages, not into the file.
#[derive(Clone, Copy, Debug)]
pub struct Uprobe<'a> {
    /// The file. It is named to the kernel once, so a path such as `/proc/self/fd/5` will do.
    pub path: &'a Path,
    /// The instruction's offset in the file.
    pub offset: u64,
    /// Whether the program is executed when the function that begins there returns, instead.
    pub on_return: bool,
    /// The offset in the file of a 16-bit counter to keep above zero while attached, as statically
    /// defined probes (SDT) have it; 0 if there is none.
    pub reference_counter: u32,
    /// The process, by the number that it has in this process's namespace; all if there is none.
    pub process: Option<u32>,
}

impl Uprobe<'_> {
    /// Attaches a program of the kind [`Uprobe`](crate::ProgramKind::Uprobe).
    ///
    /// # Errors
    /// If the kernel refuses. [`AttachError::Event`] with `EOPNOTSUPP` says that it does not probe
    /// this instruction, `EIO` or `EINVAL` that there is none at this offset.
    pub fn attach(&self, program: &Program, cookie: u64) -> Result<Link, AttachError> {
        let path = path_string(self.path)?;
        let attr = PerfEventAttr {
            kind: event_type("uprobe")?,
            config: u64::from(self.on_return) | u64::from(self.reference_counter) << 32,
            config1: path.as_ptr() as u64,
            config2: self.offset,
            sample_period: 1,
            ..Default::default()
        };
        // SAFETY: for a uprobe `config1` is the address of the path, which lives until the return.
        unsafe { attach_event(program, attr, Scope::of_probe(self.process), cookie) }
    }
}

/// Several instructions of a file at once. Needs Linux 6.6:
/// [`Feature::UprobeMulti`](crate::Feature::UprobeMulti).
#[derive(Clone, Copy, Debug)]
pub struct UprobeMulti<'a> {
    /// The file.
    pub path: &'a Path,
    /// The instructions' offsets in the file.
    pub offsets: &'a [u64],
    /// The program's cookie at each offset.
    pub cookies: &'a [u64],
    /// As [`Uprobe::reference_counter`] for each offset; empty if none has one.
    pub reference_counters: &'a [u64],
    /// Whether the program is executed when the functions return.
    pub on_return: bool,
    /// The process. Before Linux 6.11 this is one thread of it:
    /// [`Feature::UprobeMultiProcess`](crate::Feature::UprobeMultiProcess).
    pub process: Option<u32>,
}

impl UprobeMulti<'_> {
    /// Attaches a program of the kind [`UprobeMulti`](crate::ProgramKind::UprobeMulti), which
    /// cannot be attached by [`Uprobe`], to all places, or to none.
    ///
    /// # Errors
    /// If the kernel refuses one of the places. It does not say which.
    pub fn attach(&self, program: &Program) -> Result<Link, AttachError> {
        const ON_RETURN: u32 = 1;
        let (count, counters) = (self.offsets.len(), self.reference_counters.len());
        if count == 0 || self.cookies.len() != count || (counters != 0 && counters != count) {
            return Err(AttachError::Lengths);
        }
        let path = path_string(self.path)?;
        let mut attribute = LinkCreate {
            prog_fd: number(program),
            target_fd: 0,
            attach_type: attach_type::TRACE_UPROBE_MULTI,
            flags: 0,
            kind: UprobeMultiLink {
                path: path.as_ptr() as u64,
                offsets: address(self.offsets),
                ref_counter_offsets: address(self.reference_counters),
                cookies: address(self.cookies),
                count: count as u32,
                flags: if self.on_return { ON_RETURN } else { 0 },
                pid: self.process.unwrap_or(0),
                pad: 0,
            },
        };
        // SAFETY: the path ends by zero, the lists have `count` elements or are none, and all live
        // until the return; the command returns a descriptor.
        let link = unsafe { sys::bpf_open(Command::LinkCreate, &mut attribute) };
        link.map(Link::new).map_err(AttachError::Link)
    }
}
