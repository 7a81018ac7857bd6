//! Records on their way to a file, which a thread of its own writes.
//!
//! A file may be slow: a disk that is busy, a pipe that is read slowly or not at all. The tracer must go on meanwhile, since programs
//! wait for it. So records are gathered in pieces, and full pieces wait to be written; only so many, [`MOST`], and then the spool is
//! not ready for more. Whoever puts a record in all the same waits, until the second signal that asks for the end. A session has
//! more to do than to wait for one reader: its spools give up by themselves when the file takes nothing any more.
//!
//! Each record that is put in is in the file as a whole, or counted as lost: a piece knows where its records end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use trace::sink::Tail;

use crate::control;

/// Bytes of a piece.
const PIECE: usize = 1 << 18;
/// Pieces that wait to be written, at most: 32 MiB, a fifth of a second of two million records a second.
const MOST: usize = 128;
/// Pieces whose memory is kept for others.
const KEPT: usize = 16;
/// The pause between two looks whether the user gives up.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the thread may take to see that it is to end: a disk may keep it longer.
const LAST: Duration = Duration::from_secs(1);
/// How long a pipe of a spool that gives up by itself may take nothing while it is waited for.
const STUCK: Duration = Duration::from_secs(3);
/// How long any file of such a spool is waited for at once.
const LONGEST: Duration = Duration::from_secs(10);

/// A file and what is to be written to it.
#[derive(Debug)]
pub(crate) struct Spool {
    /// The file, until the thread has it: it begins with the first piece.
    file: Option<File>,
    thread: Option<JoinHandle<()>>,
    /// The piece that is being filled.
    piece: Piece,
    queue: Arc<Queue>,
    /// Records that were not taken.
    refused: u64,
}

/// Records, one after another.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Where each record ends.
    ends: Vec<u32>,
}

impl Piece {
    fn records(&self) -> u64 {
        self.ends.len() as u64
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Something has changed.
    news: Condvar,
    /// Whether there is a failure: to be seen at each record.
    failed: AtomicBool,
    /// Nothing is waited for any more: the user has given up, or it was waited for long enough.
    given_up: AtomicBool,
    /// Bytes that the file has taken.
    taken: AtomicU64,
    /// For how long the file may take nothing, if it gives up by itself.
    patience: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    /// Pieces to be written, the oldest first.
    full: VecDeque<Piece>,
    /// Pieces whose memory can be used again.
    empty: Vec<Piece>,
    /// The records of the piece that is being written.
    writes: Option<u64>,
    /// Records of pieces that could not be written.
    lost: u64,
    /// Why writing has failed: then all that follows is lost.
    failure: Option<(io::ErrorKind, String)>,
    /// No more will come.
    ends: bool,
    /// The thread does not come back from a write: what it has with it is counted.
    left_alone: bool,
}

impl State {
    fn is_busy(&self) -> bool {
        self.writes.is_some() || !self.full.is_empty()
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics while it has the lock has not begun to change anything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.news.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits while a condition holds. False: the user gives up, with so many signals; or the file takes nothing, where that ends it.
    fn wait_while(&self, holds: impl Fn(&State) -> bool, patience: u32) -> bool {
        let begin = Instant::now();
        let (mut taken, mut moved) = (self.taken.load(Ordering::Relaxed), begin);
        let mut state = self.state();
        while holds(&state) {
            let before = mem::replace(&mut taken, self.taken.load(Ordering::Relaxed));
            if before != taken {
                moved = Instant::now();
            }
            let is_stuck = |limit| moved.elapsed() > limit || begin.elapsed() > LONGEST;
            if control::signals() >= patience || self.patience.is_some_and(is_stuck) {
                drop(state);
                self.give_up();
                return false;
            }
            state = self.wait(state);
        }
        true
    }

    /// Ends it: what is not written is lost, and counted when this returns.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        let (mut state, end) = (self.state(), Instant::now() + LAST);
        self.fail(&mut state, io::ErrorKind::Interrupted.into());
        while state.writes.is_some() {
            if Instant::now() >= end {
                state.left_alone = true;
                state.lost += state.writes.take().unwrap_or_default();
            } else {
                state = self.wait(state);
            }
        }
    }

    /// Nothing is written any more; what waits is lost.
    fn fail(&self, state: &mut State, error: io::Error) {
        state.lost += state.full.drain(..).map(|piece| piece.records()).sum::<u64>();
        state.failure.get_or_insert((error.kind(), error.to_string()));
        self.failed.store(true, Ordering::SeqCst);
        self.news.notify_all();
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
            state.writes = Some(piece.records());
            drop(state);
            let (written, result) = self.write_piece(&mut file, &piece.bytes);
            let whole = piece.ends.partition_point(|&end| end as usize <= written);
            if result.is_err() {
                let part = written - whole.checked_sub(1).map_or(0, |last| piece.ends[last] as usize);
                // Where it cannot be taken back, a part of a record is the last that stands there.
                let _ = part > 0 && file.take_back(part as u64);
            }
            let lost = piece.records() - whole as u64;
            piece.clear();
            state = self.state();
            if state.left_alone {
                return;
            }
            state.writes = None;
            if state.empty.len() < KEPT {
                state.empty.push(piece);
            }
            if let Err(error) = result {
                state.lost += lost;
                self.fail(&mut state, error);
            }
            self.news.notify_all();
        }
    }

