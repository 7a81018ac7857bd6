//! Encodes records into a block.
//!
//! ```text
//! block   base 8, then records      the time that the first one counts from, little-endian
//! record  shape 1                   see below
//!         time                      difference from the record before
//!         point                     its number in the block; a new one follows in full
//!         thread                    its number in the block; a new one follows in full
//!         cpu                       if it is not that of the thread's record before
//!         esp                       difference from that of the thread's record before
//!         length                    bytes of the data, if not as many as at the point's record before
//!         data
//! point   program, probe, major, minor, eip, cs, ss, word: numbers
//! thread  pid, tid, uid: numbers, name: a text
//! ```
//!
//! The bits of the shape: 1, the point is new; 2, the thread is new; 4, there is a cpu; 8, there is
//! a length. Points and threads are numbered from 0 on in the order in which they appear, anew in
//! each block, so that a block can be decoded alone. The values before the first record of a thread
//! or point are zero.
//!
//! Numbers and differences are encoded as in [`super::bytes`].

use std::collections::HashMap;

use super::bytes::{LONGEST, fold, push_bytes, push_number, put_number};
use crate::Record;
use group::KnownHead;

mod group;

/// The bits of a record's shape.
pub(super) mod shape {
    /// The point is new.
    pub(in crate::store) const POINT: u8 = 1;
    /// The thread is new.
    pub(in crate::store) const THREAD: u8 = 2;
    /// There is a processor.
    pub(in crate::store) const CPU: u8 = 4;
    /// There is a length.
    pub(in crate::store) const LENGTH: u8 = 8;
    /// All known bits.
    pub(in crate::store) const ALL: u8 = POINT | THREAD | CPU | LENGTH;
}

/// What the records of one probe at one place have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Point {
    pub(super) program: u32,
    pub(super) probe: u32,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) eip: u64,
    pub(super) cs: u32,
    pub(super) ss: u32,
    pub(super) word: u32,
}

impl Point {
    fn of(program: u32, record: &Record) -> Point {
        Point {
            program,
            probe: record.probe,
            major: record.major,
            minor: record.minor,
            eip: record.eip,
            cs: record.cs,
            ss: record.ss,
            word: record.word as u32,
        }
    }

    /// Whether it is the point of a record. It mostly is, so all fields are compared without a
    /// branch.
    #[inline]
    fn is_of(&self, program: u32, record: &Record) -> bool {
        let halves = (self.program ^ program)
            | (self.probe ^ record.probe)
            | (self.major ^ record.major)
            | (self.minor ^ record.minor)
            | (self.cs ^ record.cs)
            | (self.ss ^ record.ss)
            | (self.word ^ record.word as u32);
        u64::from(halves) | (self.eip ^ record.eip) == 0
    }
}

/// What the records of one thread have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) uid: u32,
    pub(super) name: String,
}

impl Thread {
    /// Whether it is the thread of a record.
    #[inline]
    fn is_of(&self, record: &Record) -> bool {
        (self.tid ^ record.tid) | (self.pid ^ record.pid) | (self.uid ^ record.uid) == 0
            && is_same(self.name.as_bytes(), record.name.as_bytes())
    }
}

/// A point of the block, and the data length of its last record.
#[derive(Debug)]
struct KnownPoint {
    point: Point,
    length: usize,
}

/// A thread of the block, and the values of its last record.
#[derive(Debug)]
struct KnownThread {
    thread: Thread,
    cpu: u32,
    esp: u64,
}

/// The size of the caches of point and thread numbers.
const RECENT: usize = 256;

/// Encodes the records of one block.
#[derive(Debug)]
pub(super) struct Encoder {
    /// The payload.
    pub(super) bytes: Vec<u8>,
    /// The number of records in it.
    pub(super) count: u32,
    /// The least and the greatest time of a record.
    pub(super) least: u64,
    pub(super) greatest: u64,
    last: u64,
    points: Vec<KnownPoint>,
    threads: Vec<KnownThread>,
    point_numbers: HashMap<Point, u32>,
    thread_numbers: HashMap<Thread, u32>,
    recent_points: Box<[u32; RECENT]>,
    recent_threads: Box<[u32; RECENT]>,
    /// The heads of the present group.
    heads: Vec<KnownHead>,
}

impl Encoder {
    /// An empty block.
    pub(super) fn new() -> Encoder {
        Encoder {
            bytes: Vec::new(),
            count: 0,
            least: 0,
            greatest: 0,
            last: 0,
            points: Vec::new(),
            threads: Vec::new(),
            point_numbers: HashMap::new(),
            thread_numbers: HashMap::new(),
            recent_points: Box::new([0; RECENT]),
            recent_threads: Box::new([0; RECENT]),
            heads: Vec::new(),
        }
    }

