//! Records that wait for a sink in a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Closing, Sink, View};
use crate::Record;
use crate::store::{Fact, Loss};

/// Records that wait, at most.
const MOST_RECORDS: usize = 1 << 16;
/// Bytes of records that wait, at most.
const MOST_BYTES: usize = 16 << 20;
/// How long the sink has nothing to do before it is called for its other business.
const IDLE: Duration = Duration::from_millis(200);

/// A sink behind a queue. Its thread begins with the first record: a process that forks before is none the wiser.
pub struct Queue {
    /// The sink, until its thread has it.
    inner: Option<Box<dyn Sink + Send>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// Whether what does not fit is waited for.
    lossless: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("lossless", &self.lossless).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something has changed.
    news: Condvar,
    closing: Closing,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Message>,
    /// Records among them, and their bytes.
    records: usize,
    bytes: usize,
    /// Records that did not fit.
    dropped: u64,
    /// Records that the sink did not bring to their place.
    lost: u64,
    /// What went wrong first, until it is told.
    failure: Option<io::Error>,
    /// What there is to tell beside.
    notes: Vec<String>,
    /// No more will come.
    ends: bool,
    /// The sink has taken nothing for too long while it was ending: it is given nothing any more.
    given_up: bool,
    /// The thread has nothing more to do.
    ended: bool,
}

#[derive(Debug)]
enum Message {
    Record(u32, Record),
    Fact(Fact),
    Show(u32, View),
    Loss(Loss, u64),
    Forget(u32),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics while it has the lock has not begun to change anything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.news.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Gives messages to the sink until there will be no more.
    fn run(&self, mut sink: Box<dyn Sink + Send>) {
        let mut state = self.state();
        loop {
            let Some(message) = state.waiting.pop_front() else {
                if state.ends {
                    break;
                }
                drop(state);
                let mut notes = Vec::new();
                let idle = sink.idle();
                sink.refresh(&mut |text| notes.push(text.to_owned()));
                state = self.state();
                state.notes.append(&mut notes);
                state.fail(idle);
                if state.waiting.is_empty() && !state.ends {
                    state = self.wait(state);
                }
                continue;
            };
            if let Message::Record(_, record) = &message {
                state.records -= 1;
                state.bytes -= size(record);
                if state.given_up {
                    state.lost += 1;
                    continue;
                }
            }
            drop(state);
            let is_record = matches!(message, Message::Record(..));
            let result = give(&mut *sink, message);
            state = self.state();
            if is_record && let Err(error) = &result {
                state.lost += 1;
                state.given_up |= error.kind() == io::ErrorKind::TimedOut;
            }
            state.fail(result);
            self.news.notify_all();
        }
        drop(state);
        let finished = sink.finish();
        state = self.state();
        state.fail(finished);
        state.ended = true;
        self.news.notify_all();
    }
}

