//! What handlers know of their process, and how they find the ids of their threads.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::ring::CacheLineWord;

/// What handlers know of their process: one private page for each address space, mapped with
/// `MADV_WIPEONFORK`. A forked child finds it zeroed, which means "not known", until the tracer has
/// filled it in. Handlers make no system calls: what is not known here they read from the thread's
/// segment descriptors ([`crate::thread_id`]).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Identity {
    /// The process id; 0: not known, or several processes share the memory.
    pub pid: AtomicU32,
    /// The process that owns this memory, also while several processes share it; 0: not known.
    pub owner: AtomicU32,
    /// The offset from `fs` of the word where a thread keeps its id (in the libc's
    /// `struct pthread`); 0: not known.
    pub tid_offset: AtomicU64,
    /// The offset from `fs` of a thread's registered `struct rseq` (glibc's `__rseq_offset`); 0:
    /// not known. It is set only where the kernel has confirmed the place and glibc's signature
    /// ([`RSEQ_SIGNATURE`]).
    pub rseq_offset: AtomicU64,
    /// Not 0 while no thread of this address space may wait for room or for a context (with
    /// `--lossless`), because the tracer waits for one of them.
    pub must_not_wait: AtomicU32,
    /// Not 0 where threads may not read the time stamp counter (`PR_SET_TSC`, which seccomp's
    /// strict mode sets too). Handlers then use `time`, which the tracer updates every few
    /// milliseconds.
    pub no_rdtsc: AtomicU32,
    /// The time stamp counter as the tracer last read it.
    pub time: AtomicU64,
    /// The reader's last sign of life, once it has not changed for so long that the reader must be
    /// dead: threads stop waiting. 0: none.
    pub dead: AtomicU64,
    /// A dummy state word. Commit code writes here when no record was made, so it needs no branch.
    pub dummy_state: CacheLineWord,
    /// Not 0 after a thread has found no free context (with `--lossless`). The tracer clears it.
    pub no_free_context: CacheLineWord,
}

/// The signature that glibc registers. It stands before each abort handler of a restartable
/// sequence.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// The offset of `cpu_id` in the kernel's `struct rseq`.
pub const RSEQ_CPU: i32 = 4;
/// The offset of `rseq_cs` in the kernel's `struct rseq`.
pub const RSEQ_SECTION: i32 = 8;
/// The offset after the fields that kernels up to 6.18 have in a `struct rseq`; its size is at
/// least 32 bytes.
pub const RSEQ_UNUSED: u32 = 28;

/// A value that the tracer writes into the unused bytes of a thread's `struct rseq`, to prove that
/// it is where [`Identity::rseq_offset`] says. The number in [`RSEQ_CPU`] alone is no proof:
/// unrelated memory may well hold 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqMark {
    /// Its offset in the `struct rseq`.
    pub at: i32,
    /// Four bytes that do not occur by chance.
    pub value: u32,
}
