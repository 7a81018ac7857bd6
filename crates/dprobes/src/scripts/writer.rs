//! Standard output, or a file, written by a thread: the tracer never waits for a slow reader.
//!
//! What is printed is gathered until there is nothing else to do, or much of it: to wake the thread
//! costs more than to print a line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Failure;

/// The most bytes that wait to be written.
const ROOM: usize = 64 << 20;
/// The bytes that are gathered.
const GATHERED: usize = 64 << 10;
/// How long something is gathered while more comes.
const LONG: Duration = Duration::from_millis(20);

/// What is written, from the thread that writes.
#[derive(Debug)]
pub(super) struct Writer {
    gathered: Vec<u8>,
    /// When the first of it came.
    since: Instant,
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
        Ok(Writer {
            gathered: Vec::new(),
            since: Instant::now(),
            sender: Some(sender),
            waiting,
            failed,
            thread: Some(thread),
        })
    }

    /// Has bytes written, after [`flush`](Self::flush) at the latest; false if there is no room for
    /// them.
    pub(super) fn put(&mut self, bytes: &[u8]) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed).saturating_add(self.gathered.len());
        if !bytes.is_empty() && waiting.saturating_add(bytes.len()) > ROOM {
            return false;
        }
        let now = Instant::now();
        if self.gathered.is_empty() {
            self.since = now;
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHERED || now.saturating_duration_since(self.since) > LONG {
            self.flush();
        }
        true
    }

    /// Gives the thread what was gathered.
    pub(super) fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let bytes = std::mem::replace(&mut self.gathered, Vec::with_capacity(GATHERED));
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if let Some(sender) = &self.sender {
            // The thread ends after this only.
            let _ = sender.send(bytes);
        }
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
        self.flush();
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
