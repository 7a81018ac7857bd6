//! Contexts: the working memory of hits.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::constants::PAGE;
use crate::record::record_size;

/// Working memory for one hit at a time, claimed by the thread that hits.
///
/// Contexts are [`CONTEXT_SIZE`] bytes apart, the first at a multiple of that. The first ones
/// belong to one processor each, by its number: only a thread that runs there claims it, if it is
/// free, by a plain store that ends a restartable sequence. The others are shared: a thread takes
/// the first one whose `claim` it can exchange from FREE to TAKEN.
///
/// The memory is private, and the kernel zeroes it in a forked child: there all contexts are
/// UNUSABLE, and hits that need one are missed until the tracer has given the child its own rings.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Context {
    /// The id of the thread that holds it, in case that thread is killed. A single store writes it
    /// together with `claim`.
    pub holder: AtomicU32,
    /// One of [`claim`]. A plain store of FREE releases the context.
    pub claim: AtomicU32,
    /// The address of the displaced instruction that follows the running handler.
    pub site: AtomicU64,
    /// Total bytes ever put into its ring. Written by the thread that holds the context.
    pub head: AtomicU64,
    /// The value of [`Control::tail`](crate::Control::tail) that a thread read last: while there is
    /// room the reader's own word is not touched. After a lost record it makes the ring look full,
    /// so that the next record looks again and leaves a mark.
    pub seen_tail: AtomicU64,
    /// The address of its ring.
    pub ring: AtomicU64,
    /// The size of its ring in bytes: a power of two from [`LEAST_RING`](crate::LEAST_RING) to
    /// [`GREATEST_RING`](crate::GREATEST_RING).
    pub ring_size: AtomicU64,
    /// The address of its ring's [`Control`](crate::Control).
    pub control: AtomicU64,
    /// How many of [`Control::lost`](crate::Control::lost) the marks in the ring report
    /// ([`state::LOST`](crate::state::LOST)).
    pub marked: AtomicU64,
    /// The program's registers, for handlers that leave compiled code.
    pub registers: Registers,
}

/// The values of [`Context::claim`].
pub mod claim {
    /// It has no ring: the value in a forked child.
    pub const UNUSABLE: u32 = 0;
    /// No thread holds it.
    pub const FREE: u32 = 1;
    /// A thread holds it.
    pub const TAKEN: u32 = 2;
}

/// The thread's registers when it reached the site. Compiled code stores them before it calls the
/// agent and loads them afterwards.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: in the order of their machine code
    /// numbers.
    pub general: [u64; 16],
    /// The site's address.
    pub rip: u64,
    /// The flags.
    pub rflags: u64,
}

/// Bytes from one context to the next: the [`Context`], the interpreter's working memory and a
/// stack, which the agent's code uses from the end down.
///
/// | offset | what is there |
/// |---|---|
/// | 0 | [`Context`] |
/// | [`CALL`] | [`MapCall`](crate::MapCall) |
/// | [`RESUME`] | [`Resume`] |
/// | [`SAVED`] | [`Saved`] |
/// | [`STATE`] | the interpreter's working memory: a `vm::State` |
/// | [`SCRATCH`] | a record that has no room in the ring: a [`Header`](crate::Header), then [`SCRATCH_SIZE`] less its bytes |
/// | [`FRAME`] | bytes of the handler's frame that compiled code works with |
/// | [`MEMOS`] | stacks walked before |
/// | ... | unused |
/// | [`CONTEXT_SIZE`] | the end of the stack |
pub const CONTEXT_SIZE: u64 = 256 << 10;

/// The offset of a context's [`MapCall`](crate::MapCall).
pub const CALL: u64 = 1024;

/// The offset of the bytes of the handler's frame that compiled code works with: keys, values and
/// strings. What a run finds there is what others have left.
pub const FRAME: u64 = 164 << 10;

/// Bytes of it: a frame, and a word that may be written at its end.
pub const FRAME_SIZE: u64 = vm::FRAME_LIMIT as u64 + 8;

/// The offset of what a context remembers of the stacks that were walked in it: the agent's
/// `unwind::Memos`.
pub const MEMOS: u64 = FRAME + FRAME_SIZE.next_multiple_of(64);

/// The most bytes of it.
pub const MEMOS_SIZE: u64 = CONTEXT_SIZE - MEMOS - (64 << 10);

