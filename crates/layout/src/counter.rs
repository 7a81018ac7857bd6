//! Counters, and the words that say whether a probe has ended.

use core::sync::atomic::AtomicU32;

/// A counter with a word for each processor. Its value is the sum of its words.
///
/// The word of processor `p` is at `address + (p << shift)`. [`SPILL`](PerProcessor::spill) is an
/// extra word for threads that cannot use a restartable sequence: it alone is incremented with a
/// lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerProcessor {
    /// The word of processor 0, below [`LOW_END`](crate::LOW_END).
    pub address: u32,
    /// The distance between the words of two processors, as a power of two.
    pub shift: u8,
    /// The spill word's address, below [`LOW_END`](crate::LOW_END).
    pub spill: u32,
}

/// Whether a probe has ended, read by its handlers in all processes.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct ProbeEnd {
    /// Not 0: no run of the handler begins any more. Set by the run that is the last of `maxhits`
    /// when it begins, by a run that ends with `remove`, and by the tracer.
    pub closed: AtomicU32,
    /// Not 0: the probe is removed. A run that ends with `remove` sets [`ProbeEnd::BY_HANDLER`],
    /// and makes no record if a bit was already set: of all runs that remove a probe only the first
    /// counts. The tracer sets [`ProbeEnd::BY_TRACER`]. A long run stops when it finds a bit set.
    pub removed: AtomicU32,
}

impl ProbeEnd {
    /// A run has ended with `remove`.
    pub const BY_HANDLER: u32 = 1;
    /// The tracer removes the probe.
    pub const BY_TRACER: u32 = 2;
}
