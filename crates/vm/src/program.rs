//! What every handler of a program shares, and how one of them can end.

use crate::{DEFAULT_MASK, Exception, INSTRUCTIONS, Word};
use core::sync::atomic::AtomicU64;

/// A program, ready to run. Any bytecode and any limits are safe.
///
/// The default has no code, no variables and no heap, and the limits that the manual gives to programs that set none:
/// a program names what it has and takes the rest from there (`..Program::default()`).
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The word of the probed program.
    pub word: Word,
    /// The bytecode of all handlers and procedures.
    pub code: &'a [u8],
    /// Jumps that one run may take; above [`crate::JUMP_LIMIT`] it means that limit.
    pub jmpmax: u32,
    /// Instructions that one run may execute; above [`crate::INSTRUCTION_LIMIT`] it means that limit. The next one ends the
    /// run as one jump too many does.
    pub insmax: u32,
    /// Bytes that one run may log; above [`crate::LOG_LIMIT`] it means that limit.
    pub logmax: usize,
    /// The exceptions that are raised: the bits of their x-fields. [`crate::DEFAULT_MASK`] where none is set.
    pub mask: u16,
    /// The local variables: one word each, shared by all hits. Of a 4-byte word only the low half counts; the
    /// upper half may hold the carry of increments.
    pub locals: &'a [AtomicU64],
    /// The global variables, like `locals`.
    pub globals: &'a [AtomicU64],
    /// Bytes that stack traces may take in one run (`excpt_log`); above [`crate::TRACE_LIMIT`] it means that limit.
    pub excpt_log: usize,
    /// Whether every exception writes a stack trace (`autostacktrace`).
    pub autostacktrace: bool,
    /// Bytes that the heap blocks of one run may have together: the probe's heap size, at most the program's
    /// `heapmax`; above [`crate::HEAP_LIMIT`] it means that limit.
    pub heap: usize,
    /// The probepoint, as stack traces name it.
    pub point: Point<'a>,
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
            point: Point::default(),
        }
    }
}

/// What a stack trace's header says of the probepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point<'a> {
    /// The name of the module (`name =`).
    pub module: &'a [u8],
    /// The probepoint's offset in the module.
    pub offset: u64,
    /// The program's number (`id =`); a trace has its low 16 bits.
    pub id: u32,
    /// The probe's major code; a trace has its low 16 bits.
    pub major: u32,
    /// The probe's minor code; a trace has its low 16 bits.
    pub minor: u32,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// `exit`: the log is kept.
    Exit,
    /// `exit 1`, `2` or `3`: the log is kept and a debug facility is called: the kernel's debugger, a crash dump,
    /// a core dump of the process. Before the first two the probe is removed.
    ExitTo(u8),
    /// `abort`: the log is dropped, the hit counts.
    Abort,
    /// `remove`: the log is kept, then the probe is removed.
    Remove,
    /// An exception that no handler took: what was logged before is kept.
    Exception(Exception),
}

/// What a run leaves besides its log and the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The major code of this hit's record, 0 to 65535, where `setmaj` set one.
    pub major: Option<u32>,
    /// The minor code of this hit's record, 0 to 65535, where `setmin` set one.
    pub minor: Option<u32>,
}
