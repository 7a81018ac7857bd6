//! Stack traces, for debugging a handler. Layout: [`crate::State::trace`].
//!
//! The buffer always has this layout: it is empty, or a header and the traces that the header
//! counts. So the stack trace pointer is always at the end of the header or of a trace.

use core::sync::atomic::Ordering;

use crate::frame::{Frame, Range};
use crate::stack::STACK_WORDS;
use crate::variables::Variables;
use crate::{Exception, ProbepointInfo, Word};

/// The maximum size in bytes of a run's stack traces, whatever `excpt_log` says.
pub const TRACE_LIMIT: usize = 32 * 1024;

/// What follows a prefix: the module's name, the traces, a trace's frames, a frame's elements and
/// variables.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Token {
    Module = 1,
    Traces = 2,
    Frames = 3,
    Elements = 4,
    Locals = 5,
    Globals = 6,
}

/// Bytes of a prefix: the token and a u16.
const PREFIX: usize = 3;

/// Bytes of a header without the module's name: two prefixes, the offset, the program's number and
/// the codes.
const HEADER: usize = 2 * PREFIX + 8 + 3 * 2;

/// Error: the data did not fit.
struct Full;

/// The data that a trace shows.
pub(crate) struct View<'v> {
    /// The probepoint.
    pub(crate) point: ProbepointInfo<'v>,
    /// The last exception.
    pub(crate) last: Exception,
    /// The current exception handler.
    pub(crate) handler: Option<usize>,
    /// The frames of the calls that have not returned, outermost first, without the outermost
    /// level.
    pub(crate) calls: &'v [Frame],
    /// The stack, slot by slot.
    pub(crate) elements: &'v [u64; STACK_WORDS],
    /// The local variables.
    pub(crate) locals: Variables<'v>,
    /// The global variables.
    pub(crate) globals: Variables<'v>,
}

/// The stack trace buffer of a run.
pub(crate) struct Trace {
    bytes: [u8; TRACE_LIMIT],
    /// The stack trace pointer.
    length: usize,
    /// Whether the last trace was cut off. Then no more are written: they would be read as part of
    /// it.
    full: bool,
}

impl Trace {
    /// An empty buffer.
    pub(crate) const fn new() -> Trace {
        Trace { bytes: [0; TRACE_LIMIT], length: 0, full: false }
    }

    /// The bytes written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Bytes written: the stack trace pointer.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Empties the buffer.
    pub(crate) fn clear(&mut self) {
        (self.length, self.full) = (0, false);
    }

    /// Sets the stack trace pointer. Traces that end behind it are dropped, and so is the header if
    /// it does. A pointer beyond the last trace changes nothing.
    pub(crate) fn set_length(&mut self, word: Word, length: u64) {
        if length >= self.length as u64 {
            return;
        }
        let kept = ends(word, self.bytes()).take_while(|&end| end as u64 <= length);
        let (traces, end) = kept.enumerate().last().unwrap_or((0, 0));
        if end != 0
            && let Some([.., low, high]) =
                header_of(self.bytes()).and_then(|header| self.bytes.get_mut(..header))
        {
            [*low, *high] = (traces as u16).to_le_bytes();
        }
        (self.length, self.full) = (end, false);
    }

    /// Writes a trace, after a header if it is the first, into a buffer of `limit` bytes. If it
    /// does not fit it is cut off, and no more traces are written until the stack trace pointer is
    /// set.
    pub(crate) fn write(&mut self, word: Word, limit: usize, view: &View<'_>) {
        if !self.full {
            let free = &mut self.bytes[..limit.min(TRACE_LIMIT)];
            let mut writer = Writer { bytes: free, length: self.length };
            self.full = writer.trace(word, view).is_err();
            self.length = writer.length;
        }
    }
}

/// A trace being written.
struct Writer<'b> {
    /// The buffer, up to its limit.
    bytes: &'b mut [u8],
    length: usize,
}

