//! Loading programs: the verifier's answer, and its log if it refuses.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;

use crate::btf;
use crate::code::Code;
use crate::log;
use crate::map::Map;
use crate::sys::{self, Command, ProgramLoad, TestRun, address, address_mut, number};

/// Helpers that only programs under the GPL may call are needed. What is loaded is made by this
/// program, whose authors license it so.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// What a program is for. It decides what its context is and which helpers it may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A [`Kprobe`](crate::Kprobe); its context is the kernel's `struct pt_regs`.
    Kprobe,
    /// A [`KprobeMulti`](crate::KprobeMulti); its context is the kernel's `struct pt_regs`.
    KprobeMulti,
    /// A [`Uprobe`](crate::Uprobe); its context is the `struct pt_regs` of the process.
    Uprobe {
        /// Whether it may sleep, so that it can page in the memory it reads. Needs Linux 6.0.
        sleepable: bool,
    },
    /// A [`UprobeMulti`](crate::UprobeMulti); its context is the `struct pt_regs` of the process.
    UprobeMulti {
        /// Whether it may sleep.
        sleepable: bool,
    },
    /// A [`Tracepoint`](crate::Tracepoint); its context is the record as its format file says.
    Tracepoint,
    /// A [`RawTracepoint`](crate::RawTracepoint); its context is the tracepoint's arguments.
    RawTracepoint,
    /// A [`Breakpoint`](crate::Breakpoint) or an [`Event`](crate::Event); its context is
    /// `struct bpf_perf_event_data`.
    PerfEvent,
    /// The entry or the exit of a function of the kernel, by its type in the kernel's BTF; its
    /// context is the function's arguments, then the result.
    Tracing {
        /// The function's type: see [`kernel_function`](crate::kernel_function).
        function: u32,
        /// Whether it is executed when the function returns.
        on_return: bool,
    },
}

/// The numbers of the attach types.
pub(crate) mod attach_type {
    pub(crate) const TRACE_FENTRY: u32 = 24;
    pub(crate) const TRACE_FEXIT: u32 = 25;
    pub(crate) const PERF_EVENT: u32 = 41;
    pub(crate) const TRACE_KPROBE_MULTI: u32 = 42;
    pub(crate) const TRACE_UPROBE_MULTI: u32 = 48;
}

impl ProgramKind {
    /// The program type and the expected attach type.
    fn types(self) -> (u32, u32) {
        const KPROBE: u32 = 2;
        const TRACEPOINT: u32 = 5;
        const PERF_EVENT: u32 = 7;
        const RAW_TRACEPOINT: u32 = 17;
        const TRACING: u32 = 26;
        match self {
            Self::Kprobe | Self::Uprobe { .. } => (KPROBE, 0),
            Self::KprobeMulti => (KPROBE, attach_type::TRACE_KPROBE_MULTI),
            Self::UprobeMulti { .. } => (KPROBE, attach_type::TRACE_UPROBE_MULTI),
            Self::Tracepoint => (TRACEPOINT, 0),
            Self::RawTracepoint => (RAW_TRACEPOINT, 0),
            Self::PerfEvent => (PERF_EVENT, 0),
            Self::Tracing { on_return: false, .. } => (TRACING, attach_type::TRACE_FENTRY),
            Self::Tracing { on_return: true, .. } => (TRACING, attach_type::TRACE_FEXIT),
        }
    }

    fn sleepable(self) -> bool {
        matches!(self, Self::Uprobe { sleepable: true } | Self::UprobeMulti { sleepable: true })
    }
}

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// What the program is for.
    pub kind: ProgramKind,
    /// The name that `bpftool prog` shows: up to 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// The instructions.
    pub code: &'a Code,
    /// The maps that the instructions name by index.
    pub maps: &'a [&'a Map],
}

/// The kernel refuses a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel refuses the program: {errno}")]
pub struct LoadError {
    /// What bpf(2) returned.
    pub errno: Errno,
    /// What the verifier wrote: the way to the instruction that it refuses, and why. Empty if the
    /// kernel did not get so far.
    pub log: String,
    /// The number of the instruction that it refuses, where the log names it.
    pub insn: Option<u32>,
}

impl LoadError {
    fn without_log(errno: Errno) -> Self {
        Self { errno, log: String::new(), insn: None }
    }

    /// The verifier's reason: the last line of the log that is no statistics.
    pub fn reason(&self) -> Option<&str> {
        log::reason(&self.log)
    }
}

