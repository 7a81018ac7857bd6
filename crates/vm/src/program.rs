//! The inputs that all handlers of a program share, and how a handler can end.

use core::sync::atomic::AtomicU64;

use maps::Maps;

use crate::{Constants, DEFAULT_MASK, Exception, INSTRUCTIONS, Word};

/// A program, ready to run. Any bytecode and any limits are safe.
///
/// The default has no code, variables or heap, and the limits that the manual gives to programs
/// that set none. Use it for the fields that a program does not set (`..Program::default()`).
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The word of the probed program.
    pub word: Word,
    /// Jumps that one run may take, at most [`crate::JUMP_LIMIT`].
    pub code: &'a [u8],
    /// Instructions that one run may execute, at most [`crate::INSTRUCTION_LIMIT`]. One more ends
    /// the run with JMP_MAX.
    pub jmpmax: u32,
    /// Instructions that one run may execute; above [`crate::INSTRUCTION_LIMIT`] it means that
    /// limit. The next one ends the run as one jump too many does.
    pub insmax: u32,
    /// Bytes that one run may log, at most [`crate::LOG_LIMIT`].
    pub logmax: usize,
    /// The exceptions that are raised, as the bits of their x-fields; [`crate::DEFAULT_MASK`] if
    /// the program sets no mask.
    pub mask: u16,
    /// The local variables: one word each, shared by all hits. With a 4-byte word only the low half
    /// counts; the upper half may hold the carry of increments.
    pub locals: &'a [AtomicU64],
    /// The global variables, like `locals`.
    pub globals: &'a [AtomicU64],
    /// Bytes of stack traces per run (`excpt_log`), at most [`crate::TRACE_LIMIT`].
    pub excpt_log: usize,
    /// Whether every exception writes a stack trace (`autostacktrace`).
    pub autostacktrace: bool,
    /// Bytes of all heap blocks of one run: the probe's heap size, at most the program's `heapmax`
    /// and [`crate::HEAP_LIMIT`].
    pub heap: usize,
    /// The maps.
    pub maps: Maps<'a>,
    /// The constants.
    pub constants: Constants<'a>,
    /// The probepoint, as stack traces show it.
    pub point: ProbepointInfo<'a>,
}

impl Default for Program<'_> {
    fn default() -> Self {
        Program {
            word: Word::default(),
            code: &[],
            jmpmax: 256,
            insmax: INSTRUCTIONS,
            logmax: 1024,
            mask: DEFAULT_MASK,
            locals: &[],
            globals: &[],
            excpt_log: 1024,
            autostacktrace: false,
            heap: 0,
            maps: Maps::default(),
            constants: Constants::default(),
            point: ProbepointInfo::default(),
        }
    }
}

/// The probepoint as the header of a stack trace shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbepointInfo<'a> {
    /// The name of the module (`name =`).
    pub module: &'a [u8],
    /// The probepoint's offset in the module.
    pub offset: u64,
    /// The program's number (`id =`); traces hold its low 16 bits.
    pub id: u32,
    /// The probe's major code; traces hold its low 16 bits.
    pub major: u32,
    /// The probe's minor code; traces hold its low 16 bits.
    pub minor: u32,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// `exit`: the log is kept.
    Exit,
    /// `exit 1`, `2` or `3`: the log is kept and a debug facility is called: the kernel's debugger,
    /// a crash dump, or a core dump of the process. Before the first two the probe is removed.
    ExitTo(u8),
    /// `abort`: the log is dropped; the hit still counts.
    Abort,
    /// `remove`: the log is kept, then the probe is removed.
    Remove,
    /// An exception that no handler took: the log up to it is kept.
    Exception(Exception),
}

/// The result of a run, besides its log and the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The major code of this hit's record, 0 to 65535, if `setmaj` set one.
    pub major: Option<u32>,
    /// The minor code of this hit's record, 0 to 65535, if `setmin` set one.
    pub minor: Option<u32>,
}