/// The offset of a context's [`Resume`].
pub const RESUME: u64 = PAGE;

/// The offset of a context's [`Saved`].
pub const SAVED: u64 = PAGE + 0xc00;

/// The offset of a context's `vm::State`.
pub const STATE: u64 = 2 * PAGE;

/// The offset of a context's scratch record. Compiled code writes a record here when it knows that
/// it will be dropped.
pub const SCRATCH: u64 = 128 << 10;

/// Bytes of a scratch record: the header, the largest log, the `More`, and 8 bytes
/// that may be written past the end.
pub const SCRATCH_SIZE: u64 = record_size(vm::LOG_LIMIT, Some(0)) as u64 + 8;

/// The program's state that the agent saves while it runs on a context.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// xmm0 to xmm15.
    pub vectors: [u128; 16],
    /// The stack pointer.
    pub stack: u64,
    /// The address of the [`HandlerInfo`](crate::HandlerInfo).
    pub handler: u64,
}

/// The most stack elements that compiled code hands to the interpreter.
pub const RESUME_ELEMENTS: usize = 96;

/// The most words of the frame that compiled code hands to the interpreter.
pub const RESUME_WORDS: usize = 24;

/// The most strings in the frame that compiled code hands to the interpreter.
pub const RESUME_TEXTS: usize = 4;

/// Stands in [`Resume`] for a code that the handler did not set.
pub const UNSET: u32 = u32::MAX;

/// The state of a run that leaves compiled code: `vm::Middle` as compiled code stores it. Only
/// the first `element_count` of `elements`, `word_count` of `words`, `text_count` of `texts` and
/// `call_count` of `calls` are set. Its fields are all that a run can be continued from.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Resume {
    /// The time stamp counter when the hit began to log, or when it left compiled code.
    pub time: u64,
    /// The address of its log.
    pub log: u64,
    /// Bytes in its log.
    pub log_length: u32,
    /// Bytes logged by the end of the last successful log instruction.
    pub complete: u32,
    /// The offset in the bytecode of the next instruction.
    pub offset: u32,
    /// The slot of the stack's top.
    pub top: u32,
    /// Jumps that were taken.
    pub jumps: u32,
    /// Calls that were made.
    pub calls_made: u32,
    /// Instructions that were executed; 0 if the run cannot reach `insmax`.
    pub instructions: u32,
    /// The major code that it set, or [`UNSET`].
    pub major: u32,
    /// The minor code that it set, or [`UNSET`].
    pub minor: u32,
    /// How many stack elements are in `elements`; all others are 0.
    pub element_count: u32,
    /// How many calls are in `calls`.
    pub call_count: u32,
    /// The number for its record ([`Header::number`](crate::Header::number)).
    pub number: u32,
    /// How many words of the frame are in `words`; all other bytes are 0.
    pub word_count: u32,
    /// How many pieces of [`FRAME`] are in `texts`: they are in the frame, too.
    pub text_count: u32,
    /// The words of the frame.
    pub words: [vm::FrameWord; RESUME_WORDS],
    /// The pieces of [`FRAME`].
    pub texts: [vm::FrameText; RESUME_TEXTS],
    /// The elements of the stack.
    pub elements: [vm::Element; RESUME_ELEMENTS],
    /// The calls that have not returned, the outermost first.
    pub calls: [vm::Call; vm::CALL_DEPTH],
}

const _: () = {
    assert!(size_of::<Context>() as u64 <= CALL);
    assert!(CALL + size_of::<crate::MapCall>() as u64 <= PAGE);
    assert!(RESUME + size_of::<Resume>() as u64 <= SAVED);
    assert!(SAVED + size_of::<Saved>() as u64 <= STATE);
    assert!(STATE + size_of::<vm::State>() as u64 <= SCRATCH);
    assert!(SCRATCH + SCRATCH_SIZE <= FRAME);
    // Above it is a stack of 64 KiB for the agent's code.
    assert!(MEMOS + MEMOS_SIZE + (64 << 10) <= CONTEXT_SIZE && MEMOS_SIZE > 0);
    assert!(CONTEXT_SIZE.is_power_of_two());
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_fields_are_where_compiled_code_expects_them() {
        assert!(offset_of!(Context, marked) + 8 <= 64);
        assert_eq!(offset_of!(Context, registers) % 64, 0);
    }
}
