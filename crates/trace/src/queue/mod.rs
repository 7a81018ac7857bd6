//! Blocks of records on their way to a thread that writes them.
//!
//! ```text
//! tracer: record -> block -> [ full blocks ] -> thread: Writer -> file, device, daemon
//!           empty blocks <-----------------------+
//! ```
//!
//! What is written to may be slow: a busy disk, a pipe that is read slowly or not at all, a serial line. The tracer must not wait
//! for it, since programs wait for the tracer. So a target that may be slow is a [`Writer`] behind a [`Queue`]. The two share whole
//! blocks, not single records, and use the memory of a block again. [`Limits`] says how much may wait, what happens when the queue is
//! full, and how long a writer may take nothing before it is given up.
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

/// What is handed to the thread at once.
pub trait Block: Default + Send + 'static {
    /// Records in it.
    fn records(&self) -> u64;

    /// Messages in it that are no records.
    fn messages(&self) -> u64 {
        0
    }

    /// The memory that it takes, about.
    fn bytes(&self) -> usize;

    /// Makes it empty. It keeps its memory.
    fn clear(&mut self);
}

/// Writes blocks, in a thread of its own once there is a record.
pub trait Writer<B>: Send {
    /// Writes a block, or keeps what is in it for a while.
    ///
    /// # Errors
    /// Something could not be written.
    fn write(&mut self, block: &mut B) -> io::Result<()>;

    /// Whether [`Writer::idle`] does anything.
    fn has_idle(&self) -> bool {
        false
    }

    /// Called several times a second while there is no block: writes what it has kept long enough. What else is to be told goes to `tell`.
    ///
    /// # Errors
    /// Something could not be written.
    fn idle(&mut self, _tell: &mut dyn FnMut(&str)) -> io::Result<()> {
        Ok(())
    }

    /// Whether something is kept.
    fn waits(&self) -> bool {
        false
    }

    /// Records that are kept.
    fn kept(&self) -> u64 {
        0
    }

    /// Whether it can take no records until it has written those that it keeps.
    fn is_full(&self) -> bool {
        false
    }

    /// Writes all that is kept: nothing follows.
    ///
    /// # Errors
    /// Something could not be written.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Records that it was given and could not write.
    fn lost(&self) -> u64;
}

/// A bounded queue of blocks before a writer. The thread begins with the first block that has a record: until then the writer is called
/// directly, so that a process may fork.
pub struct Queue<B: Block> {
    /// The block that is being filled.
    pub block: B,
    /// The writer, until its thread has it.
    writer: Option<Box<dyn Writer<B>>>,
    /// Records that the block may have, because of those that wait.
    room: u64,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared<B>>,
    /// What holds when the queue is full, and how long it is waited for.
    pub(crate) limits: Limits,
}

impl<B: Block> fmt::Debug for Queue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<B: Block> Queue<B> {
    /// A queue before a writer, which is told by `progress` when it is given up.
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

    /// Whether there is no place for a record in the block: the queue would have too many, or the writer takes none just now. To be asked before
    /// each record: if so, [`Queue::make_room`] makes room, or says why there is none.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.block.records() >= self.room || self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// Makes room for a record: hands the block over, which is full, and waits if the queue is full and has to be waited for.
    ///
    /// # Errors
    /// The queue is full, or the writer takes no record: the record is counted as lost.
    #[cold]
    pub fn make_room(&mut self) -> io::Result<()> {
        self.shared.admit(&self.block, &self.limits)?;
        let handed = self.hand_over();
        // What has failed meanwhile takes no more.
        handed.and_then(|()| self.shared.takes()).inspect_err(|_| self.shared.state().lost += 1)
    }

    /// Checks that there is room for one more message that is no record.
    ///
    /// # Errors
    /// Nobody takes it any more.
    pub fn make_room_for_message(&mut self, is_full: bool) -> io::Result<()> {
        self.shared.admit_message(self.block.messages(), &self.limits)?;
        if is_full { self.hand_over() } else { Ok(()) }
    }

    /// Hands the block over, and waits if the queue is full and has to be waited for.
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
                // The writer is gone.
                Err(error) => self.shared.never_begins(&error),
            }
        }
        if self.limits.waits && (records > 0 || self.limits.messages.is_none()) {
            self.shared.wait_for_room(&self.block, &self.limits);
        }
        self.room = self.shared.push(&mut self.block, &self.limits)?;
        Ok(())
    }

    /// Hands a block of a device over that is not full, if the thread has nothing to do: its records are to come out at once.
    ///
    /// # Errors
    /// The writer has failed: the records of the block are lost.
    #[inline]
    pub fn offer(&mut self) -> io::Result<()> {
        if self.limits.is_device && !self.is_busy() { self.hand_over() } else { Ok(()) }
    }

    /// Whether records can be taken without a loss and without a wait: an eighth of what the queue holds.
    pub fn is_ready(&self) -> bool {
        !self.limits.waits || self.shared.is_ready(&self.block, &self.limits)
    }

    /// Whether the thread has enough to do.
    pub fn is_busy(&self) -> bool {
        self.shared.is_busy()
    }

    /// Whether something is to be handed over before long.
    pub fn waits(&self) -> bool {
        self.block.records() > 0
            || self.block.bytes() > 0
            || self.writer.as_ref().is_some_and(|writer| writer.waits())
    }

    /// Hands over what there is, unless the thread has enough to do and nobody waits for what it writes.
    ///
    /// # Errors
    /// What went wrong since this was last called.
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

    /// What went wrong, until it is told.
    fn failure(&self) -> io::Result<()> {
        self.shared.state().failure.take().map_or(Ok(()), Err)
    }

    /// What there is to tell, since this was last called.
    pub fn notes(&self) -> Vec<String> {
        self.shared.state().notes.take()
    }

    /// Whether a device whose queue is full is waited for, from now on. A file always is.
    pub fn set_lossless(&mut self, lossless: bool) {
        self.limits.waits = lossless || !self.limits.is_device;
    }

    /// Waits until all is written, as long as the limits say. Nothing is taken any more.
    ///
    /// # Errors
    /// Something could not be written, which was not told yet; or the writer was given up.
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

    /// Records that were put in, or were to be, and are not written. After [`Queue::finish`] all others are.
    pub fn lost(&self) -> u64 {
        let state = self.shared.state();
        state.lost + self.writer.as_ref().map_or(state.lost_by_writer, |writer| writer.lost())
    }
}

impl<B: Block> Drop for Queue<B> {
    fn drop(&mut self) {
        // A file that was begun in vain is not completed: its maker may be a process that has forked, and that has it, too.
        if self.thread.is_some() || self.limits.is_device {
            let _ = self.finish();
        }
    }
}
