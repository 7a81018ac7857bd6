//! The format of records in a ring.

use core::sync::atomic::AtomicU32;

/// The header of a record in a ring. After it come the handler's log, padded to a multiple of 8,
/// then a [`ExtraHeader`] if there is one, then the stack traces, padded to a multiple of 8. A
/// record never wraps: if it does not fit before the end of the ring, it begins at the start, and
/// the word [`state::SKIP`] stands where it did not fit. Where records were lost there is a
/// [`LOST_MARK`].
///
/// What all records of a handler at a site have in common is not stored: the tracer knows it by the
/// site's number. Neither is the process, since a ring belongs to one address space.
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
    /// A [`status`]. Its lowest byte, one of [`state`], changes when the record is committed or
    /// dropped.
    pub status: AtomicU32,
    /// The tracer's number for the site together with the probe whose handler ran there.
    pub number: u32,
    /// The time stamp counter.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// The processor (with its node, as `rdpid` returns them).
    pub processor: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
}

/// Bytes of a [`Header`].
pub const HEADER: usize = size_of::<Header>();

/// The part that only some records have: see [`flag::MORE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraHeader {
    /// The major code of this record. Without a `ExtraHeader` it is the program's.
    pub major: u32,
    /// The minor code of this record. Without a `ExtraHeader` it is the probe's.
    pub minor: u32,
    /// Bytes of the stack traces, which are shown as a record of their own with major and minor
    /// code 0.
    pub traces: u64,
}

/// Bytes of a [`ExtraHeader`].
pub const MORE: usize = size_of::<ExtraHeader>();

/// [`Header::status`] of a record with this many bytes of log.
pub const fn status(state: u32, flags: u32, log: usize) -> u32 {
    state | flags | (log as u32) << LOG_SHIFT
}

/// Bytes of the mark that stands between two records where others were lost: [`state::LOST`] in 4
/// bytes, and their number in 4. It is written before the next record that fits.
pub const LOST_MARK: usize = 8;

/// The bit at which the number of logged bytes begins in a [`status`].
pub const LOG_SHIFT: u32 = 16;

/// The flags in a [`status`], beside state and length.
pub mod flag {
    /// A `ExtraHeader` follows the log.
    pub const MORE: u32 = 1 << 8;
    /// The handler makes no record of its log: there are only stack traces.
    pub const NO_LOG: u32 = 1 << 9;
}

/// Bytes of a record with this many bytes of log, and, if it has a [`ExtraHeader`], this many bytes
/// of stack traces.
pub const fn record_size(log: usize, traces: Option<usize>) -> usize {
    let more = match traces {
        Some(traces) => MORE + traces.next_multiple_of(8),
        None => 0,
    };
    HEADER + log.next_multiple_of(8) + more
}

/// The states of a record in a ring: the lowest byte of its [`status`].
pub mod state {
    /// The mask of the state.
    pub const BITS: u32 = 0xff;
    /// Its instruction has completed.
    pub const COMMITTED: u32 = 1;
    /// Its instruction has not completed: the reader waits for it.
    pub const TENTATIVE: u32 = 2;
    /// Its instruction faulted: the reader skips and counts it.
    pub const DROPPED: u32 = 3;
    /// No record: the next one is at the start of the ring.
    pub const SKIP: u32 = 4;
    /// No record but a `LOST_MARK`.
    pub const LOST: u32 = 5;
}

// The length of a log has two bytes in a status.
const _: () = assert!(vm::LOG_LIMIT <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_bytes_that_its_picture_shows() {
        assert_eq!((HEADER, MORE), (32, 16));
    }
}
