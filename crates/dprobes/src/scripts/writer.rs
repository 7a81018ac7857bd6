//! Standard output, or a file, written by a thread: the tracer never waits for a slow reader.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::Failure;

/// The most bytes that wait to be written.
const ROOM: usize = 64 << 20;

/// What is written, from the thread that writes.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    failed: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    /// Starts to write to a file, or to standard output.
    ///
    /// # Errors
    /// The file cannot be made, or no thread started.
    pub(super) fn start(path: Option<&Path>) -> Result<Writer, Failure> {
        let out: Box<dyn Write + Send> = match path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                File::create(path)
                    .map_err(|error| Failure::new(format!("{}: {error}", printable::path(path))))?,
            ),
        };
        let (sender, receiver) = channel();
        let (waiting, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (left, broken) = (Arc::clone(&waiting), Arc::clone(&failed));
        let thread = thread::Builder::new().name("output".to_owned());
        let thread = thread.spawn(move || write(out, &receiver, &left, &broken));
        let thread = thread.map_err(|error| Failure::new(format!("a thread cannot be started: {error}")))?;
        Ok(Writer { sender: Some(sender), waiting, failed, thread: Some(thread) })
    }

    /// Has bytes written; false if there is no room for them.
    pub(super) fn put(&self, bytes: Vec<u8>) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let size = bytes.len();
        if self.waiting.load(Ordering::Relaxed).saturating_add(size) > ROOM {
            return false;
        }
        self.waiting.fetch_add(size, Ordering::Relaxed);
        self.sender.as_ref().is_some_and(|sender| sender.send(bytes).is_ok())
    }

    /// Whether the reader is gone, or the disk is full.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether there is much room.
    pub(super) fn is_ready(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < ROOM / 2
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// It could not be written. A reader that has closed its pipe is none.
    pub(super) fn finish(mut self) -> io::Result<()> {
        drop(self.sender.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

/// Writes what comes. What comes together is written at once.
fn write(
    mut out: Box<dyn Write + Send>,
    receiver: &Receiver<Vec<u8>>,
    waiting: &AtomicUsize,
    failed: &AtomicBool,
) -> io::Result<()> {
    let mut result = Ok(());
    while let Ok(mut bytes) = receiver.recv() {
        while let Ok(more) = receiver.try_recv() {
            bytes.extend(more);
        }
        if result.is_ok() {
            result = out.write_all(&bytes).and_then(|()| out.flush());
            failed.store(result.is_err(), Ordering::Relaxed);
        }
        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
    result
}