impl Writer<'_> {
    /// Writes a trace.
    fn trace(&mut self, word: Word, view: &View<'_>) -> Result<(), Full> {
        if self.length == 0 {
            self.header(&view.point)?;
        }
        let handler = view.handler.map_or(u64::MAX, |offset| offset as u64);
        let Exception { code, parm1, parm2 } = view.last;
        // These and the number of frames are written together or not at all: with them a trace has
        // begun.
        if self.free_bytes() < 4 * word.bytes() + PREFIX {
            return Err(Full);
        }
        for value in [code, handler, parm1, parm2] {
            self.word(word, value)?;
        }
        self.prefix(Token::Frames, view.calls.len())?;
        self.count_trace();
        view.calls.iter().rev().try_for_each(|frame| self.frame(word, frame, view))
    }

    /// Writes the header, completely or not at all.
    fn header(&mut self, point: &ProbepointInfo<'_>) -> Result<(), Full> {
        let name = name(point);
        if self.free_bytes() < HEADER + name.len() {
            return Err(Full);
        }
        self.prefix(Token::Module, name.len())?;
        self.put(name)?;
        self.put(&point.offset.to_le_bytes())?;
        for number in [point.id, point.major, point.minor] {
            self.put(&(number as u16).to_le_bytes())?;
        }
        self.prefix(Token::Traces, 0)
    }

    /// Increments the count of traces in the header.
    fn count_trace(&mut self) {
        if let Some([.., low, high]) = header_of(self.bytes).and_then(|header| self.bytes.get_mut(..header)) {
            let count = u16::from_le_bytes([*low, *high]).saturating_add(1);
            [*low, *high] = count.to_le_bytes();
        }
    }

    fn frame(&mut self, word: Word, frame: &Frame, view: &View<'_>) -> Result<(), Full> {
        self.word(word, frame.callee as u64)?;
        self.word(word, frame.back as u64)?;
        let element = |index: u64| view.elements[index as usize % STACK_WORDS];
        self.words(word, Token::Elements, frame.elements, u64::MAX, element)?;
        for (token, variables, range) in
            [(Token::Locals, view.locals, frame.locals), (Token::Globals, view.globals, frame.globals)]
        {
            let there = (variables.list.len() as u64).saturating_sub(range.first);
            let value = |index: u64| variables.list[index as usize].load(Ordering::Relaxed);
            self.words(word, token, range, there, value)?;
        }
        Ok(())
    }

    /// Writes a prefix and the words of a range: those that exist (`there` from the first on) and
    /// fit.
    fn words(
        &mut self,
        word: Word,
        token: Token,
        range: Range,
        there: u64,
        value: impl Fn(u64) -> u64,
    ) -> Result<(), Full> {
        let room = self.free_bytes().checked_sub(PREFIX).ok_or(Full)?;
        let wanted = range.count.min(there);
        let fits = wanted.min((room / word.bytes()) as u64);
        self.prefix(token, fits as usize)?;
        for place in 0..fits {
            self.word(word, value(range.first.wrapping_add(place)))?;
        }
        if fits == wanted { Ok(()) } else { Err(Full) }
    }

    /// Writes a prefix. Counts fit a u16, since the buffer is smaller.
    fn prefix(&mut self, token: Token, count: usize) -> Result<(), Full> {
        let [low, high] = (count as u16).to_le_bytes();
        self.put(&[token as u8, low, high])
    }

    /// Writes a word.
    fn word(&mut self, word: Word, value: u64) -> Result<(), Full> {
        self.put(&value.to_le_bytes()[..word.bytes()])
    }

    /// Free bytes.
    fn free_bytes(&self) -> usize {
        self.bytes.len() - self.length
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let room = &mut self.bytes[self.length..];
        room.get_mut(..bytes.len()).ok_or(Full)?.copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }
}

/// The module's name as the header has it: at most as long as the buffer.
fn name<'a>(point: &ProbepointInfo<'a>) -> &'a [u8] {
    &point.module[..point.module.len().min(TRACE_LIMIT)]
}

/// The count in the prefix at `offset`.
fn number(bytes: &[u8], offset: usize) -> Option<usize> {
    match bytes.get(offset..)? {
        [_, low, high, ..] => Some(u16::from_le_bytes([*low, *high]).into()),
        _ => None,
    }
}

/// The end of the header at the start of `bytes`, if there is one.
fn header_of(bytes: &[u8]) -> Option<usize> {
    let end = HEADER + number(bytes, 0)?;
    (end <= bytes.len()).then_some(end)
}

/// The ends of the header and of each complete trace in the buffer.
fn ends(word: Word, bytes: &[u8]) -> impl Iterator<Item = usize> {
    core::iter::successors(header_of(bytes), move |&end| trace_end(word, bytes, end))
}

/// The end of the trace that begins at `start`, if it is complete.
fn trace_end(word: Word, bytes: &[u8], start: usize) -> Option<usize> {
    let frames = start + 4 * word.bytes();
    let mut end = frames + PREFIX;
    for _ in 0..number(bytes, frames)? {
        end += 2 * word.bytes();
        for _ in [Token::Elements, Token::Locals, Token::Globals] {
            end += PREFIX + number(bytes, end)? * word.bytes();
        }
    }
    (end <= bytes.len()).then_some(end)
}
