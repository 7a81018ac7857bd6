//! A compiled program: its header, its probes, and their bytecode.

use std::fmt;

use source::Span;
use vm::Word;

use crate::arch::Arch;

/// The kind of a program's module (`modtype =`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ModuleKind {
    /// An executable or a shared library.
    #[default]
    User,
    /// The kernel.
    Kernel,
    /// A kernel module.
    KernelModule,
}

impl ModuleKind {
    /// Its name in `modtype =`.
    pub fn name(self) -> &'static str {
        match self {
            ModuleKind::User => "user",
            ModuleKind::Kernel => "kernel",
            ModuleKind::KernelModule => "kmod",
        }
    }
}

/// A compiled program. It has this many fields since each statement of a program's head is one of
/// them, beside what was compiled.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Object {
    /// The module's name or path, as written.
    pub module: String,
    /// The kind of the module.
    pub kind: ModuleKind,
    /// The machine of the probed program.
    pub arch: Arch,
    /// Number of local variables, each a word.
    pub vars: u16,
    /// Number of global variables, each a word.
    pub gvars: u16,
    /// The major code, 0 to 65535.
    pub major: u32,
    /// The program's number.
    pub id: u32,
    /// Bytes that a handler may log in one run, at most 32 KiB.
    pub logmax: usize,
    /// Jumps that a handler may take in one run, at most 65535.
    pub jmpmax: u32,
    /// Instructions that a handler may execute in one run, at most 2^30.
    pub insmax: u32,
    /// Bytes of stack traces that a handler may collect in one run (`excpt_log =`), at most 32 KiB.
    pub excpt_log: usize,
    /// Whether every exception writes a stack trace.
    pub autostacktrace: bool,
    /// Bytes of heap that a handler may use in one run unless its probe sets less, at most 16 KiB.
    pub heapmax: usize,
    /// The groups that probes may belong to.
    pub groups: Vec<String>,
    /// The types that probes may have.
    pub types: Vec<String>,
    /// The instructions of all handlers and procedures (`vm::TABLE`); operands are little-endian on
    /// every machine.
    pub code: Vec<u8>,
    /// The probes, in source order.
    pub probes: Vec<Probe>,
    /// The procedures, in source order.
    pub procs: Vec<Proc>,
    /// Words of the code that hold the address of a kernel symbol, to be filled in.
    pub symbols: Vec<SymbolUse>,
    /// The names of fields of tracepoints' records that the code uses by index, at most 1000.
    pub fields: Vec<String>,
    /// The source span of each instruction, by its offset in the code, ascending.
    pub lines: Vec<(usize, Span)>,
    /// The file in which the probes' sites were resolved, if they were.
    pub file: Option<ModuleFile>,
}

impl Object {
    /// The word of the probed program.
    pub fn word(&self) -> Word {
        self.arch.word()
    }

    /// The source span of the instruction that contains the byte at `offset` of the code.
    pub fn line_at(&self, offset: usize) -> Option<Span> {
        let after = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines[..after].last().filter(|_| offset < self.code.len()).map(|(_, span)| *span)
    }
}

/// A probe. It has this many fields since each statement of a probe's head is one of them, beside
/// where its handler is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its probepoint as written, without spaces: `main+0x10`.
    pub point: String,
    /// Its probepoint.
    pub location: Location,
    /// For a watchpoint: which accesses fire it, and how many bytes from the location it covers.
    pub watch: Option<Watch>,
    /// If given, the first bytes that the instruction must have: [`Arch::opcode_bytes`] of them as
    /// one number, first byte most significant.
    pub opcode: Option<u32>,
    /// The minor code, 0 to 65535.
    pub minor: u32,
    /// Its group, one of those that the object defines.
    pub group: Option<String>,
    /// Its type, one of those that the object defines.
    pub kind: Option<String>,
    /// Number of first hits to ignore.
    pub ignore: u64,
    /// Runs of the handler after which the probe is disabled.
    pub maxhits: u64,
    /// Whether the log is kept if the probed instruction faults.
    pub logonfault: bool,
    /// The exceptions that are raised, as bits of their codes (`excpt_mask =`); the others are
    /// masked.
    pub mask: u16,
    /// Bytes of heap that the handler may use in one run (`heap =`), at most the object's
    /// `heapmax`.
    pub heap: usize,
    /// The offset of the handler's first instruction in the code.
    pub entry: usize,
    /// The offset after the handler's last instruction.
    pub end: usize,
    /// The span of `offset = ...`, `address = ...` or `tracepoint = ...` in the source.
    pub span: Span,
    /// The sites in the module's file, if the location was resolved: exactly one, or for
    /// [`Location::Points`] one or more.
    pub sites: Vec<Site>,
}

