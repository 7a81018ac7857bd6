//! Attaching to the kernel's own functions and instructions.

use std::ffi::CString;

use crate::link::{AttachError, Link, Scope, attach_event, event_type, string};
use crate::program::{Program, ProgramKind, attach_type};
use crate::sys::{self, Command, KprobeMultiLink, LinkCreate, PerfEventAttr, TracingLink, address, number};

/// An instruction of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPlace<'a> {
    /// A distance from a symbol.
    Symbol {
        /// Its name in `/proc/kallsyms`.
        name: &'a str,
        /// The distance in bytes.
        offset: u64,
    },
    /// An address.
    Address(u64),
}

/// One instruction of the kernel or its modules.
#[derive(Clone, Copy, Debug)]
pub struct Kprobe<'a> {
    /// The instruction.
    pub place: KernelPlace<'a>,
    /// Whether the program is executed when the function that begins there returns, instead.
    pub on_return: bool,
}

impl Kprobe<'_> {
    /// Attaches a program of the kind [`Kprobe`](ProgramKind::Kprobe).
    ///
    /// # Errors
    /// If the kernel refuses. [`AttachError::NoEvents`] says that it is built without kprobes.
    pub fn attach(&self, program: &Program, cookie: u64) -> Result<Link, AttachError> {
        let name = match self.place {
            KernelPlace::Symbol { name, .. } => Some(string(name)?),
            KernelPlace::Address(_) => None,
        };
        let attr = PerfEventAttr {
            kind: event_type("kprobe")?,
            config: u64::from(self.on_return),
            config1: name.as_ref().map_or(0, |name| name.as_ptr() as u64),
            config2: match self.place {
                KernelPlace::Symbol { offset, .. } => offset,
                KernelPlace::Address(address) => address,
            },
            sample_period: 1,
            ..Default::default()
        };
        // SAFETY: for a kprobe `config1` is 0 or the address of the symbol's name, which lives
        // until the return.
        unsafe { attach_event(program, attr, Scope::of_probe(None), cookie) }
    }
}

/// The entries of several functions of the kernel at once, by name.
#[derive(Clone, Copy, Debug)]
pub struct KprobeMulti<'a> {
    /// The names in `/proc/kallsyms`.
    pub symbols: &'a [&'a str],
    /// The program's cookie at each.
    pub cookies: &'a [u64],
    /// Whether the program is executed when the functions return.
    pub on_return: bool,
}

impl KprobeMulti<'_> {
    /// Attaches a program of the kind [`KprobeMulti`](ProgramKind::KprobeMulti) to all functions,
    /// or to none.
    ///
    /// # Errors
    /// If the kernel refuses one of the functions. It does not say which.
    pub fn attach(&self, program: &Program) -> Result<Link, AttachError> {
        const ON_RETURN: u32 = 1;
        if self.symbols.is_empty() || self.symbols.len() != self.cookies.len() {
            return Err(AttachError::Lengths);
        }
        let names = self.symbols.iter().map(|name| string(name)).collect::<Result<Vec<CString>, _>>()?;
        let addresses: Vec<u64> = names.iter().map(|name| name.as_ptr() as u64).collect();
        let mut attribute = LinkCreate {
            prog_fd: number(program),
            target_fd: 0,
            attach_type: attach_type::TRACE_KPROBE_MULTI,
            flags: 0,
            kind: KprobeMultiLink {
                flags: if self.on_return { ON_RETURN } else { 0 },
                count: addresses.len() as u32,
                symbols: address(&addresses),
                addresses: 0,
                cookies: address(self.cookies),
            },
        };
        // SAFETY: both lists have `count` elements, the names end by zero, and all live until the
        // return; the command returns a descriptor.
        let link = unsafe { sys::bpf_open(Command::LinkCreate, &mut attribute) };
        link.map(Link::new).map_err(AttachError::Link)
    }
}

/// Attaches a program of the kind [`Tracing`](ProgramKind::Tracing) to the function that it was
/// loaded for.
///
/// # Errors
/// If the kernel refuses, or the program is of another kind.
pub fn attach_tracing(program: &Program, cookie: u64) -> Result<Link, AttachError> {
    let attach_type = match program.kind() {
        ProgramKind::Tracing { on_return: true, .. } => attach_type::TRACE_FEXIT,
        _ => attach_type::TRACE_FENTRY,
    };
    let mut attribute = LinkCreate {
        prog_fd: number(program),
        target_fd: 0,
        attach_type,
        flags: 0,
        kind: TracingLink { cookie, ..Default::default() },
    };
    // SAFETY: the argument has no addresses; the command returns a descriptor.
    let link = unsafe { sys::bpf_open(Command::LinkCreate, &mut attribute) };
    link.map(Link::new).map_err(AttachError::Link)
}
