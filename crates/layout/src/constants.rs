//! Numbers of the x86-64 architecture that several areas use.

/// The end of the addresses that a sign-extended 32-bit displacement reaches from 0.
pub const LOW_END: u64 = 1 << 31;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The bits of `rdpid`'s result that hold the processor's number; the bits above hold its NUMA
/// node.
pub const PROCESSOR_MASK: u32 = 0xfff;