    /// Writes a piece: how many bytes, and why not all.
    fn write_piece(&self, file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < bytes.len() {
            let error = match file.write(&bytes[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(more) => {
                    written += more;
                    self.taken.fetch_add(more as u64, Ordering::Relaxed);
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock if self.given_up.load(Ordering::SeqCst) => {
                    return (written, Err(io::ErrorKind::Interrupted.into()));
                }
                io::ErrorKind::WouldBlock => wait_for(file),
                _ => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }
}

/// Waits a moment for a file to take something.
fn wait_for(file: &File) {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `wanted` is one valid structure, and its file is open as long as it is borrowed.
    unsafe { libc::poll(&raw mut wanted, 1, PAUSE.as_millis() as i32) };
}

/// Lets writes to a pipe or a terminal come back when there is no room: so it is known what was written, whenever the user gives up.
fn never_blocks(file: &File) {
    // SAFETY: plain calls on a descriptor that `file` owns; what they fail on blocks as before.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags >= 0 {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
    }
}

impl Spool {
    /// A spool for a file, which nobody else has opened with it.
    pub(crate) fn new(file: File) -> Spool {
        Spool::with(file, Queue::default())
    }

    /// The same, which gives up when its file takes nothing any more and is waited for.
    pub(crate) fn impatient(file: File) -> Spool {
        // A disk that is busy is only slow.
        let is_on_disk = file.metadata().is_ok_and(|known| known.is_file());
        let patience = if is_on_disk { LONGEST } else { STUCK };
        Spool::with(file, Queue { patience: Some(patience), ..Queue::default() })
    }

    fn with(file: File, queue: Queue) -> Spool {
        never_blocks(&file);
        let piece = Piece::default();
        Spool { file: Some(file), thread: None, piece, queue: Arc::new(queue), refused: 0 }
    }

    /// Puts a record in, which `append` appends. It waits if the spool is not ready.
    ///
    /// # Errors
    /// Writing has failed, or there is no end of waiting and it was given up: the record is lost.
    #[inline]
    pub(crate) fn put(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        if self.piece.bytes.len() >= PIECE || self.queue.failed.load(Ordering::Relaxed) {
            self.make_room().inspect_err(|_| self.refused += 1)?;
        }
        append(&mut self.piece.bytes);
        self.piece.ends.push(self.piece.bytes.len() as u32);
        Ok(())
    }

    #[cold]
    fn make_room(&mut self) -> io::Result<()> {
        // The first signal asks for the end; the second one wants it at once.
        self.queue.wait_while(|state| state.full.len() >= MOST && state.failure.is_none(), 2);
        self.hand_over()
    }

    /// Whether there is room for records.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.queue.state();
        state.full.len() < MOST || state.failure.is_some()
    }

    /// Lets what is there be written, if nothing else is just now.
    pub(crate) fn idle(&mut self) -> io::Result<()> {
        if self.queue.state().is_busy() {
            return Ok(());
        }
        self.hand_over()
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// Writing has failed, a signal has come meanwhile, or it was given up: what is not written is lost.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        // One signal may have asked for this end already.
        self.queue.wait_while(State::is_busy, control::signals().min(1) + 1);
        self.failure()
    }

    /// Records that were put in, or were to be, and are not in the file. After [`Spool::flush`] all that are not counted are there.
    pub(crate) fn lost(&self) -> u64 {
        self.refused + self.queue.state().lost
    }

    /// Puts the piece among those to be written.
    fn hand_over(&mut self) -> io::Result<()> {
        if self.piece.ends.is_empty() {
            return self.failure();
        }
        if let Some(file) = self.file.take() {
            let queue = Arc::clone(&self.queue);
            let begun = Builder::new().name("records".to_owned()).spawn(move || queue.write(file));
            match begun {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => self.queue.fail(&mut self.queue.state(), error),
            }
        }
        let mut state = self.queue.state();
        if state.failure.is_some() {
            state.lost += self.piece.records();
            self.piece.clear();
            drop(state);
            return self.failure();
        }
        let next = state.empty.pop().unwrap_or_else(|| Piece {
            bytes: Vec::with_capacity(PIECE + PIECE / 4),
            ends: Vec::with_capacity(PIECE / 64),
        });
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
        let _ = self.flush();
        let mut state = self.queue.state();
        state.ends = true;
        // A thread that hangs in a write is left alone; it ends with the process.
        let hangs = state.left_alone;
        drop(state);
        self.queue.news.notify_all();
        if let (false, Some(thread)) = (hangs, self.thread.take()) {
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
            spool.put(|to| to.extend_from_slice(line.as_bytes())).expect("it is written");
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
            spool.put(|to| to.extend_from_slice(&[b'x'; 1000])).expect("there is room");
            put += 1000;
            assert!(put <= (MOST + 2) * PIECE, "memory is bounded");
        }
        let mut rest = vec![0; put];
        let read = std::thread::spawn(move || reader.read_exact(&mut rest).map(|()| rest.len()));
        spool.flush().expect("it is read now");
        assert!(spool.is_ready());
        assert_eq!(read.join().expect("it reads").expect("all of it"), put);
    }

    /// A spool with so many records that its pipe, of which some is read, is full; what is put in, and how many bytes of it the pipe took.
    fn stuck(make: fn(File) -> Spool, count: u64) -> (Spool, io::PipeReader, Vec<u8>, usize) {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut spool = make(File::from(OwnedFd::from(writer)));
        let mut all = Vec::new();
        for number in 0..count {
            let line = format!("record {number}\n");
            spool.put(|to| to.extend_from_slice(line.as_bytes())).expect("there is room");
            all.extend_from_slice(line.as_bytes());
        }
        let mut some = vec![0; 100_003];
        reader.read_exact(&mut some).expect("so much comes");
        // Nobody reads now: it fills, and stays as it is.
        let (mut before, mut waiting) = (-1, 0);
        while before != waiting || waiting < 4096 {
            before = waiting;
            std::thread::sleep(Duration::from_millis(200));
            // SAFETY: the call writes one number.
            unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        }
        let taken = some.len() + waiting as usize;
        assert!(taken < all.len());
        (spool, reader, all, taken)
    }

    fn lines(text: &[u8]) -> u64 {
        text.iter().filter(|&&byte| byte == b'\n').count() as u64
    }

    #[test]
    fn a_failure_is_told_and_every_lost_record_is_counted() {
        let (mut spool, reader, all, taken) = stuck(Spool::new, 100_000);
        drop(reader);
        assert_eq!(spool.flush().map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        assert_eq!(spool.lost(), 100_000 - lines(&all[..taken]));
        let more = (0..1000).filter(|_| spool.put(|to| to.push(b'x')).is_err()).count();
        assert_eq!(more, 1000, "none is taken any more");
        assert!(spool.is_ready(), "nobody waits for it");
        assert!(spool.flush().is_err());
        assert_eq!(spool.lost(), 101_000 - lines(&all[..taken]));
    }

    #[test]
    fn who_gives_up_knows_what_was_written() {
        let (mut spool, mut reader, all, taken) = stuck(Spool::new, 100_000);
        let begin = Instant::now();
        spool.queue.give_up();
        assert!(begin.elapsed() < LAST, "the thread does not hang");
        assert_eq!(spool.flush().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
        assert_eq!(spool.lost(), 100_000 - lines(&all[..taken]));
        drop(spool);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("it is read");
        assert!(all[..taken].ends_with(&rest), "nothing came after it was counted");
    }

    #[test]
    fn one_that_gives_up_by_itself_does_so_when_nothing_is_taken() {
        let (mut spool, mut reader, all, taken) = stuck(Spool::impatient, 100_000);
        let begin = Instant::now();
        assert_eq!(spool.flush().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
        assert!((STUCK..LONGEST).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert_eq!(spool.lost(), 100_000 - lines(&all[..taken]));
        assert!(spool.put(|to| to.push(b'x')).is_err());
        drop(spool);
        assert!(begin.elapsed() < LONGEST, "it is waited for once");
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("it is read");
        assert!(all[..taken].ends_with(&rest), "nothing came after it was counted");
    }

    #[test]
    fn one_that_gives_up_by_itself_waits_as_long_as_something_is_taken() {
        let (mut spool, mut reader, all, _) = stuck(Spool::impatient, 100_000);
        let end = all.len() - 100_003;
        let read = std::thread::spawn(move || {
            let mut rest = vec![0; end];
            for piece in rest.chunks_mut(end / 5 + 1) {
                std::thread::sleep(STUCK / 3);
                reader.read_exact(piece).expect("it comes");
            }
            rest
        });
        spool.flush().expect("all is written");
        assert_eq!(spool.lost(), 0);
        assert!(all.ends_with(&read.join().expect("it reads")));
    }

    #[test]
    fn a_full_device_takes_none_and_all_are_counted() {
        let full = File::options().write(true).open("/dev/full").expect("there is one");
        let mut spool = Spool::new(full);
        let refused =
            (0..50_000).filter(|_| spool.put(|to| to.extend_from_slice(&[b'x'; 100])).is_err()).count();
        assert!(refused < 50_000, "the first are taken");
        assert!(spool.flush().is_err());
        assert_eq!(spool.lost(), 50_000);
    }
}