impl State {
    fn fail(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn is_full(&self) -> bool {
        self.records >= MOST_RECORDS || self.bytes >= MOST_BYTES
    }
}

/// The memory that a record takes, about.
fn size(record: &Record) -> usize {
    size_of::<Record>() + record.data.len() + record.name.len()
}

fn give(sink: &mut dyn Sink, message: Message) -> io::Result<()> {
    match message {
        Message::Record(program, record) => sink.record(program, &record),
        Message::Fact(fact) => sink.fact(&fact),
        Message::Show(program, view) => {
            sink.show(program, &view);
            Ok(())
        }
        Message::Loss(loss, refused) => sink.loss(&loss, refused),
        Message::Forget(program) => sink.forget(program),
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
        let shared = Arc::new(Shared::default());
        let inner = make(shared.closing.clone())?;
        Ok(Queue { inner: Some(Box::new(inner)), thread: None, shared, lossless })
    }

    /// Puts a message into the queue, whatever its length.
    fn push(&mut self, message: Message) -> io::Result<()> {
        if let Some(inner) = self.inner.take() {
            let shared = Arc::clone(&self.shared);
            let name = "target".to_owned();
            self.thread = Some(Builder::new().name(name).spawn(move || shared.run(inner))?);
        }
        let mut state = self.shared.state();
        if state.ends {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "it has ended"));
        }
        if let Message::Record(_, record) = &message {
            state.records += 1;
            state.bytes += size(record);
        }
        state.waiting.push_back(message);
        self.shared.news.notify_all();
        Ok(())
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
        self.shared.state().failure.take().map_or(Ok(()), Err)
    }

    /// Waits while the queue is full; the sink that takes nothing for too long is given up.
    fn wait_for_room(&self) {
        let mut state = self.shared.state();
        let (mut records, mut progress) = (state.records, Instant::now());
        while state.is_full() && !state.ended {
            state = self.shared.wait(state);
            if state.records != records {
                (records, progress) = (state.records, Instant::now());
            } else if progress.elapsed() > 10 * IDLE {
                return;
            }
        }
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
        if self.lossless && self.shared.state().is_full() {
            self.wait_for_room();
        }
        {
            let mut state = self.shared.state();
            if state.is_full() {
                state.dropped += 1;
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "it is slower than the records come"));
            }
        }
        self.push(Message::Record(program, record.clone()))
    }

    fn loss(&mut self, loss: &Loss, refused: u64) -> io::Result<()> {
        self.pass(Message::Loss(loss.clone(), refused))
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.pass(Message::Forget(program))
    }

    fn is_ready(&mut self) -> bool {
        !self.lossless || !self.shared.state().is_full()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.failure()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        let notes = mem::take(&mut self.shared.state().notes);
        notes.iter().for_each(|note| tell(note));
    }

    fn flush(&mut self) -> io::Result<()> {
        self.failure()
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(mut inner) = self.inner.take() {
            // It never had a record.
            self.shared.state().ended = true;
            return inner.finish();
        }
        self.shared.state().ends = true;
        self.shared.closing.begin();
        self.shared.news.notify_all();
        // The sink gives up when it is stuck: this comes to an end.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.failure()
    }

    fn lost(&self) -> u64 {
        let state = self.shared.state();
        state.dropped + state.lost
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A sink that takes a record when it is allowed to.
    struct Slow {
        closing: Closing,
        allowed: Arc<AtomicU64>,
        taken: Arc<Mutex<Vec<u64>>>,
        fails_at: u64,
    }

    impl Sink for Slow {
        fn record(&mut self, _program: u32, record: &Record) -> io::Result<()> {
            let begin = Instant::now();
            while self.allowed.load(Ordering::SeqCst) == 0 {
                if self.closing.gives_up(begin) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if record.time == self.fails_at {
                return Err(io::Error::other("out of paper"));
            }
            self.taken.lock().expect("nobody panics").push(record.time);
            Ok(())
        }

        fn lost(&self) -> u64 {
            0
        }
    }

    fn slow(lossless: bool, fails_at: u64) -> (Queue, Arc<AtomicU64>, Arc<Mutex<Vec<u64>>>) {
        let (allowed, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (own, all) = (Arc::clone(&allowed), Arc::clone(&taken));
        let make = |closing| Ok(Slow { closing, allowed: own, taken: all, fails_at });
        (Queue::before(lossless, make).expect("it is made"), allowed, taken)
    }

    fn at(time: u64) -> Record {
        Record { time, ..Record::default() }
    }

    #[test]
    fn what_does_not_fit_is_dropped_at_once_and_counted() {
        let (mut queue, allowed, taken) = slow(false, u64::MAX);
        let begin = Instant::now();
        let all = MOST_RECORDS as u64 + 1000;
        let refused = (0..all).filter(|&time| queue.record(0, &at(time)).is_err()).count() as u64;
        assert!(begin.elapsed() < Duration::from_secs(2), "nobody waits for it");
        assert!((999..=1000).contains(&refused), "{refused}");
        assert!(queue.is_ready());
        allowed.store(1, Ordering::SeqCst);
        assert!(queue.finish().is_ok());
        let taken = taken.lock().expect("nobody panics");
        assert_eq!((taken.len() as u64 + refused, queue.lost()), (all, refused));
        assert!(taken.is_sorted());
    }

    #[test]
    fn where_nothing_may_be_lost_it_is_waited_for_room() {
        let (mut queue, allowed, taken) = slow(true, u64::MAX);
        while queue.is_ready() {
            queue.record(0, &at(1)).expect("there is room");
        }
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            allowed.store(1, Ordering::SeqCst);
        });
        (0..1000).for_each(|_| queue.record(0, &at(2)).expect("it is waited for"));
        later.join().expect("it ends");
        queue.finish().expect("all was taken");
        assert_eq!((taken.lock().expect("nobody panics").len() > 1000, queue.lost()), (true, 0));
    }

    #[test]
    fn a_sink_that_takes_nothing_is_given_up() {
        let (mut queue, _allowed, taken) = slow(false, u64::MAX);
        (0..10).for_each(|time| queue.record(0, &at(time)).expect("there is room"));
        let begin = Instant::now();
        assert_eq!(queue.finish().map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!((queue.lost(), taken.lock().expect("nobody panics").len()), (10, 0));
        assert!(queue.record(0, &at(11)).is_err(), "it has ended");
    }

    #[test]
    fn a_failure_is_told_once_and_what_follows_is_taken() {
        let (mut queue, allowed, taken) = slow(false, 3);
        allowed.store(1, Ordering::SeqCst);
        (0..10).for_each(|time| queue.record(0, &at(time)).expect("there is room"));
        let error = loop {
            if let Err(error) = queue.idle() {
                break error;
            }
        };
        assert_eq!(error.to_string(), "out of paper");
        queue.finish().expect("it was told");
        assert_eq!((queue.lost(), taken.lock().expect("nobody panics").len()), (1, 9));
    }
}
