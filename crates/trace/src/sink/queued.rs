//! A sink behind a queue: a thread passes on records and messages to it, in the same order.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::mem;

use super::{Sink, View};
use crate::Record;
use crate::queue::{Block, Limits, Progress, Queue, Writer};
use crate::store::{Fact, Loss};

/// The most records and messages of a block.
const MAX_BLOCK_ITEMS: usize = 256;
/// The size in bytes from which on a block is full.
const FULL: usize = 1 << 17;
/// The most bytes of a record's memory that are kept for reuse.
const KEPT: usize = 1 << 10;
/// The approximate memory of a message, in bytes.
const MESSAGE: usize = 128;

/// A sink whose records wait in a queue.
#[derive(Debug)]
pub struct Queued {
    queue: Queue<Messages>,
    /// By program: how many records were refused here that the sink was not told of yet.
    missing: BTreeMap<u32, u64>,
}

impl Queued {
    /// Puts a queue in front of the sink from `make`; the [`Progress`] tells that sink when it is
    /// given up.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn before<S: Sink + Send + 'static>(
        limits: Limits,
        make: impl FnOnce(Progress) -> io::Result<S>,
    ) -> io::Result<Queued> {
        let progress = Progress::default();
        let sink = make(progress.clone())?;
        let thread = SinkThread { sink: Box::new(sink), progress: progress.clone() };
        Ok(Queued { queue: Queue::new(thread, limits, progress), missing: BTreeMap::new() })
    }

    fn message(&mut self, message: Message) -> io::Result<()> {
        self.queue.make_room_for_message(self.queue.block.is_full())?;
        self.queue.block.message(message);
        Ok(())
    }

    /// Tells the sink how many records were refused here.
    fn tell_missing(&mut self) {
        for (program, dropped) in mem::take(&mut self.missing) {
            let loss = Loss { program, dropped, ..Loss::default() };
            // Ignored: a queue that takes no messages any more takes no records either.
            let _ = self.message(Message::Loss(loss, 0));
        }
    }
}

impl Sink for Queued {
    fn show(&mut self, program: u32, view: &View) {
        let _ = self.message(Message::Show(program, view.clone()));
    }

    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.message(Message::Fact(fact.clone()))
    }

    #[inline]
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.queue.block.is_full() || self.queue.is_closed() {
            self.queue.make_room().inspect_err(|_| *self.missing.entry(program).or_default() += 1)?;
        }
        if !self.missing.is_empty() {
            self.tell_missing();
        }
        self.queue.block.record(program, record);
        self.queue.offer()
    }

    fn loss(&mut self, loss: &Loss, refused: u64) -> io::Result<()> {
        self.message(Message::Loss(loss.clone(), refused))
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.tell_missing();
        self.message(Message::Forget(program))
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
        self.queue.notes().iter().for_each(|note| tell(note));
    }

    fn finish(&mut self) -> io::Result<()> {
        self.tell_missing();
        self.queue.finish()
    }

    fn lost(&self) -> u64 {
        self.queue.lost()
    }
}

/// A block: records and messages, in order.
#[derive(Debug, Default)]
struct Messages {
    /// The first `count` are the records of this block, the others are memory for reuse.
    records: Vec<(u32, Record)>,
    count: usize,
    /// The other messages, each with the number of records that precede it.
    others: Vec<(usize, Message)>,
    bytes: usize,
}

#[derive(Debug)]
enum Message {
    Fact(Fact),
    Show(u32, View),
    Loss(Loss, u64),
    Forget(u32),
}

impl Messages {
    fn is_full(&self) -> bool {
        self.count + self.others.len() >= MAX_BLOCK_ITEMS || self.bytes >= FULL
    }

    fn record(&mut self, program: u32, record: &Record) {
        if self.count == self.records.len() {
            self.records.push((0, Record::default()));
        }
        let (number, own) = &mut self.records[self.count];
        *number = program;
        let (mut name, mut data) = (mem::take(&mut own.name), mem::take(&mut own.data));
        name.clone_from(&record.name);
        data.clone_from(&record.data);
        *own = Record { name, data, ..*record };
        self.count += 1;
        self.bytes += size_of::<Record>() + record.data.len() + record.name.len();
    }

    fn message(&mut self, message: Message) {
        self.others.push((self.count, message));
        self.bytes += MESSAGE;
    }
}

impl Block for Messages {
    fn records(&self) -> u64 {
        self.count as u64
    }

    fn messages(&self) -> u64 {
        self.others.len() as u64
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn clear(&mut self) {
        for (_, record) in &mut self.records[..self.count] {
            if record.data.capacity() + record.name.capacity() > KEPT {
                *record = Record::default();
            }
        }
        (self.count, self.bytes) = (0, 0);
        self.others.clear();
    }
}

/// The sink, as owned by the thread.
struct SinkThread {
    sink: Box<dyn Sink + Send>,
    progress: Progress,
}

impl SinkThread {
    fn give(&mut self, message: &Message) -> io::Result<()> {
        match message {
            Message::Fact(fact) => self.sink.fact(fact),
            Message::Show(program, view) => {
                self.sink.show(*program, view);
                Ok(())
            }
            Message::Loss(loss, refused) => self.sink.loss(loss, *refused),
            Message::Forget(program) => self.sink.forget(*program),
        }
    }
}

impl Writer<Messages> for SinkThread {
    /// Returns only the first error of the block; the rest of the block goes to the sink all the
    /// same.
    fn write(&mut self, block: &mut Messages) -> io::Result<()> {
        let keeps = self.sink.kept().is_some();
        let mut others = block.others.iter().peekable();
        let mut result = Ok(());
        for (number, (program, record)) in block.records[..block.count].iter().enumerate() {
            while let Some((_, message)) = others.next_if(|(before, _)| *before <= number) {
                result = result.and(self.give(message));
            }
            result = result.and(self.sink.record(*program, record));
            match keeps {
                true => self.progress.step(),
                false => self.progress.record_done(),
            }
        }
        others.fold(result, |result, (_, message)| result.and(self.give(message)))
    }

    fn has_idle(&self) -> bool {
        true
    }

    fn idle(&mut self, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
        let idle = self.sink.idle();
        self.sink.refresh(tell);
        idle
    }

    fn waits(&self) -> bool {
        self.sink.waits()
    }

    fn kept(&self) -> u64 {
        self.sink.kept().unwrap_or(0)
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.finish()
    }

    fn lost(&self) -> u64 {
        self.sink.lost()
    }
}
