//! What a program becomes: its header, its probes, and their bytecode.

use std::fmt;

use vm::Word;

use crate::arch::Arch;
use crate::source::Span;

/// What a program's module is (`modtype =`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ModuleKind {
    /// A program or a shared library.
    #[default]
    User,
    /// The kernel.
    Kernel,
    /// A module of the kernel.
    KernelModule,
}

impl ModuleKind {
    /// As `modtype =` has it.
    pub fn name(self) -> &'static str {
        match self {
            ModuleKind::User => "user",
            ModuleKind::Kernel => "kernel",
            ModuleKind::KernelModule => "kmod",
        }
    }
}

/// A compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Object {
    /// The module's name or path, as written.
    pub module: String,
    /// What the module is.
    pub kind: ModuleKind,
    /// The machine of the probed program.
    pub arch: Arch,
    /// Local variables, each a word.
    pub vars: u16,
    /// Global variables, each a word.
    pub gvars: u16,
    /// The major code, 0 to 65535.
    pub major: u32,
    /// The program's number.
    pub id: u32,
    /// Bytes a handler may log in one run, at most 32 KiB.
    pub logmax: usize,
    /// Jumps a handler may take in one run, at most 65535.
    pub jmpmax: u32,
    /// Instructions a handler may execute in one run, at most 2^30.
    pub insmax: u32,
    /// Bytes of stack traces that a handler may collect in one run (`excpt_log =`), at most 32 KiB.
    pub excpt_log: usize,
    /// Whether every exception leaves a stack trace.
    pub autostacktrace: bool,
    /// Bytes of heap that a handler may use in one run where its probe does not say less, at most 16 KiB.
    pub heapmax: usize,
    /// The groups probes may be of.
    pub groups: Vec<String>,
    /// The types probes may be of.
    pub types: Vec<String>,
    /// The instructions of all handlers and procedures (`vm::TABLE`); operands are little-endian on every machine.
    pub code: Vec<u8>,
    /// The probes, as they stand in the file.
    pub probes: Vec<Probe>,
    /// The procedures, as they stand in the file.
    pub procs: Vec<Proc>,
    /// Words of the code that hold the address of a kernel symbol, to be filled in.
    pub symbols: Vec<SymbolUse>,
    /// Where each instruction comes from: its offset in the code, ascending, and its place.
    pub lines: Vec<(usize, Span)>,
    /// Set where the probes' sites were resolved: the file that they were resolved in.
    pub file: Option<ModuleFile>,
}

impl Object {
    /// The word of the probed program.
    pub fn word(&self) -> Word {
        self.arch.word()
    }

    /// The place in the source of the instruction that the code has at `offset`, or that holds that byte.
    pub fn line_at(&self, offset: usize) -> Option<Span> {
        let after = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines[..after].last().filter(|_| offset < self.code.len()).map(|(_, span)| *span)
    }
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where it is, as written, without spaces: `main+0x10`.
    pub point: String,
    /// Where it is.
    pub location: Location,
    /// Set for a watchpoint: which accesses fire it, and over how many bytes from the location.
    pub watch: Option<Watch>,
    /// The first bytes that the instruction must have, if given: [`Arch::opcode_bytes`] of them as one number, the
    /// first the highest.
    pub opcode: Option<u32>,
    /// The minor code, 0 to 65535.
    pub minor: u32,
    /// Its group, one of the object's.
    pub group: Option<String>,
    /// Its type, one of the object's.
    pub kind: Option<String>,
    /// Hits that are passed over first.
    pub ignore: u64,
    /// Runs of the handler after which the probe is disabled.
    pub maxhits: u64,
    /// Whether the log is kept where the probed instruction faults.
    pub logonfault: bool,
    /// The exceptions that are raised, by the bits of their codes (`excpt_mask =`); the others are masked.
    pub mask: u16,
    /// Bytes of heap that the handler may use in one run (`heap =`), at most the object's `heapmax`.
    pub heap: usize,
    /// The offset of the handler's first instruction in the code.
    pub entry: usize,
    /// The offset after its last one.
    pub end: usize,
    /// `offset = ...` in the source.
    pub span: Span,
    /// The places in the module's file that the location was found to mean, if it was resolved: one, or for
    /// [`Location::Points`] one and more.
    pub sites: Vec<Site>,
}