/// A place in a module's file, with the instruction there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The offset in the file.
    pub offset: u64,
    /// The address at which the file's program headers load that byte, without the load bias.
    pub vaddr: u64,
    /// The bytes of the instruction, 1 to 15.
    pub bytes: Vec<u8>,
    /// For [`Location::Points`], the function that contains it; otherwise empty.
    pub function: String,
}

/// The file of a module at the time when sites were resolved in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleFile {
    /// Its path. It may be different where the object is used.
    pub path: String,
    /// Its build-id (`NT_GNU_BUILD_ID`), usually 20 bytes; empty if it has none.
    pub build_id: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
}

/// The location of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// An offset; for user modules, in the file.
    Offset(u64),
    /// A symbol of the module plus an offset.
    Symbol {
        /// The symbol's name, as in the symbol table.
        name: String,
        /// Bytes added to it.
        addend: i64,
    },
    /// A virtual address.
    Address(u64),
    /// A virtual address: that of a symbol plus an offset.
    AddressSymbol {
        /// The symbol's name, as in the symbol table.
        name: String,
        /// Bytes added to it.
        addend: i64,
    },
    /// Points of functions, as in DTrace's pid provider: one probe with any number of sites.
    Points {
        /// The name of a function, or a pattern with `*`, `?` and `[...]` that matches several.
        function: String,
        /// Where in the functions.
        point: FunctionPoint,
    },
    /// A tracepoint of the kernel, or several of one system.
    Tracepoint {
        /// The system, a directory of tracefs.
        system: String,
        /// The tracepoint's name, or a pattern with `*`, `?` and `[...]` that matches several.
        name: String,
    },
}

/// A position in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionPoint {
    /// Its entry.
    Entry,
    /// Its exits: each `ret`, and each jump to another function.
    Return,
    /// This many bytes from its start.
    Offset(u64),
    /// Every instruction.
    Each,
}

impl FunctionPoint {
    /// Parses a point: `entry`, `return`, `*`, or an offset in hexadecimal as `a4`, `0xa4` or
    /// `+a4`, in any case.
    pub fn parse(text: &str) -> Option<FunctionPoint> {
        match text.to_ascii_lowercase().as_str() {
            "entry" => Some(FunctionPoint::Entry),
            "return" => Some(FunctionPoint::Return),
            "*" => Some(FunctionPoint::Each),
            number => {
                let number = number.strip_prefix('+').unwrap_or(number);
                let digits = number.strip_prefix("0x").unwrap_or(number);
                let digits = Some(digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
                u64::from_str_radix(digits, 16).ok().map(FunctionPoint::Offset)
            }
        }
    }
}

impl fmt::Display for FunctionPoint {
    /// `entry`, `return`, `0xa4`, `*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionPoint::Entry => f.write_str("entry"),
            FunctionPoint::Return => f.write_str("return"),
            FunctionPoint::Offset(offset) => write!(f, "{offset:#x}"),
            FunctionPoint::Each => f.write_str("*"),
        }
    }
}

impl fmt::Display for Location {
    /// `0x1234`, `main`, `main+0x10`, `main-4`, `main:entry`, `sched:sched_switch`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Offset(number) | Location::Address(number) => write!(f, "{number:#x}"),
            Location::Points { function, point } => write!(f, "{function}:{point}"),
            Location::Tracepoint { system, name } => write!(f, "{system}:{name}"),
            Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => match addend {
                0 => f.write_str(name),
                1.. => write!(f, "{name}+{addend:#x}"),
                _ => write!(f, "{name}-{:#x}", addend.unsigned_abs()),
            },
        }
    }
}

/// The trigger of a watchpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The accesses.
    pub access: Access,
    /// Number of bytes watched: 1, 2, 4, or 8.
    pub length: u8,
}

/// The accesses that fire a watchpoint (`watchpoint =`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Execution.
    Execute,
    /// Writes.
    Write,
    /// Reads and writes.
    ReadWrite,
    /// Access to an I/O port.
    Io,
}

impl Access {
    /// All kinds of access.
    pub(crate) const ALL: &[Access] = &[Access::Execute, Access::Write, Access::ReadWrite, Access::Io];

    /// Its name in `watchpoint =`.
    pub fn name(self) -> &'static str {
        match self {
            Access::Execute => "x",
            Access::Write => "w",
            Access::ReadWrite => "rw",
            Access::Io => "io",
        }
    }
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proc {
    /// Its name.
    pub name: String,
    /// The offset of its first instruction in the code.
    pub entry: usize,
    /// The offset after its last instruction.
    pub end: usize,
}

/// A word of the code for the address of a kernel symbol (`push SYMBOL`); 0 until it is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolUse {
    /// The word's offset in the code.
    pub offset: usize,
    /// The symbol's name.
    pub name: String,
    /// Added to the symbol's address.
    pub addend: i64,
}
