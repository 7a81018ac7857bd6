//! Encodes groups of records: the point and the thread of a head are looked up once for all its
//! records in a block.

use super::{Encoder, FastRecord};
use crate::store::bytes::fold;
use crate::{Entry, Record};

/// The numbers in the block of a head's point and thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHead {
    point: u32,
    thread: u32,
}

impl KnownHead {
    /// No point and no thread have these numbers.
    pub(super) const NONE: KnownHead = KnownHead { point: u32::MAX, thread: u32::MAX };
}

impl Encoder {
    /// Begins a group with so many heads, none of which is known.
    pub(in crate::store) fn begin_group(&mut self, heads: usize) {
        self.heads.clear();
        self.heads.resize(heads, KnownHead::NONE);
    }

    /// Notes that a record, the last one that was appended, has this head.
    pub(in crate::store) fn know_head(&mut self, head: u32, record: &Record) {
        let known = KnownHead { point: self.recent_point(record), thread: self.recent_thread(record) };
        if let Some(head) = self.heads.get_mut(head as usize) {
            *head = known;
        }
    }

    /// Fast path for most records of a group: their head is known in the block. False: it does not
    /// apply, and nothing was done.
    #[inline]
    pub(in crate::store) fn push_known(&mut self, entry: &Entry, data: &[u8]) -> bool {
        let Some(&KnownHead { point: point_number, thread: thread_number }) =
            self.heads.get(entry.head as usize)
        else {
            return false;
        };
        let Some(point) = self.points.get(point_number as usize) else { return false };
        let Some(thread) = self.threads.get_mut(thread_number as usize) else { return false };
        if thread.cpu != entry.cpu || point.length != data.len() {
            return false;
        }
        let passed = fold(entry.time.wrapping_sub(self.last) as i64);
        let step = fold(entry.esp.wrapping_sub(thread.esp) as i64);
        let Some(short) = FastRecord::of(passed, point_number, thread_number, step) else { return false };
        thread.esp = entry.esp;
        self.passes(entry.time);
        short.push(&mut self.bytes, data);
        true
    }
}
