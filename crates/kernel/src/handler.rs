//! What is compiled, and what for.

use rpn::{Object, Probe};
use vm::{ProbepointInfo, Word};

use crate::filter::Filter;
use crate::tables::TablesShape;

/// A handler of a program. It has this many fields since a compilation takes all of them as its
/// input, and none of them changes.
#[derive(Clone, Copy, Debug)]
pub struct Handler<'a> {
    /// The word of the probed program.
    pub word: Word,
    /// The bytecode of all of the program's handlers and procedures.
    pub code: &'a [u8],
    /// The offset of the handler's first instruction in it.
    pub entry: usize,
    /// Jumps that a run may take, limited to [`vm::JUMP_LIMIT`].
    pub jmpmax: u32,
    /// Instructions that a run may execute, limited to [`vm::INSTRUCTION_LIMIT`].
    pub insmax: u32,
    /// Bytes that a run may log, limited to [`vm::LOG_LIMIT`]. 0: no record of a log.
    pub logmax: usize,
    /// Bytes of stack traces of a run, limited to [`vm::TRACE_LIMIT`].
    pub excpt_log: usize,
    /// Whether every exception writes a stack trace.
    pub autostacktrace: bool,
    /// Bytes of heap of a run, limited to [`vm::HEAP_LIMIT`].
    pub heap: usize,
    /// The exceptions that are raised, as bits of their codes.
    pub mask: u16,
    /// The number of local variables.
    pub locals: u16,
    /// The number of global variables.
    pub globals: u16,
    /// The maps and constants of a script.
    pub tables: TablesShape<'a>,
    /// Whether it is a script's: it reads no byte of the frame that it has not written, and a run
    /// that logs nothing leaves no record.
    pub is_script: bool,
    /// The probepoint, as stack traces show it. A handler that writes none may run at any.
    pub point: ProbepointInfo<'a>,
}

impl<'a> Handler<'a> {
    /// The handler of a probe of a program, at an offset in its module.
    pub fn of(object: &'a Object, probe: &Probe, offset: u64) -> Handler<'a> {
        Handler {
            word: object.word(),
            code: &object.code,
            entry: probe.entry,
            jmpmax: object.jmpmax,
            insmax: object.insmax,
            logmax: object.logmax,
            excpt_log: object.excpt_log,
            autostacktrace: object.autostacktrace,
            heap: probe.heap,
            mask: probe.mask,
            locals: object.vars,
            globals: object.gvars,
            tables: TablesShape::default(),
            is_script: false,
            point: ProbepointInfo {
                module: object.module.as_bytes(),
                offset,
                id: object.id,
                major: object.major,
                minor: probe.minor,
            },
        }
    }
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachKind {
    /// An instruction of a user program, or a function's return.
    Uprobe,
    /// An instruction of the kernel.
    Kprobe,
    /// The return of a function of the kernel.
    Kretprobe,
    /// A hardware breakpoint on an address of a user program.
    UserBreakpoint,
    /// A hardware breakpoint on an address of the kernel.
    KernelBreakpoint,
    /// A tracepoint of the kernel: there are no registers, but a record with fields.
    Tracepoint,
    /// A tracepoint of the kernel with its arguments as the kernel passes them: there are no
    /// registers, but fields that are words.
    RawTracepoint,
    /// The entry of a function of the kernel, by the number of its type: as a raw tracepoint.
    Fentry(u32),
    /// The return of a function of the kernel, by the number of its type: its arguments, then what
    /// it returns.
    Fexit(u32),
    /// A counted event ([`bpf::Event`]): the registers are those of what was interrupted, the
    /// kernel or a process.
    Event,
}

impl AttachKind {
    /// Whether the probed code is the kernel's.
    pub fn is_kernel(self) -> bool {
        match self {
            AttachKind::Uprobe | AttachKind::UserBreakpoint => false,
            AttachKind::Kprobe | AttachKind::Kretprobe | AttachKind::KernelBreakpoint => true,
            AttachKind::Tracepoint | AttachKind::Event => true,
            AttachKind::RawTracepoint | AttachKind::Fentry(_) | AttachKind::Fexit(_) => true,
        }
    }

    /// Whether the program's context is words or a record, which have fields, and no registers.
    pub(crate) fn has_fields(self) -> bool {
        matches!(
            self,
            AttachKind::Tracepoint | AttachKind::RawTracepoint | AttachKind::Fentry(_) | AttachKind::Fexit(_)
        )
    }
}

/// What a handler is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Where it is attached.
    pub place: AttachKind,
    /// Whether the program may sleep, so that memory that is not there yet is read in: only at a
    /// uprobe. The program must be loaded as [`crate::Compiled::target`] says.
    pub sleepable: bool,
    /// Whether only the processes of [`crate::Maps::set_pids`] are probed.
    pub filtered: bool,
    /// Which threads are probed.
    pub only: Filter,
    /// The [`cookie`] of every hit, if not the one with which the program is attached: an event
    /// that a thread inherits has none.
    pub cookie: Option<u64>,
    /// Whether a probe of the kernel may exit to the kernel's debugger, or to a crash dump.
    pub facilities: bool,
    /// A process that is not probed: the one that reads the records, which would otherwise make
    /// more of them.
    pub except: Option<u32>,
    /// Whether the probed instruction leaves its function: the return address is at the stack
    /// pointer.
    pub returns: bool,
    /// The condition under which the probe is hit, by the flags there.
    pub condition: Option<Condition>,
    /// Whether hits are counted by process, too: [`crate::Maps::by_process`].
    pub by_process: bool,
    /// Whether a handler that only counts takes no context.
    pub without_context: bool,
    /// Whether the kernel lets a program at a uprobe change registers.
    pub writes_registers: bool,
    /// Whether the kernel lets a program change a process's memory.
    pub writes_memory: bool,
    /// How much the maps hold: [`crate::MapsOptions::size`].
    pub size: Size,
}

/// A condition of the processor's flags, as the low four bits of a conditional jump's opcode encode
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Condition(pub(crate) u8);

impl Condition {
    /// The condition of a conditional jump with this opcode: `70` to `7f`, or the second byte of
    /// `0f 80` to `0f 8f`.
    pub fn of_opcode(opcode: u8) -> Condition {
        Condition(opcode & 0xf)
    }
}

/// How much the maps of a program hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// The number of probes; at least 1.
    pub probes: u32,
    /// The highest number of a processor, plus one.
    pub processors: u32,
    /// The number of contexts for each processor.
    pub contexts: u32,
    /// Bytes of each processor's ring: a power of two.
    pub ring: u32,
}

/// The cookie with which a program is attached: it says which probe was hit, and where. Programs
/// read the probe; the site comes back in [`crate::RawRecord`].
pub fn cookie(probe: u32, site: u32) -> u64 {
    u64::from(site) << 32 | u64::from(probe)
}