    /// Begins another block.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.points.clear();
        self.threads.clear();
        self.point_numbers.clear();
        self.thread_numbers.clear();
        self.heads.fill(KnownHead::NONE);
    }

    /// Appends a record. Returns its thread if it is new in the block.
    #[inline]
    pub(super) fn push(&mut self, program: u32, record: &Record) -> Option<&Thread> {
        if self.push_short(program, record) { None } else { self.push_any(program, record) }
    }

    /// Fast path for most records. False: it does not apply, and nothing was done.
    #[inline]
    fn push_short(&mut self, program: u32, record: &Record) -> bool {
        let (point_number, thread_number) = (self.recent_point(record), self.recent_thread(record));
        let Some(point) = self.points.get_mut(point_number as usize) else { return false };
        let Some(thread) = self.threads.get_mut(thread_number as usize) else { return false };
        let is_known = point.point.is_of(program, record) && thread.thread.is_of(record);
        if !is_known || thread.cpu != record.cpu || point.length != record.data.len() {
            return false;
        }
        let passed = fold(record.time.wrapping_sub(self.last) as i64);
        let step = fold(record.esp.wrapping_sub(thread.esp) as i64);
        let Some(short) = FastRecord::of(passed, point_number, thread_number, step) else { return false };
        thread.esp = record.esp;
        self.passes(record.time);
        short.push(&mut self.bytes, &record.data);
        true
    }

    /// Updates times and count for a record that is appended.
    #[inline]
    fn passes(&mut self, time: u64) {
        self.least = self.least.min(time);
        self.greatest = self.greatest.max(time);
        self.last = time;
        self.count += 1;
    }

    /// Appends any record. Returns its thread if it is new in the block.
    #[inline(never)]
    fn push_any(&mut self, program: u32, record: &Record) -> Option<&Thread> {
        if self.count == 0 {
            self.bytes.extend_from_slice(&record.time.to_le_bytes());
            (self.last, self.least, self.greatest) = (record.time, record.time, record.time);
        }
        let point = Point::of(program, record);
        let (point_number, new_point) = self.point_number(&point, record);
        let (thread_number, new_thread) = self.thread(record);
        let known = &mut self.threads[thread_number as usize];
        let step = record.esp.wrapping_sub(std::mem::replace(&mut known.esp, record.esp)) as i64;
        let moved = std::mem::replace(&mut known.cpu, record.cpu) != record.cpu;
        let before = std::mem::replace(&mut self.points[point_number as usize].length, record.data.len());
        let resized = before != record.data.len();
        let mut shape = 0;
        let mut set = |bit, holds| shape |= if holds { bit } else { 0 };
        set(shape::POINT, new_point);
        set(shape::THREAD, new_thread);
        set(shape::CPU, moved);
        set(shape::LENGTH, resized);
        let passed = fold(record.time.wrapping_sub(self.last) as i64);
        self.passes(record.time);
        let out = &mut self.bytes;
        let mut head = InPlaceNumbers::begin(out);
        head.put(out, shape.into());
        head.put(out, passed);
        match new_point {
            false => head.put(out, point_number.into()),
            true => {
                head.end(out);
                let Point { program, probe, major, minor, eip, cs, ss, word } = point;
                for half in [program, probe, major, minor] {
                    push_number(out, half.into());
                }
                push_number(out, eip);
                for half in [cs, ss, word] {
                    push_number(out, half.into());
                }
                head = InPlaceNumbers::begin(out);
            }
        }
        match new_thread {
            false => head.put(out, thread_number.into()),
            true => {
                head.end(out);
                for half in [record.pid, record.tid, record.uid] {
                    push_number(out, half.into());
                }
                push_bytes(out, record.name.as_bytes());
                head = InPlaceNumbers::begin(out);
            }
        }
        if moved {
            head.put(out, record.cpu.into());
        }
        head.put(out, fold(step));
        if resized {
            head.put(out, record.data.len() as u64);
        }
        head.end(out);
        out.extend_from_slice(&record.data);
        new_thread.then(|| &self.threads[thread_number as usize].thread)
    }

    /// The cached number of a record's point. It may be that of another point.
    #[inline]
    fn recent_point(&self, record: &Record) -> u32 {
        self.recent_points[recent(record)]
    }

    /// The cached number of a record's thread. It may be that of another thread.
    #[inline]
    fn recent_thread(&self, record: &Record) -> u32 {
        self.recent_threads[record.tid as usize % RECENT]
    }

    /// The number of a record's point, and whether the point is new in the block.
    fn point_number(&mut self, point: &Point, record: &Record) -> (u32, bool) {
        let recent = &mut self.recent_points[recent(record)];
        if self.points.get(*recent as usize).is_some_and(|known| known.point == *point) {
            return (*recent, false);
        }
        let next = self.points.len() as u32;
        let number = *self.point_numbers.entry(*point).or_insert(next);
        *recent = number;
        if number == next {
            self.points.push(KnownPoint { point: *point, length: 0 });
        }
        (number, number == next)
    }

    /// The number of a record's thread, and whether the thread is new in the block.
    fn thread(&mut self, record: &Record) -> (u32, bool) {
        let recent = &mut self.recent_threads[record.tid as usize % RECENT];
        if self.threads.get(*recent as usize).is_some_and(|known| known.thread.is_of(record)) {
            return (*recent, false);
        }
        let thread = Thread { pid: record.pid, tid: record.tid, uid: record.uid, name: record.name.clone() };
        let next = self.threads.len() as u32;
        let number = *self.thread_numbers.entry(thread).or_insert_with_key(|thread| {
            self.threads.push(KnownThread { thread: thread.clone(), cpu: 0, esp: 0 });
            next
        });
        *recent = number;
        (number, number == next)
    }
}

