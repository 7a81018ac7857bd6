//! Text as a target: files and standard error.
//!
//! In: a record and the number of its program. Out: its text, as the view of the program says, in a
//! block for the queue; of the terminal, written at once.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, IsTerminal};

use super::whole_records::write_records;
use super::{NonblockingFile, ProgramTexts, Sink, View};
use crate::Record;
use crate::queue::{Block, Limits, Progress, Queue, Writer};

/// The size of a block in bytes.
const FULL: usize = 1 << 18;

/// A text file. Records are formatted here, and a thread writes them.
#[derive(Debug)]
pub struct TextFile {
    queue: Queue<Text>,
    texts: ProgramTexts,
}

impl TextFile {
    /// Makes a target of a file whose open file description no other process uses.
    pub fn new(file: File, limits: Limits) -> TextFile {
        let progress = Progress::default();
        let thread = TextWriter { out: NonblockingFile::new(file, progress.clone()), lost: 0 };
        let limits = Limits { fails_once: true, ..limits };
        TextFile { queue: Queue::new(thread, limits, progress), texts: ProgramTexts::with_lines(false) }
    }
}

impl Sink for TextFile {
    fn show(&mut self, program: u32, view: &View) {
        self.texts.show(program, view);
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.texts.forget(program);
        // Does not wait: there may be other programs, and `finish` waits for all.
        self.queue.idle()
    }

    #[inline]
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.queue.block.bytes.len() >= FULL || self.queue.is_closed() {
            self.queue.make_room()?;
        }
        let Text { bytes, ends } = &mut self.queue.block;
        self.texts.of(program).append(record, bytes);
        ends.push(bytes.len() as u32);
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        self.queue.is_ready()
    }

    fn set_lossless(&mut self, lossless: bool) {
        self.queue.set_lossless(lossless);
    }

    fn waits(&self) -> bool {
        self.queue.waits()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.queue.idle()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.refresh(tell);
    }

    fn finish(&mut self) -> io::Result<()> {
        self.queue.finish()
    }

    fn lost(&self) -> u64 {
        self.queue.lost()
    }
}

/// A block: the text of records, one after another.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    /// The end of each record in `bytes`.
    ends: Vec<u32>,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: Vec::with_capacity(FULL + FULL / 4), ends: Vec::with_capacity(FULL / 64) }
    }
}

impl Block for Text {
    fn records(&self) -> u64 {
        self.ends.len() as u64
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

struct TextWriter {
    out: NonblockingFile,
    lost: u64,
}

impl Writer<Text> for TextWriter {
    fn write(&mut self, block: &mut Text) -> io::Result<()> {
        let (whole, _, result) = write_records(&mut self.out, &block.bytes, &block.ends, |&end| end as usize);
        self.lost += (block.ends.len() - whole) as u64;
        result
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Standard error. Each record is written at once.
#[derive(Debug)]
pub struct Terminal {
    texts: ProgramTexts,
    lost: u64,
}

impl Default for Terminal {
    fn default() -> Terminal {
        let colour = crate::line::has_colours() && io::stderr().is_terminal();
        Terminal { texts: ProgramTexts::with_lines(colour), lost: 0 }
    }
}

impl Sink for Terminal {
    fn show(&mut self, program: u32, view: &View) {
        self.texts.show(program, view);
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.texts.of(program).write(record, &mut io::stderr()).inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.refresh(tell);
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
