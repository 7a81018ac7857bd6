//! Rings: the words that their writer and their reader share, and how large rings are.

use core::sync::atomic::AtomicU64;

use crate::record::record_size;

/// The words that a ring's writer and its reader share. Those of all rings come first in the
/// memory, before the rings.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`Context::head`](crate::Context::head) after the last finished record. Written by the
    /// thread that holds the context.
    pub head: CacheLineWord,
    /// Total bytes ever taken out of the ring, or [`ABANDONED`]. Written by the reader.
    pub tail: CacheLineWord,
    /// Total records ever dropped because the ring was full. Written by the thread that holds the
    /// context.
    pub lost: CacheLineWord,
    /// The id, as the thread itself knows it, of the thread that waits for room; 0: none. Written
    /// by the thread that holds the context.
    pub waiter: CacheLineWord,
}

/// Bytes of a [`Control`].
pub const CONTROL: u64 = size_of::<Control>() as u64;

/// A word in a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CacheLineWord(pub AtomicU64);

/// The value of [`Control::tail`] when the reader will not read any more: threads do not wait for
/// room, and records that do not fit are dropped.
///
/// The reader's sign of life has the same value to say this for all rings. The sign of life is a
/// word that only the tracer can write, and that changes several times a second; if the reader
/// dies, a surviving part of the tracer stores this value there. If none survives, a thread that
/// has waited for 2^35 counts of the time stamp counter (7 to 20 seconds) without seeing the word
/// change tells its process so, in [`Identity::dead`](crate::Identity::dead).
pub const ABANDONED: u64 = u64::MAX;

/// The default size of a ring in bytes: room for a sixth of a second of two million small records a
/// second.
pub const RING_SIZE: u64 = 16 << 20;
/// The least size of a ring in bytes: several of the largest records.
pub const LEAST_RING: u64 = 256 << 10;
/// The greatest size of a ring in bytes.
pub const GREATEST_RING: u64 = 64 << 20;

const _: () = {
    assert!(LEAST_RING.is_power_of_two() && RING_SIZE.is_power_of_two() && GREATEST_RING.is_power_of_two());
    assert!(LEAST_RING >= 2 * (record_size(vm::LOG_LIMIT, Some(vm::TRACE_LIMIT)) as u64 + 8));
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_fields_are_where_compiled_code_expects_them() {
        assert_eq!((offset_of!(Control, head), offset_of!(Control, tail)), (0, 64));
        assert_eq!(offset_of!(Control, lost), 128);
    }
}
