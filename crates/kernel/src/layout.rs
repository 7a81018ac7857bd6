//! The context of a run: one element of an array map, in which everything of the run lives.
//!
//! ```text
//!     0   fields, 8 bytes each                [Field]
//!   512   frames: 64 x 80 bytes, 33 used      callee, back, base, handler, three ranges
//!  5632   the RPN stack: 1024 words of 8 bytes
//! 13824   scratch, 64 bytes
//! 13888   the record's header                 [crate::record]
//! 14016   the log: a power of two, then room for a read that begins at its last byte
//!    .    the stack traces likewise, if the program writes any
//!    .    the heap's blocks, its bytes, and room to move them, if the program uses it
//!    .    the frame, and as much to copy it; a key and a value of maps, if the program uses these
//! ```
//!
//! The verifier must see that each access stays inside. So a place that is not constant is masked
//! with a power of two before it is used, and behind each part is room for the longest access.

use std::collections::BTreeSet;

use vm::{Effects, FRAME_LIMIT, HEAP_BLOCKS, HEAP_LIMIT, LOG_LIMIT, STACK_WORDS, TRACE_LIMIT, Word};

use crate::handler::Handler;
use crate::record;

/// A field of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
pub(crate) enum Field {
    /// When the context was claimed; 0 if it is free.
    Busy,
    /// What the next step runs: an offset in the bytecode, or a [`crate::routine::Micro`].
    Next,
    /// Where a routine continues: an offset in the bytecode.
    Back,
    /// Where the routine that writes stack traces continues: a routine.
    BackFromTrace,
    /// The slot of the top.
    Top,
    /// The stack base pointer.
    Base,
    /// Calls that have not returned.
    Depth,
    /// Calls that may still be made.
    Calls,
    /// Jumps that may still be taken.
    Jumps,
    /// Instructions that may still be executed; only kept if that can run out.
    Left,
    /// The log pointer.
    Length,
    /// The previous log pointer.
    Complete,
    /// The exception being raised.
    Code,
    Parm1,
    Parm2,
    /// The last exception.
    LastCode,
    LastParm1,
    LastParm2,
    /// How many exception handlers were called.
    Handled,
    /// The stack trace pointer, and whether the last trace was cut off.
    TraceLength,
    TraceFull,
    /// The heap: number of blocks, bytes used, last handle.
    Blocks,
    HeapUsed,
    LastHandle,
    /// Arguments and variables of routines.
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    /// The processor on which the run began.
    Cpu,
    /// How often an instruction on a map may still begin again.
    Tries,
    /// A key: its length, its hash, the part of it that lanes have, and its two buckets.
    KeyLength,
    Hash,
    Tag,
    First,
    Second,
    /// The control words of these buckets, as they were seen.
    SeenFirst,
    SeenSecond,
    /// In the memory of the maps: the first bucket of a copy.
    CopyAt,
    /// What was found there: the control word and its place, the number of the bucket, the lane,
    /// the entry, and whether that is new.
    Seen,
    Control,
    Bucket,
    Lane,
    Entry,
    New,
    /// Whether an instruction that began again has removed an entry before.
    Erased,
}

impl Field {
    /// Its offset.
    pub(crate) const fn at(self) -> i16 {
        self as i16 * 8
    }
}

/// The frames: 64, so that a depth can be masked.
pub(crate) const FRAMES: i16 = 512;
/// Bytes of a frame.
pub(crate) const FRAME: i32 = 80;
/// What masks a depth.
pub(crate) const FRAME_MASK: i32 = 63;

/// The words of a frame.
pub(crate) mod frame {
    pub(crate) const CALLEE: i16 = 0;
    pub(crate) const BACK: i16 = 8;
    pub(crate) const BASE: i16 = 16;
    /// The offset of the exception handler plus 1; 0 if none is set.
    pub(crate) const HANDLER: i16 = 24;
    pub(crate) const ELEMENTS: i16 = 32;
    pub(crate) const LOCALS: i16 = 48;
    pub(crate) const GLOBALS: i16 = 64;
}

/// The stack.
pub(crate) const STACK: i16 = FRAMES + 64 * FRAME as i16;
/// What masks a slot.
pub(crate) const SLOT_MASK: i32 = STACK_WORDS as i32 - 1;
/// A few bytes.
pub(crate) const SCRATCH: i16 = STACK + 8 * STACK_WORDS as i16;
/// The record's header.
pub(crate) const RECORD: i16 = SCRATCH + 64;
/// The log.
pub(crate) const LOG: i16 = RECORD + record::HEADER as i16;

/// The most bytes that one read takes.
pub(crate) const PIECE: i32 = 4096;

/// Bytes behind a part for an access of a few words.
const WORDS: usize = 64;

/// The parts of a context whose places depend on the program, and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    /// The size of the log: a power of two.
    pub(crate) log: i32,
    /// The place of the stack traces.
    pub(crate) trace: i32,
    /// Their size: a power of two; 0 if the program writes none.
    pub(crate) traces: i32,
    /// The place of the table of the heap's blocks: handle, start and size, 8 bytes each.
    pub(crate) blocks: i32,
    /// The place of the heap; a power of two in size.
    pub(crate) heap: i32,
    /// The place of the bytes being moved in the heap.
    pub(crate) moved: i32,
    /// The place of the frame, and as many bytes behind it: where copies of its bytes are made.
    pub(crate) frame: i32,
    /// The place of a key.
    pub(crate) key: i32,
    /// The place of a plain map's value.
    pub(crate) value: i32,
    /// The size of a context.
    pub(crate) size: u32,
}

