//! Records on their way to a file, which a thread of its own writes.
//!
//! A file may be slow: a disk that is busy, a pipe that is read slowly or not at all. The tracer must go on meanwhile, since programs
//! wait for it. So records are gathered in pieces, and full pieces wait to be written; only so many, [`MOST`], and then the spool is
//! not ready for more. Whoever puts a record in all the same waits, until the second signal that asks for the end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::control;

/// Bytes of a piece.
const PIECE: usize = 1 << 18;
/// Pieces that wait to be written, at most: 32 MiB, a fifth of a second of two million records a second.
const MOST: usize = 128;
/// Pieces whose memory is kept for others.
const KEPT: usize = 16;
/// The pause between two looks whether the user gives up.
const PAUSE: Duration = Duration::from_millis(50);

/// A file and what is to be written to it.
#[derive(Debug)]
pub(crate) struct Spool {
    /// The file, until the thread has it: it begins with the first piece.
    file: Option<File>,
    thread: Option<JoinHandle<()>>,
    /// The piece that is being filled.
    piece: Vec<u8>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Something has changed.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Pieces to be written, the oldest first.
    full: VecDeque<Vec<u8>>,
    /// Pieces whose memory can be used again.
    empty: Vec<Vec<u8>>,
    /// Whether one is being written.
    writes: bool,
    /// Why writing has failed: then all that follows is lost.
    failure: Option<(io::ErrorKind, String)>,
    /// No more will come.
    ends: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics while it has the lock has not begun to change anything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while a condition holds. False: the user gives up.
    fn wait_while(&self, holds: impl Fn(&State) -> bool, patience: u32) -> bool {
        let mut state = self.state();
        while holds(&state) {
            if control::signals() >= patience {
                return false;
            }
            state = self.news.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Writes pieces until there will be no more.
    fn write(&self, mut file: File) {
        let mut state = self.state();
        loop {
            let Some(mut piece) = state.full.pop_front() else {
                if state.ends {
                    return;
                }
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if state.failure.is_some() {
                continue;
            }
            state.writes = true;
            drop(state);
            let result = file.write_all(&piece);
            piece.clear();
            state = self.state();
            state.writes = false;
            if state.empty.len() < KEPT {
                state.empty.push(piece);
            }
            if let Err(error) = result {
                state.failure = Some((error.kind(), error.to_string()));
            }
            self.news.notify_all();
        }
    }
}

impl Spool {
    pub(crate) fn new(file: File) -> Spool {
        Spool { file: Some(file), thread: None, piece: Vec::new(), queue: Arc::default() }
    }

    /// Where the next record is appended. It waits if the spool is not ready.
    ///
    /// # Errors
    /// Writing has failed, or there is no end of waiting and the user has given up.
    pub(crate) fn place(&mut self) -> io::Result<&mut Vec<u8>> {
        if self.piece.len() >= PIECE {
            // The first signal asks for the end; the second one wants it at once.
            let full = |state: &State| state.full.len() >= MOST && state.failure.is_none();
            if !self.queue.wait_while(full, 2) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.hand_over()?;
        }
        Ok(&mut self.piece)
    }

    /// Whether there is room for records.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.queue.state();
        state.full.len() < MOST || state.failure.is_some()
    }

    /// Lets what is there be written, if nothing else is just now.
    pub(crate) fn idle(&mut self) -> io::Result<()> {
        let busy = |state: &State| state.writes || !state.full.is_empty();
        if self.piece.is_empty() || busy(&self.queue.state()) {
            return Ok(());
        }
        self.hand_over()
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// Writing has failed, or a signal has come meanwhile: what is not written is lost.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.piece.is_empty() {
            self.hand_over()?;
        }
        let busy = |state: &State| state.writes || !state.full.is_empty();
        // One signal may have asked for this end already.
        if !self.queue.wait_while(busy, control::signals().min(1) + 1) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.failure()
    }

    /// Puts the piece among those to be written.
    fn hand_over(&mut self) -> io::Result<()> {
        self.failure()?;
        if let Some(file) = self.file.take() {
            let queue = Arc::clone(&self.queue);
            self.thread = Some(Builder::new().name("records".to_owned()).spawn(move || queue.write(file))?);
        }
        let mut state = self.queue.state();
        let next = state.empty.pop().unwrap_or_else(|| Vec::with_capacity(PIECE + PIECE / 4));
        state.full.push_back(mem::replace(&mut self.piece, next));
        self.queue.news.notify_all();
        Ok(())
    }

    fn failure(&self) -> io::Result<()> {
        match &self.queue.state().failure {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let flushed = self.flush();
        self.queue.state().ends = true;
        self.queue.news.notify_all();
        // A thread that hangs in a write is left alone; it ends with the process.
        if !matches!(&flushed, Err(error) if error.kind() == io::ErrorKind::Interrupted)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    #[test]
    fn all_that_is_put_in_comes_out_in_order() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("it is read");
            all
        });
        let mut spool = Spool::new(File::from(OwnedFd::from(writer)));
        let mut expected = Vec::new();
        for number in 0..200_000u32 {
            let line = format!("record {number}\n");
            spool.place().expect("it is written").extend_from_slice(line.as_bytes());
            expected.extend_from_slice(line.as_bytes());
            if number % 1000 == 0 {
                spool.idle().expect("it is written");
            }
        }
        spool.flush().expect("it is written");
        drop(spool);
        assert!(reader.join().expect("it reads") == expected);
    }

    #[test]
    fn a_file_that_takes_nothing_makes_it_unready_and_not_slow() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut spool = Spool::new(File::from(OwnedFd::from(writer)));
        let mut put = 0;
        while spool.is_ready() {
            spool.place().expect("there is room").extend_from_slice(&[b'x'; 1000]);
            put += 1000;
            assert!(put <= (MOST + 2) * PIECE, "memory is bounded");
        }
        let mut rest = vec![0; put];
        let read = std::thread::spawn(move || reader.read_exact(&mut rest).map(|()| rest.len()));
        spool.flush().expect("it is read now");
        assert!(spool.is_ready());
        assert_eq!(read.join().expect("it reads").expect("all of it"), put);
    }

    #[test]
    fn a_failure_is_told_with_every_record_that_is_lost() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut spool = Spool::new(File::from(OwnedFd::from(writer)));
        spool.place().expect("nothing was written yet").extend_from_slice(b"lost");
        assert_eq!(spool.flush().map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        spool.piece.resize(PIECE, b'x');
        assert!(spool.place().is_err());
        assert!(spool.is_ready(), "nobody waits for it");
    }
}
