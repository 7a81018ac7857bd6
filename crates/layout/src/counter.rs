//! Counters, and whether a probe is over.

use core::sync::atomic::AtomicU32;

/// A counter that each processor counts for itself. Its value is the sum of its words.
///
/// The word of processor `p` is at `address + (p << shift)`. [`SPILL`](PerProcessor::spill) is one word more, for threads that
/// cannot use a restartable sequence: it alone is counted with a locked increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerProcessor {
    /// The word of processor 0, below [`LOW_END`](crate::LOW_END).
    pub address: u32,
    /// The distance between the words of two processors, as a power of two.
    pub shift: u8,
    /// The spill word's address, below [`LOW_END`](crate::LOW_END).
    pub spill: u32,
}

/// Whether a probe is over, for its handlers wherever they run.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct Over {
    /// Not 0: no run of the handler begins any more. Set by the run that is the last of `maxhits` when it begins, by the run
    /// that ends with `remove`, and by the tracer.
    pub closed: AtomicU32,
    /// Not 0: the probe is removed. A run that ends with `remove` sets [`Over::BY_HANDLER`]; if it finds anything set it makes
    /// no record: of all runs that remove a probe one is the first. The tracer sets [`Over::BY_TRACER`]. A run that takes
    /// long ends where it finds anything.
    pub removed: AtomicU32,
}

impl Over {
    /// A run has ended with `remove`.
    pub const BY_HANDLER: u32 = 1;
    /// The tracer takes the probe out.
    pub const BY_TRACER: u32 = 2;
}