/// What masks a place in the heap.
pub(crate) const HEAP_MASK: i32 = HEAP_LIMIT as i32 - 1;
/// What masks a block's number.
pub(crate) const BLOCK_MASK: i32 = HEAP_BLOCKS as i32 - 1;

impl Layout {
    /// The layout that all handlers of a program share. It does not depend on the word.
    pub(crate) fn of(handler: &Handler<'_>) -> Layout {
        let uses = |effects| may(handler, effects);
        let traces = handler.autostacktrace || uses(Effects::USES_STACK_TRACE);
        let part = |size: usize, limit: usize| size.min(limit).next_power_of_two().max(64) as i32;
        let log = part(handler.logmax, LOG_LIMIT);
        let traces = if traces { part(handler.excpt_log, TRACE_LIMIT) } else { 0 };
        // Stack traces are copied behind the log for output.
        let trace = i32::from(LOG) + log + PIECE.max(traces) + WORDS as i32;
        let blocks = if traces > 0 { trace + traces + WORDS as i32 } else { trace };
        let heap = blocks + 8 * HEAP_BLOCKS as i32 + WORDS as i32;
        let moved = heap + HEAP_LIMIT as i32 + PIECE + WORDS as i32;
        let frame = if uses(Effects::USES_HEAP) { moved + PIECE } else { blocks };
        let frame = (frame + 7) & -8;
        let key = frame + 2 * FRAME_LIMIT as i32 + PIECE + WORDS as i32;
        let value = key + handler.tables.longest_key() as i32 + WORDS as i32;
        let end = value + handler.tables.longest_value() as i32 + WORDS as i32;
        let end = if uses(Effects::USES_FRAME.and(Effects::USES_MAPS)) { end } else { frame };
        let size = end.cast_unsigned().next_multiple_of(64);
        Layout { log, trace, traces, blocks, heap, moved, frame, key, value, size }
    }

    /// The most bytes of a record.
    pub(crate) fn record(&self) -> u32 {
        (record::HEADER as i32 + self.log + self.traces).cast_unsigned()
    }
}

/// Whether a program may have an instruction with an effect. A jump into the middle of an
/// instruction finds others.
pub(crate) fn may(handler: &Handler<'_>, effects: Effects) -> bool {
    let (code, word) = (handler.code, handler.word);
    let starts: BTreeSet<usize> = vm::instructions(code, word).map(|it| it.range().start).collect();
    let targets = vm::instructions(code, word).filter_map(|it| it.instruction()?.target(code));
    let aligned = targets.chain([handler.entry]).all(|target| starts.contains(&target));
    let at = |offset: usize| vm::Instruction::at(code, offset, word);
    let has = |offset: usize| at(offset).is_some_and(|it| it.effects().intersects(effects));
    if aligned { starts.into_iter().any(has) } else { (0..code.len()).any(has) }
}

/// The maps of a program, by their index in the list that it is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Map {
    /// The contexts, those of a processor side by side.
    Contexts,
    /// The rings, by processor.
    Rings,
    /// The state of each probe: [`state`].
    Probes,
    /// The counts of each probe on each processor: [`count`].
    Counts,
    /// The local variables.
    Locals,
    /// The global variables.
    Globals,
    /// The processes that are probed.
    Processes,
    /// The maps and constants of a script: [`crate::Tables`].
    Tables,
    /// The hits of each process: [`crate::by_process`].
    ByProcess,
    /// Whether a core dump is being written: [`crate::dump_requests`].
    Dumps,
    /// The requests for core dumps.
    Requests,
}

/// The names of the maps, by index.
pub const MAP_NAMES: [&str; MAPS] = [
    "contexts",
    "rings",
    "probes",
    "counts",
    "locals",
    "globals",
    "processes",
    "tables",
    "by_process",
    "dumps",
    "requests",
];

/// The number of maps.
pub(crate) const MAPS: usize = Map::Requests as usize + 1;

/// The words of a probe's state.
pub(crate) mod state {
    /// Whether it fires: 0, or why it does not.
    pub(crate) const OVER: u32 = 0;
    /// Whether it has `ignore` or `maxhits`.
    pub(crate) const LIMITED: u32 = 8;
    /// Its hits, if it has.
    pub(crate) const TURNS: u32 = 16;
    /// Hits to ignore.
    pub(crate) const IGNORE: u32 = 24;
    /// The last hit that counts: `ignore + maxhits`.
    pub(crate) const LAST: u32 = 32;
    /// Whether it may ask for a core dump.
    pub(crate) const DUMPS: u32 = 40;
    /// Bytes.
    pub(crate) const SIZE: u32 = 64;

    /// `OVER` of a probe that fires no more since it was hit `maxhits` times, or disabled from
    /// outside.
    pub(crate) const DISABLED: i32 = 1;
    /// `OVER` of a probe that its handler has removed.
    pub(crate) const REMOVED: i32 = 2;
}

/// The words of a probe's counts on a processor.
pub(crate) mod count {
    /// Each hit is one of the first three.
    pub(crate) const IGNORED: u32 = 0;
    pub(crate) const MISSED: u32 = 8;
    pub(crate) const RUNS: u32 = 16;
    pub(crate) const LOGGED: u32 = 24;
    pub(crate) const DROPPED: u32 = 32;
    pub(crate) const EXCEPTIONS: u32 = 40;
    /// Hits that no process's entry has.
    pub(crate) const UNASSIGNED: u32 = 48;
    /// Bytes: a cache line.
    pub(crate) const SIZE: u32 = 64;
}

/// Bytes of a word.
pub(crate) const fn bytes(word: Word) -> i32 {
    word.bytes() as i32
}
