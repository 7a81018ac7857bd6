//! Encodes groups of records: the point and the thread of a head are looked up once for all its
//! records in a block.

use super::{Encoder, FastRecord};
use crate::store::bytes::fold;
use crate::{Entry, Record, Records};

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

    /// Appends records of a group, from number `from` on, as long as the fast path applies and
    /// `goes_on` says so, which is asked for each after it was appended: with its time, and with
    /// the block's size and span of time. Returns how many.
    #[inline]
    pub(in crate::store) fn push_known(
        &mut self,
        records: &Records,
        from: usize,
        mut goes_on: impl FnMut(u64, usize, u64) -> bool,
    ) -> usize {
        let entries = records.entries().get(from..).unwrap_or_default();
        let start = self.bytes.len();
        // Room for all of them: looking for it for each one costs more.
        self.bytes.resize(start + FastRecord::most(entries.len(), records.bytes()), 0);
        let (mut end, mut taken) = (start, 0);
        let (mut last, mut least, mut greatest) = (self.last, self.least, self.greatest);
        for entry in entries {
            let Some((short, thread)) = self.short(entry, last) else { break };
            let Some(size) = self.bytes.get_mut(end..).and_then(|room| short.put(room, records.words(entry)))
            else {
                break;
            };
            self.threads[thread].esp = entry.esp;
            (last, least, greatest) = (entry.time, least.min(entry.time), greatest.max(entry.time));
            end += size + entry.length();
            taken += 1;
            if !goes_on(entry.time, end, greatest - least) {
                break;
            }
        }
        self.bytes.truncate(end);
        (self.last, self.least, self.greatest) = (last, least, greatest);
        self.count += taken as u32;
        taken
    }

    /// The numbers of a record, given the time of the one before, and the index of its thread; if
    /// its head is known in the block and the fast path applies.
    #[inline(always)]
    fn short(&self, entry: &Entry, last: u64) -> Option<(FastRecord, usize)> {
        let known = self.heads.get(entry.head as usize)?;
        let (point, thread) =
            (self.points.get(known.point as usize)?, self.threads.get(known.thread as usize)?);
        if thread.cpu != entry.cpu || point.length != entry.length() {
            return None;
        }
        let passed = fold(entry.time.wrapping_sub(last) as i64);
        let step = fold(entry.esp.wrapping_sub(thread.esp) as i64);
        Some((FastRecord::of(passed, known.point, known.thread, step)?, known.thread as usize))
    }
}

impl FastRecord {
    /// The most bytes that so many records with so many bytes of padded data need in
    /// [`FastRecord::put`].
    const fn most(records: usize, data: usize) -> usize {
        (records + 1) * size_of::<u64>() + data
    }

    /// Writes the numbers to the start of `room`, and behind them the data with its padding.
    /// Returns the size of the numbers. None: there is no room.
    #[inline(always)]
    fn put(self, room: &mut [u8], data: &[[u8; 8]]) -> Option<usize> {
        *room.first_chunk_mut()? = self.bytes.to_le_bytes();
        // One or two words, the usual case, have their own arms: others are a call.
        match (data, room.get_mut(self.size..)?.as_chunks_mut::<8>().0) {
            ([], _) => {}
            ([word], [place, ..]) => *place = *word,
            ([one, two], [first, second, ..]) => (*first, *second) = (*one, *two),
            (words, places) => places.get_mut(..words.len())?.copy_from_slice(words),
        }
        Some(self.size)
    }
}
