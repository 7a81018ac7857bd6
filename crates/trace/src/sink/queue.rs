//! Records that wait for a sink in a thread of its own.
//!
//! ```text
//! tracer: record -> [ Waiting ] -> thread: sink -> device
//!                   bounded         a panic, or a device that is stuck, ends the sink: told once, all that waits counted as lost
//! ```

mod waiting;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Closing, Sink, View};
use crate::Record;
use crate::store::Fact;
use waiting::{Message, Waiting, give};

/// How long a sink that may lose nothing takes nothing, before it has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a thread may take to end: longer than any sink that gives up by itself.
const END: Duration = Duration::from_secs(15);

/// A sink behind a queue. Its thread begins with the first record: a process that forks before is none the wiser.
pub struct Queue {
    /// The sink, until its thread has it.
    inner: Option<Box<dyn Sink + Send>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<Waiting>,
    /// Whether what does not fit is waited for.
    lossless: bool,
    /// How long.
    patience: Duration,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("lossless", &self.lossless).finish_non_exhaustive()
    }
}

impl Queue {
    /// Puts a queue before a sink, which is told by what it is given when it has to end. With `lossless`, what does not fit is waited
    /// for.
    ///
    /// # Errors
    /// The sink cannot be made.
    pub fn before<S: Sink + Send + 'static>(
        lossless: bool,
        make: impl FnOnce(Closing) -> io::Result<S>,
    ) -> io::Result<Queue> {
        let waiting = Arc::new(Waiting::default());
        let inner = make(waiting.closing.clone())?;
        Ok(Queue { inner: Some(Box::new(inner)), thread: None, waiting, lossless, patience: PATIENCE })
    }

    /// Puts a message into the queue.
    fn push(&mut self, message: Message) -> io::Result<()> {
        if let Some(inner) = self.inner.take() {
            let waiting = Arc::clone(&self.waiting);
            let begun = Builder::new().name("target".to_owned()).spawn(move || waiting.run(inner));
            // The sink is gone if that fails.
            self.thread = Some(begun.inspect_err(|error| self.waiting.never_began(&message, error))?);
        }
        self.waiting.push(message)
    }

    /// What is only noted, while the thread has not begun: it changes nothing outside.
    fn pass(&mut self, message: Message) -> io::Result<()> {
        match &mut self.inner {
            Some(inner) => give(&mut **inner, message),
            None => self.push(message),
        }
    }

    /// What went wrong since it was told last.
    fn failure(&self) -> io::Result<()> {
        self.waiting.state().failure.take().map_or(Ok(()), Err)
    }
}

impl Sink for Queue {
    fn show(&mut self, program: u32, view: &View) {
        let _ = self.pass(Message::Show(program, view.clone()));
    }

    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.pass(Message::Fact(fact.clone()))
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.lossless {
            self.waiting.wait_for_room(self.patience);
        }
        self.waiting.has_room()?;
        self.push(Message::Record(program, record.clone()))
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.pass(Message::Forget(program))
    }

    fn is_ready(&mut self) -> bool {
        !self.lossless || self.waiting.is_ready(self.patience)
    }

    fn set_lossless(&mut self, lossless: bool) {
        self.lossless = lossless;
    }

    fn idle(&mut self) -> io::Result<()> {
        self.failure()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        let notes = self.waiting.state().notes.take();
        notes.iter().for_each(|note| tell(note));
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(mut inner) = self.inner.take() {
            // It never had a record.
            self.waiting.never_begins();
            return inner.finish();
        }
        // A sink gives up when it is stuck; a thread that does not come back all the same is left alone.
        if self.waiting.end(Instant::now() + END)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        self.failure()
    }

    fn lost(&self) -> u64 {
        self.waiting.state().lost
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
