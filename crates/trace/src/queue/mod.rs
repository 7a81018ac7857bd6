//! A bounded queue that hands blocks of records to a thread that writes them.
//!
//! ```text
//! tracer: record -> block -> [ full blocks ] -> thread: Writer -> file, device, daemon
//!           empty blocks <-----------------------+
//! ```
//!
//! The output may be slow: a busy disk, a pipe whose reader is slow or stopped, a serial line. The
//! tracer must not wait for it, because traced programs wait for the tracer. So a target that may
//! be slow is a [`Writer`] behind a [`Queue`]. They exchange whole blocks, not single records, and
//! reuse the memory of the blocks. [`Limits`] says how much may wait, what happens when the queue
//! is full, and how long a writer may make no progress before it is given up.
//!
//! Every record that was put into a block is either written or counted as lost ([`Queue::lost`]).

mod limits;
mod progress;
mod shared;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

pub use limits::{Limits, Patience};
pub use progress::Progress;
pub(crate) use progress::stuck;
use shared::Shared;

/// A batch of records and messages for the thread.
pub trait Block: Default + Send + 'static {
    /// The number of records in it.
    fn records(&self) -> u64;

    /// The number of messages in it that are not records.
    fn messages(&self) -> u64 {
        0
    }

    /// The approximate memory in bytes that it takes.
    fn bytes(&self) -> usize;

    /// Empties it but keeps its memory.
    fn clear(&mut self);
}

/// Writes blocks. It runs in its own thread from the first record on.
pub trait Writer<B>: Send {
    /// Writes a block, or keeps its content to write later.
    ///
    /// # Errors
    /// Something could not be written.
    fn write(&mut self, block: &mut B) -> io::Result<()>;

    /// Whether [`Writer::idle`] does anything.
    fn has_idle(&self) -> bool {
        false
    }

    /// Called several times a second while no block is waiting: writes what has been kept long
    /// enough. Messages for the user go to `tell`.
    ///
    /// # Errors
    /// Something could not be written.
    fn idle(&mut self, _tell: &mut dyn FnMut(&str)) -> io::Result<()> {
        Ok(())
    }

    /// Whether it keeps anything that is not written yet.
    fn waits(&self) -> bool {
        false
    }

    /// The number of records that it keeps.
    fn kept(&self) -> u64 {
        0
    }

    /// Whether it takes no records until it has written those that it keeps.
    fn is_full(&self) -> bool {
        false
    }

    /// Writes all that it keeps. No call follows.
    ///
    /// # Errors
    /// Something could not be written.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The number of records that it got and could not write.
    fn lost(&self) -> u64;
}

/// A bounded queue of blocks in front of a writer. The thread begins with the first block that has
/// a record; until then the queue calls the writer directly, so that the process may fork.
pub struct Queue<B: Block> {
    /// The block that the caller fills.
    pub block: B,
    /// The writer, until it is moved to its thread.
    writer: Option<Box<dyn Writer<B>>>,
    /// How many records the block may have, given how many are waiting.
    room: u64,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared<B>>,
    /// What happens when the queue is full, and how long the caller waits.
    pub(crate) limits: Limits,
}

impl<B: Block> fmt::Debug for Queue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<B: Block> Queue<B> {
    /// Puts a queue in front of a writer. `progress` tells the writer when it is given up.
    pub fn new(writer: impl Writer<B> + 'static, limits: Limits, progress: Progress) -> Queue<B> {
        Queue {
            block: B::default(),
            writer: Some(Box::new(writer)),
            room: limits.records,
            thread: None,
            shared: Arc::new(Shared::new(progress)),
            limits,
        }
    }

    /// Whether the block has no room for a record: the queue would exceed its limit, or the writer
    /// takes none at present. Check this before each record; if true, call [`Queue::make_room`].
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.block.records() >= self.room || self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// Makes room for a record: hands over the full block, and waits for room in the queue if the
    /// limits say so.
    ///
    /// # Errors
    /// The queue is full, or the writer takes no records. The record is counted as lost.
    #[cold]
    pub fn make_room(&mut self) -> io::Result<()> {
        self.shared.admit(&self.block, &self.limits)?;
        let handed = self.hand_over();
        // A writer that has failed in the meantime takes no more.
        handed.and_then(|()| self.shared.takes()).inspect_err(|_| self.shared.state().lost += 1)
    }

    /// Makes room for one more message that is not a record. `is_full` says whether the block is
    /// full.
    ///
    /// # Errors
    /// The writer takes nothing any more.
    pub fn make_room_for_message(&mut self, is_full: bool) -> io::Result<()> {
        self.shared.admit_message(self.block.messages(), &self.limits)?;
        if is_full { self.hand_over() } else { Ok(()) }
    }

