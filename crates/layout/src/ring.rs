//! Rings: what their writer and their reader tell each other, and how large they are.

use core::sync::atomic::AtomicU64;

use crate::record_size;

/// What a ring's writer and its reader tell each other. Those of all rings stand in front of the rings.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`Context::head`](crate::Context::head) behind the last record that was finished. Written by the thread that has the context.
    pub head: Line,
    /// Bytes that were ever taken out of the ring, or [`ABANDONED`]. Written by the reader.
    pub tail: Line,
    /// Records that were ever dropped since the ring had no room for them. Written by the thread that has the context.
    pub lost: Line,
    /// The id of the thread that waits for room, as it has it itself; 0: none does. Written by the thread that has the context.
    pub waiter: Line,
}

/// Bytes of a [`Control`].
pub const CONTROL: u64 = size_of::<Control>() as u64;

/// A word in a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line(pub AtomicU64);

/// Stands in [`Control::tail`] for a reader that will not read any more: nobody waits for room then, and what has no room is
/// dropped. It stands for the same, and for all rings, in the word by which the reader shows that it lives. That is a word
/// that only the tracer can write, and which changes several times a second; if the reader dies, whoever is left stores this there. If
/// nobody is left, a thread that has waited for long (2^35 counts of the time stamp counter, 7 to 20 seconds) and has not
/// seen the word change says so to its process, in [`Identity::dead`](crate::Identity::dead).
pub const ABANDONED: u64 = u64::MAX;

/// Bytes of a ring where nothing else is asked for: a sixth of a second of two million small records a second.
pub const RING_SIZE: u64 = 16 << 20;
/// Bytes of a ring, at least: several of the largest records.
pub const LEAST_RING: u64 = 256 << 10;
/// Bytes of a ring, at most.
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