/// A place in a module's file, with the instruction that stands there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The offset in the file.
    pub offset: u64,
    /// The address at which the file's program headers load that byte, before the load bias is added.
    pub vaddr: u64,
    /// The bytes of the instruction, 1 to 15.
    pub bytes: Vec<u8>,
    /// For [`Location::Points`], the function that it is in; empty for others.
    pub function: String,
}

/// The file of a module, as it was when sites were resolved in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleFile {
    /// Its path. Where it is applied it may have another one.
    pub path: String,
    /// Its build-id (`NT_GNU_BUILD_ID`), usually 20 bytes; empty where it has none.
    pub build_id: Vec<u8>,
    /// Its bytes.
    pub size: u64,
}

/// Where a probe is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// An offset: in the file, for user modules.
    Offset(u64),
    /// A symbol of the module, and bytes from there.
    Symbol {
        /// The symbol's name, as in the symbol table.
        name: String,
        /// Bytes added to it.
        addend: i64,
    },
    /// A virtual address.
    Address(u64),
    /// A virtual address: that of a symbol, and bytes from there.
    AddressSymbol {
        /// The symbol's name, as in the symbol table.
        name: String,
        /// Bytes added to it.
        addend: i64,
    },
    /// Points of functions, as the pid provider of DTrace has them: one probe, and as many sites as there are.
    Points {
        /// The name of the function, or a pattern with `*`, `?` and `[...]` that names several.
        function: String,
        /// Where in them.
        point: Point,
    },
}

/// Where in a function a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Where it is entered.
    Entry,
    /// Where it is left: each `ret`, and each jump to another function.
    Return,
    /// That many bytes from its start.
    Offset(u64),
    /// Each instruction.
    Each,
}

impl Point {
    /// Reads a point: `entry`, `return`, `*`, or an offset in hexadecimal as `a4`, `0xa4` or `+a4`. Case does not matter.
    pub fn parse(text: &str) -> Option<Point> {
        match text.to_ascii_lowercase().as_str() {
            "entry" => Some(Point::Entry),
            "return" => Some(Point::Return),
            "*" => Some(Point::Each),
            number => {
                let number = number.strip_prefix('+').unwrap_or(number);
                let digits = number.strip_prefix("0x").unwrap_or(number);
                let digits = Some(digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
                u64::from_str_radix(digits, 16).ok().map(Point::Offset)
            }
        }
    }
}

impl fmt::Display for Point {
    /// `entry`, `return`, `0xa4`, `*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Entry => f.write_str("entry"),
            Point::Return => f.write_str("return"),
            Point::Offset(offset) => write!(f, "{offset:#x}"),
            Point::Each => f.write_str("*"),
        }
    }
}

impl fmt::Display for Location {
    /// `0x1234`, `main`, `main+0x10`, `main-4`, `main:entry`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Offset(number) | Location::Address(number) => write!(f, "{number:#x}"),
            Location::Points { function, point } => write!(f, "{function}:{point}"),
            Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => match addend {
                0 => f.write_str(name),
                1.. => write!(f, "{name}+{addend:#x}"),
                _ => write!(f, "{name}-{:#x}", addend.unsigned_abs()),
            },
        }
    }
}

/// What fires a watchpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The accesses.
    pub access: Access,
    /// The bytes watched: 1, 2, 4, or 8.
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
    /// Every access.
    pub(crate) const ALL: &[Access] = &[Access::Execute, Access::Write, Access::ReadWrite, Access::Io];

    /// As `watchpoint =` has it.
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
    /// The offset after its last one.
    pub end: usize,
}

/// A word of the code that holds the address of a kernel symbol (`push SYMBOL`); until it is known, 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolUse {
    /// The word's offset in the code.
    pub offset: usize,
    /// The symbol's name.
    pub name: String,
    /// What is added to its address.
    pub addend: i64,
}
