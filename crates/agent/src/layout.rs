//! The memory that a probed process and its tracer share.
//!
//! All of it is mapped below 2 GiB ([`LOW_END`]), so that compiled code addresses it absolutely (a 32-bit displacement), whatever
//! module it was reached from. There are four kinds of area:
//!
//! | area | shared by | holds |
//! |---|---|---|
//! | [`Identity`] page | one address space; zeroed by the kernel in a forked child | who the process is, how its threads are known |
//! | cells | all processes of a tracer | a program's variables; its counters, once per processor |
//! | contexts | a process and its forked children | [`Context`]s and their rings |
//! | code | one address space | the agent's own code; never written by the process |
//!
//! Whatever the tracer reads here, the process can have overwritten: it is looked at as input, not believed.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The end of the addresses that a sign-extended 32-bit displacement reaches from 0.
pub const LOW_END: u64 = 1 << 31;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The low bits of what `rdpid` gives that are the processor's number; the others are its node.
pub const PROCESSOR_MASK: u32 = 0xfff;

/// Who a process is: one private page for each address space, mapped with `MADV_WIPEONFORK`. A child finds it zeroed:
/// nothing is known then, and what handlers need they ask the kernel for, until the tracer has filled it in again.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Identity {
    /// The process id, or 0: not known (or several processes share the memory).
    pub pid: AtomicU32,
    /// Where a thread keeps its id, as an offset from `fs` (the libc's `struct pthread`), or 0: not known.
    pub tid_offset: AtomicU64,
    /// Where a thread's registered `struct rseq` is, as an offset from `fs` (glibc's `__rseq_offset`), or 0: not known. It is set
    /// only where the kernel confirmed the place and glibc's signature ([`RSEQ_SIGNATURE`]).
    pub rseq_offset: AtomicU64,
}

/// The signature that glibc registers, found before each place that a restartable sequence aborts to.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// Where `cpu_id` is in the kernel's `struct rseq`.
pub const RSEQ_CPU: i32 = 4;
/// Where `rseq_cs` is in the kernel's `struct rseq`.
pub const RSEQ_SECTION: i32 = 8;

/// A counter that each processor counts for itself. Its value is the sum of its words.
///
/// The word of processor `p` is at `address + (p << shift)`. [`SPILL`](PerProcessor::spill) is one word more, for threads that
/// cannot use a restartable sequence: it alone is counted with a locked increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerProcessor {
    /// The word of processor 0, below [`LOW_END`].
    pub address: u32,
    /// The distance between the words of two processors, as a power of two.
    pub shift: u8,
    /// The spill word's address, below [`LOW_END`].
    pub spill: u32,
}

/// Working memory of one hit at a time, claimed by the thread that hits.
///
/// Contexts follow one another at a distance of [`CONTEXT_SIZE`] bytes. A thread begins at that of its processor's number
/// (modulo their count) and takes the first whose `claim` it exchanges from 0 to 1.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Context {
    /// 1 while a thread has it. Taken by an atomic exchange, given back by a plain store of 0.
    pub claim: AtomicU32,
    /// The thread that has it, for when that thread is killed.
    pub holder: AtomicU32,
    /// The address of the displaced instruction that comes after the handler that runs in it.
    pub site: AtomicU64,
    /// Bytes that were ever put into its ring. Written by the thread that has the context.
    pub head: AtomicU64,
    /// The value of `tail` when the thread looked last: the reader's own is not touched while there is room.
    pub seen_tail: AtomicU64,
    /// The address of its ring.
    pub ring: AtomicU64,
    /// Bytes that were ever taken out of its ring, in a cache line of its own. Written by the reader.
    pub tail: Line,
    /// The program's registers, for handlers that leave compiled code: see [`Registers`].
    pub registers: Registers,
}

/// A word in a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line(pub AtomicU64);

/// The registers of the thread as it reached the site. Compiled code stores them before it calls the agent and loads them
/// after.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: in the order of their numbers in machine code.
    pub general: [u64; 16],
    /// The site's address.
    pub rip: u64,
    /// The flags.
    pub rflags: u64,
}

/// Bytes from one context to the next: the [`Context`], the interpreter's working memory and a stack, which the agent's
/// code uses from the end down.
pub const CONTEXT_SIZE: u64 = 256 << 10;

/// The header of a record in a ring. The bytes that the handler logged follow, then those of its stack traces; then
/// nothing up to a multiple of 8. A record never wraps: one that does not fit before the end of the ring begins at its
/// start, behind a record of state [`state::SKIP`] (if there is room for so much as its first 8 bytes; there is, sizes being
/// multiples of 8).
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// One of [`state`].
    pub state: AtomicU32,
    /// Bytes of the whole record, header and padding included: a multiple of 8.
    pub size: u32,
    /// The time stamp counter.
    pub time: u64,
    /// The probe: a number that the tracer gave it.
    pub probe: u32,
    /// The processor (with its node, as `rdpid` gives them).
    pub processor: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The major code of this record.
    pub major: u32,
    /// The minor code of this record.
    pub minor: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
    /// The site's address.
    pub site: u64,
    /// Bytes that the handler logged.
    pub log_length: u32,
    /// Bytes of its stack traces.
    pub trace_length: u32,
}

/// Bytes of a [`Header`].
pub const HEADER: usize = size_of::<Header>();

/// The states of a record in a ring.
pub mod state {
    /// Its instruction has completed.
    pub const COMMITTED: u32 = 1;
    /// Its instruction has not completed: the reader waits.
    pub const TENTATIVE: u32 = 2;
    /// Its instruction faulted: it is passed over and counted.
    pub const DROPPED: u32 = 3;
    /// Nothing is here: the next record is at the start of the ring.
    pub const SKIP: u32 = 4;
}

/// Bytes of a ring: a power of two.
pub const RING_SIZE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_fields_are_where_compiled_code_expects_them() {
        assert_eq!(HEADER, 64);
        assert_eq!(offset_of!(Context, tail) % 64, 0);
        assert_eq!(offset_of!(Context, registers) % 64, 0);
        assert!(size_of::<Context>() as u64 <= PAGE);
    }
}
