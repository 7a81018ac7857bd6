//! The records in a ring.

use core::sync::atomic::AtomicU32;

/// The header of a record in a ring. The bytes that the handler logged follow, up to a multiple of 8, then a [`More`] if there is one, then its
/// stack traces, up to a multiple of 8. A record never wraps: one that does not fit before the end of the ring begins at its start, behind
/// the word [`state::SKIP`]. Where records were lost, a [`MARK`] stands.
///
/// What is the same in all records of a handler at a site is not here: the tracer knows it by the site's number. Nor is the process: a ring
/// belongs to one address space.
///
/// ```text
///  0  4  status: 1 state, 1 flags, 2 bytes that the handler logged
///  4  4  number of the site
///  8  8  time stamp counter
/// 16  4  thread
/// 20  4  processor
/// 24  8  stack pointer at the site
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// A [`status`]. The lowest byte, one of [`state`], is changed when the record is committed or dropped.
    pub status: AtomicU32,
    /// The site, with the probe whose handler has run there: a number that the tracer gave the two.
    pub number: u32,
    /// The time stamp counter.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// The processor (with its node, as `rdpid` gives them).
    pub processor: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
}

/// Bytes of a [`Header`].
pub const HEADER: usize = size_of::<Header>();

/// What only some records have: [`flag::MORE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// The major code of this record. Without it, it is that of its program.
    pub major: u32,
    /// The minor code of this record. Without it, it is that of its probe.
    pub minor: u32,
    /// Bytes of its stack traces; they are shown as a record of their own, with major and minor code 0.
    pub traces: u64,
}

/// Bytes of a [`More`].
pub const MORE: usize = size_of::<More>();

/// [`Header::status`] of a record with so many bytes of log.
pub const fn status(state: u32, flags: u32, log: usize) -> u32 {
    state | flags | (log as u32) << LOG_SHIFT
}

/// Bytes that say, between two records, that others were lost there: [`state::LOST`] in 4 bytes, and how many in 4. It is written before
/// the next record that has room.
pub const MARK: usize = 8;

/// Where the number of logged bytes begins in a [`status`].
pub const LOG_SHIFT: u32 = 16;

/// The bits that [`status`] can have beside state and length.
pub mod flag {
    /// A [`More`](super::More) follows the log.
    pub const MORE: u32 = 1 << 8;
    /// The handler makes no record of its log, and there is nothing but its stack traces.
    pub const NO_LOG: u32 = 1 << 9;
}

/// Bytes of a record with so many of log, and so many of stack traces if it has a [`More`].
pub const fn record_size(log: usize, traces: Option<usize>) -> usize {
    let more = match traces {
        Some(traces) => MORE + traces.next_multiple_of(8),
        None => 0,
    };
    HEADER + log.next_multiple_of(8) + more
}

/// The states of a record in a ring: the lowest byte of its [`status`].
pub mod state {
    /// The bits that are the state.
    pub const BITS: u32 = 0xff;
    /// Its instruction has completed.
    pub const COMMITTED: u32 = 1;
    /// Its instruction has not completed: the reader waits.
    pub const TENTATIVE: u32 = 2;
    /// Its instruction faulted: it is passed over and counted.
    pub const DROPPED: u32 = 3;
    /// Nothing is here: the next record is at the start of the ring.
    pub const SKIP: u32 = 4;
    /// No record, but a [`MARK`](super::MARK).
    pub const LOST: u32 = 5;
}

// A length is two bytes.
const _: () = assert!(vm::LOG_LIMIT <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_bytes_that_its_picture_shows() {
        assert_eq!((HEADER, MORE), (32, 16));
    }
}