/// A program in the kernel. It lives as long as this descriptor, or a link that executes it.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
    kind: ProgramKind,
}

/// The first buffer for a log, and the largest; each is eight times the one before.
const LOG_SIZES: (usize, usize) = (64 << 10, 32 << 20);

/// How often a load is repeated that a signal interrupted.
const ATTEMPTS: usize = 10;

impl Program {
    /// Loads a program.
    ///
    /// # Errors
    /// If the kernel refuses it. Then it is loaded once more for the log.
    pub fn load(spec: &ProgramSpec<'_>) -> Result<Self, LoadError> {
        if spec.code.map_count() > spec.maps.len() {
            return Err(LoadError::without_log(Errno::EBADF));
        }
        let btf = match spec.code.functions() {
            [] | [_] => None,
            functions => Some(btf::load(functions.len()).map_err(LoadError::without_log)?),
        };
        match load(spec, btf.as_ref(), &mut []) {
            Ok(descriptor) => Ok(Self { descriptor, kind: spec.kind }),
            Err(errno) => Err(with_log(spec, btf.as_ref(), errno)),
        }
    }

    /// What it is for.
    pub fn kind(&self) -> ProgramKind {
        self.kind
    }

    /// Executes a program for a raw tracepoint once, with these arguments, and returns its result.
    ///
    /// # Errors
    /// If the kernel refuses: it does so for other kinds.
    pub fn test_run(&self, arguments: &[u64]) -> Result<u32, Errno> {
        let mut attribute = TestRun {
            prog_fd: number(&self.descriptor),
            ctx_size_in: size_of_val(arguments) as u32,
            ctx_in: address(arguments),
            ..Default::default()
        };
        // SAFETY: the kernel reads `ctx_size_in` bytes of the arguments.
        unsafe { sys::bpf(Command::ProgramTestRun, &mut attribute)? };
        Ok(attribute.retval)
    }
}

/// Loads a program, with a log if there is room for one.
fn load(spec: &ProgramSpec<'_>, btf: Option<&OwnedFd>, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    const SLEEPABLE: u32 = 1 << 4;
    let maps: Vec<i32> = spec.maps.iter().map(|map| map.as_raw_fd()).collect();
    // For each function its first instruction and its type.
    let functions = spec.code.functions().iter().zip(btf::FIRST_FUNCTION..);
    let functions: Vec<[u32; 2]> = functions.map(|(&first, id)| [first, id]).collect();
    let (prog_type, expected_attach_type) = spec.kind.types();
    let mut attribute = ProgramLoad {
        prog_type,
        expected_attach_type,
        insn_cnt: spec.code.insns().len() as u32,
        insns: address(spec.code.insns()),
        license: address(LICENSE),
        prog_flags: if spec.kind.sleepable() { SLEEPABLE } else { 0 },
        prog_name: sys::object_name(spec.name),
        fd_array: address(&maps),
        ..Default::default()
    };
    if let ProgramKind::Tracing { function, .. } = spec.kind {
        attribute.attach_btf_id = function;
    }
    if let Some(btf) = btf {
        attribute.prog_btf_fd = number(btf);
        attribute.func_info_rec_size = size_of::<[u32; 2]>() as u32;
        attribute.func_info = address(&functions);
        attribute.func_info_cnt = functions.len() as u32;
    }
    if !log.is_empty() {
        attribute.log_level = 1;
        attribute.log_size = log.len() as u32;
        attribute.log_buf = address_mut(log);
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        // SAFETY: the instructions, the list of functions and the log are as long as the argument
        // says, the licence ends by zero, and `Program::load` has checked that no instruction names
        // a map beyond the list.
        match unsafe { sys::bpf_open(Command::ProgramLoad, &mut attribute) } {
            Err(Errno::EAGAIN) if attempts < ATTEMPTS => {}
            result => return result,
        }
    }
}

/// Loads a program that was refused with larger and larger buffers until its log fits.
fn with_log(spec: &ProgramSpec<'_>, btf: Option<&OwnedFd>, errno: Errno) -> LoadError {
    let mut size = LOG_SIZES.0;
    loop {
        let mut buffer = vec![0; size];
        let result = load(spec, btf, &mut buffer);
        if matches!(result, Err(Errno::ENOSPC)) && size < LOG_SIZES.1 {
            size *= 8;
            continue;
        }
        let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
        let log = String::from_utf8_lossy(&buffer[..end]).into_owned();
        let insn = log::refused_insn(&log);
        return LoadError { errno, log, insn };
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
