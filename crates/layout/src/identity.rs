//! Who a process is, and how its threads are known.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Line;

/// Who a process is: one private page for each address space, mapped with `MADV_WIPEONFORK`. A child finds it zeroed:
/// nothing is known then, until the tracer has filled it in again. What is not known here, the thread's own descriptors say
/// ([`crate::thread_id`]): no handler makes a system call.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Identity {
    /// The process id, or 0: not known (or several processes share the memory).
    pub pid: AtomicU32,
    /// The process whose memory this is, also while several processes share it; 0: not known.
    pub owner: AtomicU32,
    /// Where a thread keeps its id, as an offset from `fs` (the libc's `struct pthread`), or 0: not known.
    pub tid_offset: AtomicU64,
    /// Where a thread's registered `struct rseq` is, as an offset from `fs` (glibc's `__rseq_offset`), or 0: not known. It is set
    /// only where the kernel confirmed the place and glibc's signature ([`RSEQ_SIGNATURE`]).
    pub rseq_offset: AtomicU64,
    /// Not 0 while nobody of this address space is to wait, for room or for a context (with `--lossless`): the tracer waits for somebody in
    /// it.
    pub gives_up: AtomicU32,
    /// Not 0 where threads may not read the time stamp counter (`PR_SET_TSC`, which seccomp's strict mode does, too): what the tracer writes
    /// to `time` every few milliseconds stands for it.
    pub clockless: AtomicU32,
    /// The time stamp counter, a while ago.
    pub time: AtomicU64,
    /// The reader's last sign of life, where it has not changed for so long that the reader must be dead: no thread waits for it. 0: none.
    pub dead: AtomicU64,
    /// What is written here does not matter: the state of a record that there is not, so that what commits a record need
    /// not ask whether there is one.
    pub nothing: Line,
    /// Not 0 where a thread has looked for a context in vain (with `--lossless`): the tracer clears it.
    pub crowded: Line,
}

/// The signature that glibc registers, found before each place that a restartable sequence aborts to.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// Where `cpu_id` is in the kernel's `struct rseq`.
pub const RSEQ_CPU: i32 = 4;
/// Where `rseq_cs` is in the kernel's `struct rseq`.
pub const RSEQ_SECTION: i32 = 8;
/// The first byte behind what kernels up to 6.18 keep in a `struct rseq`; its size is at least 32 bytes.
pub const RSEQ_UNUSED: u32 = 28;

/// How a thread is known to be one whose `struct rseq` is where [`Identity::rseq_offset`] says: the tracer has written this mark into
/// the unused bytes of it. The number in [`RSEQ_CPU`] alone is no proof: in memory that is something else it may well be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it is in the `struct rseq`.
    pub at: i32,
    /// Four bytes that are not there by chance.
    pub value: u32,
}
