//! What a handler is compiled for: where its data lies, and the site.

use layout::{Entries, Mark, PerProcessor};

/// A handler: a part of a program.
#[derive(Clone, Copy, Debug)]
pub struct Handler<'a> {
    /// The bytecode of all handlers and procedures of the program, for a word of 8 bytes.
    pub code: &'a [u8],
    /// The offset of the handler's first instruction in it.
    pub entry: usize,
    /// Jumps that a run may take; above [`vm::JUMP_LIMIT`] it means that limit.
    pub jmpmax: u32,
    /// Instructions that a run may execute; above [`vm::INSTRUCTION_LIMIT`] it means that limit.
    pub insmax: u32,
    /// Bytes that a run may log; above [`vm::LOG_LIMIT`] it means that limit. 0: it makes no record at all.
    pub logmax: usize,
    /// The exceptions that are raised, by the bits of their codes.
    pub mask: u16,
    /// Local variables.
    pub locals: u16,
    /// Global variables.
    pub globals: u16,
    /// The program's major code: that of records where the handler sets none.
    pub major: u32,
    /// The probe's minor code, likewise.
    pub minor: u32,
}

/// What `push lv`, `inc gv` and so on name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// A local variable, by its index.
    Local(u16),
    /// A global variable, by its index.
    Global(u16),
}

/// The hits that a probe passes over, and those that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The address of the word of 8 bytes that counts the hits which found the probe enabled. It may pass
    /// `ignore + maxhits` by the hits that came before the probe was taken out.
    pub hits: u32,
    /// Hits that are passed over first.
    pub ignore: u64,
    /// Runs of the handler after which the probe is disabled.
    pub maxhits: u64,
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The address of the word by which the reader of all rings shows that it lives: nobody waits any more when it is
    /// [`layout::ABANDONED`].
    pub reader: u32,
}

/// Where the data of a site's handler lies, and what is known of the site. All addresses are below
/// [`layout::LOW_END`].
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The address of the process' [`layout::Identity`].
    pub identity: u32,
    /// The address of the first [`layout::Context`].
    pub contexts: u32,
    /// The contexts that belong to a processor each, the first ones: processor 0 has the first. A processor that has none
    /// uses the shared ones.
    pub own_contexts: u32,
    /// The contexts behind them, which belong to none: a power of two, at least 1.
    pub shared_contexts: u32,
    /// Bytes of a context's ring: a power of two from [`layout::LEAST_RING`] to [`layout::GREATEST_RING`].
    pub ring_size: u32,
    /// The address of the first local variable, 8 bytes each.
    pub locals: u32,
    /// The address of the first global variable, 8 bytes each.
    pub globals: u32,
    /// The variables that every handler of their program does nothing with but `inc` and `dec` by number, and their
    /// counters, once per processor.
    pub counted: &'a [(Variable, PerProcessor)],
    /// Counts the hits that are not over: runs, misses, and hits passed over.
    pub hits: PerProcessor,
    /// The address of the word of 8 bytes that counts hits whose handler found no context, locked.
    pub missed: u32,
    /// The address of the word of 8 bytes that counts records that were dropped, locked.
    pub dropped: u32,
    /// The address of [`layout::Over`], 8 bytes.
    pub over: u32,
    /// Whether somebody else may disable the probe while jumps still lead to its handler: another one is at the same site.
    pub removable: bool,
    /// Set where the probe has `ignore` or `maxhits`.
    pub limits: Option<Limits>,
    /// The agent's entries.
    pub agent: Entries,
    /// The address of the [`layout::HandlerInfo`] that goes with the handler.
    pub info: u32,
    /// The number of the site and its probe in records.
    pub number: u32,
    /// The address of the displaced instruction.
    pub site: u64,
    /// Whether the flags that arithmetic changes may be read before they are written, from the site on.
    pub flags_live: bool,
    /// Whether the displaced instruction can fault: the record is committed after it, by [`crate::Compiled::commit`].
    pub tentative: bool,
    /// Whether the tentative record of a handler that has run before this one, at the same site, waits: its address is kept below the red
    /// zone, and stays.
    pub waits: bool,
    /// Set where a full ring, or a context, is waited for.
    pub lossless: Option<Waiting>,
    /// What marks a thread's registered `struct rseq`.
    pub mark: Mark,
    /// The address of the table of what handlers do not see ([`layout::hidden`]). 0: nothing is hidden.
    pub hidden: u32,
    /// Whether the processor has `rdpid`; without it `lsl` is used, which the kernel prepares too.
    pub rdpid: bool,
}
