//! Decodes the records of a block (for the layout see [`super::encode`]).

use super::bytes::{Cursor, DecodeError};
use super::encode::{Point, Thread, shape};
use super::filter::Filter;
use crate::Record;

/// The possible sizes of a word; 0 in records without one.
const WORDS: [u32; 3] = [0, 4, 8];

/// A point of the block, and the data length of its last record.
#[derive(Clone, Copy, Debug)]
struct KnownPoint {
    point: Point,
    length: u64,
    wanted: bool,
}

/// A thread of the block, and the values of its last record.
#[derive(Clone, Debug)]
struct KnownThread {
    thread: Thread,
    cpu: u32,
    esp: u64,
    wanted: bool,
}

/// The read position in the records of one block.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    at: usize,
    last: u64,
    /// How many records were read.
    pub(super) count: u32,
    points: Vec<KnownPoint>,
    threads: Vec<KnownThread>,
    /// The thread whose ids and name the caller's record holds.
    named: Option<usize>,
}

/// The result of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A record of this program was read.
    Record(u32),
    /// The record is not wanted and was skipped.
    Passed,
}

impl Decoder {
    pub(super) fn begin(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let mut cursor = Cursor::new(payload, 0);
        let base = cursor.take(8, "the base time of a block")?;
        self.last = base.iter().rev().fold(0, |time, &byte| time << 8 | u64::from(byte));
        self.at = cursor.at();
        self.count = 0;
        self.points.clear();
        self.threads.clear();
        self.named = None;
        Ok(())
    }

    /// Whether the whole payload was read.
    pub(super) fn is_at_end(&self, payload: &[u8]) -> bool {
        self.at >= payload.len()
    }

    /// Reads the next record into `record`, unless the filter rejects it.
    pub(super) fn next(
        &mut self,
        payload: &[u8],
        filter: &Filter,
        record: &mut Record,
    ) -> Result<Step, DecodeError> {
        let mut cursor = Cursor::new(payload, self.at);
        let shape = cursor.byte("a record")?;
        if shape & !shape::ALL != 0 {
            return Err(DecodeError { at: self.at, what: format!("a record of unknown shape {shape:#x}") });
        }
        let time = self.last.wrapping_add(cursor.difference("a record's time")? as u64);
        let point = match shape & shape::POINT {
            0 => index(&mut cursor, self.points.len(), "a record's point")?,
            _ => {
                let point = point(&mut cursor)?;
                let wanted = filter.wants_point(&point);
                self.points.push(KnownPoint { point, length: 0, wanted });
                self.points.len() - 1
            }
        };
        let thread = match shape & shape::THREAD {
            0 => index(&mut cursor, self.threads.len(), "a record's thread")?,
            _ => {
                let thread = thread(&mut cursor)?;
                let wanted = filter.wants_thread(thread.pid, thread.tid);
                self.threads.push(KnownThread { thread, cpu: 0, esp: 0, wanted });
                self.threads.len() - 1
            }
        };
        let (known_point, known_thread) = (&mut self.points[point], &mut self.threads[thread]);
        if shape & shape::CPU != 0 {
            known_thread.cpu = cursor.half("a record's cpu")?;
        }
        known_thread.esp = known_thread.esp.wrapping_add(cursor.difference("a record's esp")? as u64);
        if shape & shape::LENGTH != 0 {
            known_point.length = cursor.number("a record's length")?;
        }
        let data = cursor.take(known_point.length, "a record's data")?;
        self.last = time;
        self.at = cursor.at();
        self.count += 1;
        if !(known_point.wanted && known_thread.wanted && filter.wants_time(time)) {
            return Ok(Step::Passed);
        }
        let Point { program, probe, major, minor, eip, cs, ss, word } = known_point.point;
        (record.major, record.minor, record.probe) = (major, minor, probe);
        (record.eip, record.cs, record.ss, record.word) = (eip, cs, ss, word as usize);
        (record.time, record.cpu, record.esp) = (time, known_thread.cpu, known_thread.esp);
        if self.named != Some(thread) {
            let Thread { pid, tid, uid, name } = &known_thread.thread;
            (record.pid, record.tid, record.uid) = (*pid, *tid, *uid);
            record.name.clone_from(name);
            self.named = Some(thread);
        }
        record.data.clear();
        record.data.extend_from_slice(data);
        Ok(Step::Record(program))
    }
}

/// Reads the number of a point or thread that the block already has.
#[inline]
fn index(cursor: &mut Cursor<'_>, count: usize, what: &str) -> Result<usize, DecodeError> {
    let start = *cursor;
    let number = cursor.number(what)?;
    match usize::try_from(number) {
        Ok(number) if number < count => Ok(number),
        _ => Err(start.wrong(format!("{what}: number {number}, but the block has {count}"))),
    }
}

fn point(cursor: &mut Cursor<'_>) -> Result<Point, DecodeError> {
    let mut point = Point {
        program: cursor.half("a point's program")?,
        probe: cursor.half("a point's probe")?,
        major: cursor.half("a point's major code")?,
        minor: cursor.half("a point's minor code")?,
        eip: cursor.number("a point's eip")?,
        cs: cursor.half("a point's cs")?,
        ss: cursor.half("a point's ss")?,
        word: 0,
    };
    let start = *cursor;
    point.word = cursor.half("a point's word")?;
    match WORDS.contains(&point.word) {
        true => Ok(point),
        false => Err(start.wrong(format!("a word of {} bytes, not 4 or 8", point.word))),
    }
}

fn thread(cursor: &mut Cursor<'_>) -> Result<Thread, DecodeError> {
    Ok(Thread {
        pid: cursor.half("a thread's pid")?,
        tid: cursor.half("a thread's tid")?,
        uid: cursor.half("a thread's uid")?,
        name: cursor.text("a thread's name")?.to_owned(),
    })
}