/// The index of a record's point in the cache.
#[inline]
fn recent(record: &Record) -> usize {
    let mixed = (record.eip ^ u64::from(record.probe) << 5 ^ u64::from(record.minor)) as usize;
    (mixed ^ mixed >> 8) % RECENT
}

/// The encoded numbers of a record of the fast path: known thread and point, same processor, same
/// data length, and little time after the record before. They take at most 8 bytes in all and are
/// computed without a branch.
#[derive(Clone, Copy)]
struct FastRecord {
    bytes: u64,
    size: usize,
}

impl FastRecord {
    /// Numbers less than this take at most three bytes,
    const THREE: u64 = 1 << 21;
    /// less than this, at most two,
    const TWO: u64 = 1 << 14;
    /// and less than this, one.
    const ONE: u32 = 1 << 7;
    /// Room for the numbers and for two words of data, in bytes.
    const ROOM: usize = 8 + 2 * 8;

    /// None: they take more than 8 bytes.
    #[inline(always)]
    fn of(passed: u64, point: u32, thread: u32, step: u64) -> Option<FastRecord> {
        if passed >= FastRecord::THREE || step >= FastRecord::TWO || (point | thread) >= FastRecord::ONE {
            return None;
        }
        // The lowest byte is the shape, 0. Each further byte has seven bits of a number; its eighth
        // bit is set if another byte of that number follows.
        let groups = |number: u64| number & 0x7f | (number & 0x3f80) << 1 | (number & 0x1f_c000) << 2;
        let more =
            |number: u64| u64::from(number >= 1 << 7) << 7 | u64::from(number >= FastRecord::TWO) << 15;
        let size = |number: u64| 1 + usize::from(number >= 1 << 7) + usize::from(number >= FastRecord::TWO);
        let both = u64::from(point) | u64::from(thread) << 8 | (groups(step) | more(step)) << 16;
        let bytes = ((groups(passed) | more(passed)) | both << (8 * size(passed))) << 8;
        Some(FastRecord { bytes, size: 1 + size(passed) + 2 + size(step) })
    }

    /// Appends the numbers and the data. Data of one or two words, the usual case, goes into the
    /// room behind the numbers.
    #[inline(always)]
    fn push(self, out: &mut Vec<u8>, data: &[u8]) {
        let end = out.len() + self.size;
        out.extend_from_slice(&[0; FastRecord::ROOM]);
        let Some(room) = out.last_chunk_mut::<{ FastRecord::ROOM }>() else { return };
        if let Some(numbers) = room.first_chunk_mut() {
            *numbers = self.bytes.to_le_bytes();
        }
        // Each length has its own arm: a loop over the words becomes a call, which costs more than
        // the copies.
        match (data.as_chunks::<8>(), room[self.size..].as_chunks_mut::<8>().0) {
            (([], []), _) => out.truncate(end),
            (([word], []), [place, ..]) => {
                *place = *word;
                out.truncate(end + data.len());
            }
            (([one, two], []), [first, second, ..]) => {
                (*first, *second) = (*one, *two);
                out.truncate(end + data.len());
            }
            _ => {
                out.truncate(end);
                out.extend_from_slice(data);
            }
        }
    }
}

/// Writes the numbers of a record in place: reserves room for all, then cuts off what is unused.
struct InPlaceNumbers {
    /// The position of the next number.
    at: usize,
}

impl InPlaceNumbers {
    /// The size of a shape and six numbers, at most.
    const SIZE: usize = 1 + 6 * LONGEST;

    #[inline]
    fn begin(out: &mut Vec<u8>) -> InPlaceNumbers {
        let at = out.len();
        out.extend_from_slice(&[0; InPlaceNumbers::SIZE]);
        InPlaceNumbers { at }
    }

    #[inline]
    fn put(&mut self, out: &mut [u8], value: u64) {
        if value < 0x80
            && let Some(byte) = out.get_mut(self.at)
        {
            *byte = value as u8;
            self.at += 1;
        } else if let Some(room) = out.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            self.at += put_number(room, value);
        }
    }

    #[inline]
    fn end(self, out: &mut Vec<u8>) {
        out.truncate(self.at);
    }
}

/// Whether two names are equal. A process name has at most 15 bytes. Names of up to 16 are compared
/// here as integers that may overlap, since a call costs more. (A call to compare zero bytes at a
/// dangling address takes longer than all the rest on some processors.)
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    fn ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
    }
    one.len() == other.len()
        && match one.len() {
            0 => true,
            1..4 => std::iter::zip(one, other).all(|(one, other)| one == other),
            4..8 => ends::<4>(one, other),
            8..=16 => ends::<8>(one, other),
            _ => one == other,
        }
}

#[cfg(test)]
mod tests;
