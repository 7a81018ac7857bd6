//! What a handler is compiled for: the addresses of its data, and its site.

use layout::{Entries, PerProcessor, RseqMark};
use maps::MapInfo;

/// A handler of a program.
#[derive(Clone, Copy, Debug)]
pub struct Handler<'a> {
    /// The bytecode of all of the program's handlers and procedures, for 8-byte words.
    pub code: &'a [u8],
    /// The offset of the handler's first instruction in it.
    pub entry: usize,
    /// The most jumps of a run, limited to [`vm::JUMP_LIMIT`].
    pub jmpmax: u32,
    /// The most instructions of a run, limited to [`vm::INSTRUCTION_LIMIT`].
    pub insmax: u32,
    /// The most bytes that a run may log, limited to [`vm::LOG_LIMIT`]. 0: no records.
    pub logmax: usize,
    /// The exceptions that are raised, as a bit set of their codes.
    pub mask: u16,
    /// The number of local variables.
    pub locals: u16,
    /// The number of global variables.
    pub globals: u16,
    /// The program's major code, used if the handler sets none.
    pub major: u32,
    /// The probe's minor code, used if the handler sets none.
    pub minor: u32,
}

/// A variable named by `push lv`, `inc gv` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// A local variable, by its index.
    Local(u16),
    /// A global variable, by its index.
    Global(u16),
}

/// Limits on the hits of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The address of the 8-byte count of hits while the probe was enabled. It may exceed
    /// `ignore + maxhits` by hits before the probe was removed.
    pub hits: u32,
    /// The number of first hits to ignore.
    pub ignore: u64,
    /// The number of runs after which the probe is disabled.
    pub maxhits: u64,
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The address of the word that shows whether the reader of all rings lives: threads stop
    /// waiting when it is [`layout::ABANDONED`].
    pub reader: u32,
}

/// Where the data of a site's handler is, and what is known of the site. All addresses are below
/// [`layout::LOW_END`]. It has this many fields since one compilation takes all of them as
/// its input, and none of them changes.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The address of the process' [`layout::Identity`].
    pub identity: u32,
    /// The address of the first [`layout::Context`].
    pub contexts: u32,
    /// The number of contexts that belong to one processor each; they come first, in processor
    /// order. Other processors use the shared ones.
    pub own_contexts: u32,
    /// The number of shared contexts behind them: a power of two, at least 1.
    pub shared_contexts: u32,
    /// The size of a context's ring: a power of two from [`layout::LEAST_RING`] to
    /// [`layout::GREATEST_RING`].
    pub ring_size: u32,
    /// The address of the first local variable, 8 bytes each.
    pub locals: u32,
    /// The address of the first global variable, 8 bytes each.
    pub globals: u32,
    /// The maps.
    pub maps: &'a [MapInfo],
    /// The constants of the program.
    pub constants: vm::Constants<'a>,
    /// The address of the words of the maps.
    pub tables: u32,
    /// The number of processors that there can be.
    pub processors: u32,
    /// The variables that all handlers of their program only `inc` and `dec` by number, and their
    /// per-processor counters.
    pub counted: &'a [(Variable, PerProcessor)],
    /// Counts the hits of the enabled probe: runs, misses and ignored hits.
    pub hits: PerProcessor,
    /// The address of the 8-byte count of hits whose handler found no context, incremented with
    /// lock.
    pub missed: u32,
    /// The address of the 8-byte count of dropped records, incremented with lock.
    pub dropped: u32,
    /// The address of [`layout::ProbeEnd`], 8 bytes.
    pub over: u32,
    /// Whether the probe may be disabled from outside while jumps still lead to its handler: there
    /// is another probe at the same site.
    pub removable: bool,
    /// Set if the probe has `ignore` or `maxhits`.
    pub limits: Option<Limits>,
    /// The agent's entry points.
    pub agent: Entries,
    /// The address of the handler's [`layout::HandlerInfo`].
    pub info: u32,
    /// The number that stands for site and probe in records.
    pub number: u32,
    /// The address of the displaced instruction.
    pub site: u64,
    /// Whether the program may read the arithmetic flags before it writes them, from the site on.
    pub flags_live: bool,
    /// Whether the displaced instruction can fault; then the record is committed behind it, by
    /// [`crate::Compiled::commit`].
    pub tentative: bool,
    /// Whether an earlier handler at the same site has an uncommitted tentative record; its address
    /// below the red zone must be kept.
    pub waits: bool,
    /// Set if threads wait for room in a ring, and for a context.
    pub lossless: Option<Waiting>,
    /// What marks a thread's registered `struct rseq`.
    pub mark: RseqMark,
    /// The address of the table of memory hidden from handlers ([`layout::hidden`]). 0: nothing is
    /// hidden.
    pub hidden: u32,
    /// Whether the processor has `rdpid`; otherwise `lsl` of a kernel segment is used.
    pub rdpid: bool,
}