    /// Hands over the block, and waits for room in the queue if the limits say so.
    ///
    /// # Errors
    /// The writer has failed: the records of the block are lost.
    pub fn hand_over(&mut self) -> io::Result<()> {
        let records = self.block.records();
        if records == 0 && self.block.bytes() == 0 {
            return Ok(());
        }
        if let Some(writer) = &mut self.writer
            && records == 0
        {
            let written = writer.write(&mut self.block);
            self.block.clear();
            return written;
        }
        if let Some(writer) = self.writer.take() {
            let shared = Arc::clone(&self.shared);
            let fails_once = self.limits.fails_once;
            let thread = Builder::new().name("records".to_owned());
            match thread.spawn(move || shared.run(writer, fails_once)) {
                Ok(thread) => self.thread = Some(thread),
                // The failed spawn dropped the writer.
                Err(error) => self.shared.never_begins(&error),
            }
        }
        if self.limits.waits && (records > 0 || self.limits.messages.is_none()) {
            self.shared.wait_for_room(&self.block, &self.limits);
        }
        self.room = self.shared.push(&mut self.block, &self.limits)?;
        Ok(())
    }

    /// For a device: hands over the block although it is not full if the thread is idle, so that
    /// records come out at once.
    ///
    /// # Errors
    /// The writer has failed: the records of the block are lost.
    #[inline]
    pub fn offer(&mut self) -> io::Result<()> {
        if self.limits.is_device && !self.is_busy() { self.hand_over() } else { Ok(()) }
    }

    /// Whether the caller can add records without loss and without waiting: an eighth of the queue
    /// is free.
    pub fn is_ready(&self) -> bool {
        !self.limits.waits || self.shared.is_ready(&self.block, &self.limits)
    }

    /// Whether the thread is writing or has blocks waiting.
    pub fn is_busy(&self) -> bool {
        self.shared.is_busy()
    }

    /// Whether the queue has anything to hand over before long.
    pub fn waits(&self) -> bool {
        self.block.records() > 0
            || self.block.bytes() > 0
            || self.writer.as_ref().is_some_and(|writer| writer.waits())
    }

    /// Hands over the block if the thread is idle; for a device, also if the queue has room.
    ///
    /// # Errors
    /// What went wrong since the last call.
    pub fn idle(&mut self) -> io::Result<()> {
        let is_wanted =
            !self.is_busy() || (self.limits.is_device && self.shared.is_ready(&self.block, &self.limits));
        let handed = if is_wanted { self.hand_over() } else { Ok(()) };
        if let Some(writer) = &mut self.writer {
            let mut notes = Vec::new();
            let idle = writer.idle(&mut |note| notes.push(note.to_owned()));
            notes.iter().for_each(|note| self.shared.state().notes.push(note));
            return handed.and(idle);
        }
        self.failure().and(handed)
    }

    /// The failure that was not reported yet.
    fn failure(&self) -> io::Result<()> {
        self.shared.state().failure.take().map_or(Ok(()), Err)
    }

    /// The messages for the user since the last call.
    pub fn notes(&self) -> Vec<String> {
        self.shared.state().notes.take()
    }

    /// Sets whether nothing may be lost: then the caller waits when the queue of a device is full,
    /// as it always does for a file; and a file that is stuck is given up, as a device always is.
    pub fn set_lossless(&mut self, lossless: bool) {
        self.limits.waits = lossless || !self.limits.is_device;
        self.limits.gives_up = lossless || self.limits.is_device;
    }

    /// Ends the queue: waits until all is written, within the limits. Nothing is taken afterwards.
    ///
    /// # Errors
    /// Something could not be written and was not reported yet, or the writer was given up.
    pub fn finish(&mut self) -> io::Result<()> {
        let handed = self.hand_over();
        if let Some(mut writer) = self.writer.take() {
            let finished = writer.finish();
            self.shared.never_began(writer.lost());
            return handed.and(finished);
        }
        let ended = self.shared.end(&self.limits);
        if let (true, Some(thread)) = (ended, self.thread.take()) {
            let _ = thread.join();
        }
        self.failure().and(handed)
    }

    /// The number of records that were offered and not written. After [`Queue::finish`], all others
    /// are written.
    pub fn lost(&self) -> u64 {
        let state = self.shared.state();
        state.lost + self.writer.as_ref().map_or(state.lost_by_writer, |writer| writer.lost())
    }
}

impl<B: Block> Drop for Queue<B> {
    fn drop(&mut self) {
        // Without a record, a file is not finished: the process may have forked, and both copies
        // have the file.
        if self.thread.is_some() || self.limits.is_device {
            let _ = self.finish();
        }
    }
}
