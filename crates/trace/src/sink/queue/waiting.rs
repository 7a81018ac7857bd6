//! What waits for the sink, and what its thread does.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::{Closing, Sink, View};
use crate::Record;
use crate::store::Fact;

/// Records that wait, at most.
pub(super) const MOST_RECORDS: usize = 1 << 16;
/// Bytes of records that wait, at most.
const MOST_BYTES: usize = 16 << 20;
/// What else waits, at most: a sink that leaves so much has failed, since what it were told without it would be wrong.
pub(super) const MOST_OTHERS: usize = 1 << 16;
/// Notes that wait to be told, at most.
pub(super) const MOST_NOTES: usize = 64;
/// How long the sink has nothing to do before it is called for its other business.
const IDLE: Duration = Duration::from_millis(200);

/// A queue, as the tracer and the thread of the sink share it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    /// Something has changed.
    news: Condvar,
    pub(super) closing: Closing,
}

#[derive(Debug, Default)]
pub(super) struct State {
    messages: VecDeque<Message>,
    /// Records among them, and their bytes; all others.
    records: usize,
    bytes: usize,
    others: usize,
    /// Records that did not fit, and those that the sink did not bring to their place.
    pub(super) lost: u64,
    /// What went wrong first, or for good, until it is told.
    pub(super) failure: Option<io::Error>,
    /// What there is to tell beside.
    pub(super) notes: Notes,
    /// No more will come.
    ends: bool,
    /// Why the sink has failed for good: it is given nothing any more.
    failed: Option<(io::ErrorKind, String)>,
    /// Since when the thread is with the sink.
    busy: Option<Instant>,
    /// Whether it has a record with it.
    in_hand: bool,
    /// The thread has nothing more to do.
    ended: bool,
    /// The thread does not come back: what it has with it is counted.
    left_alone: bool,
}

/// What there is to tell, the first of it.
#[derive(Debug, Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    pub(super) fn push(&mut self, text: &str) {
        match self.texts.len() < MOST_NOTES {
            true => self.texts.push(text.to_owned()),
            false => self.more += 1,
        }
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        let Notes { mut texts, more } = mem::take(self);
        if more > 0 {
            texts.push(format!("warning: {more} more messages of this kind"));
        }
        texts
    }
}

#[derive(Debug)]
pub(super) enum Message {
    Record(u32, Record),
    Fact(Fact),
    Show(u32, View),
    Forget(u32),
}

/// The memory that a record takes, about.
fn size(record: &Record) -> usize {
    size_of::<Record>() + record.data.len() + record.name.len()
}

/// Hands a message to a sink.
pub(super) fn give(sink: &mut dyn Sink, message: Message) -> io::Result<()> {
    match message {
        Message::Record(program, record) => sink.record(program, &record),
        Message::Fact(fact) => sink.fact(&fact),
        Message::Show(program, view) => {
            sink.show(program, &view);
            Ok(())
        }
        Message::Forget(program) => sink.forget(program),
    }
}

/// Calls a sink, which may panic: the outer error is that.
fn guarded(call: impl FnOnce() -> io::Result<()>) -> Result<io::Result<()>, io::Error> {
    // What it leaves half done is its own: it is given nothing any more, and asked only to end.
    catch_unwind(AssertUnwindSafe(call)).map_err(|reason: Box<dyn Any + Send>| {
        let text = reason.downcast_ref::<String>().map(String::as_str);
        let text = text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("no reason is given");
        io::Error::other(format!("a mistake of dprobes has ended it: {text}"))
    })
}

impl State {
    fn fail(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
    }

    /// The sink is given nothing any more. What waits for it is lost.
    fn fail_for_good(&mut self, error: io::Error) {
        self.failed = Some((error.kind(), error.to_string()));
        self.failure = Some(error);
        self.lose_all();
    }

    fn lose_all(&mut self) {
        self.lost += self.records as u64;
        (self.records, self.bytes, self.others) = (0, 0, 0);
        self.messages.clear();
    }

    /// Checks that something is still taken.
    fn takes(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None if self.ends => Err(io::Error::new(io::ErrorKind::NotConnected, "it has ended")),
            None => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        self.records >= MOST_RECORDS || self.bytes >= MOST_BYTES
    }

    fn next(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        match &message {
            Message::Record(_, record) => {
                self.records -= 1;
                self.bytes -= size(record);
            }
            _ => self.others -= 1,
        }
        Some(message)
    }
}

impl Waiting {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that may panic is called while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.news.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes a message, for which there is room.
    ///
    /// # Errors
    /// Nobody takes it any more.
    pub(super) fn push(&self, message: Message) -> io::Result<()> {
        let mut state = self.state();
        if let Err(error) = state.takes() {
            state.lost += u64::from(matches!(message, Message::Record(..)));
            return Err(error);
        }
        if !matches!(message, Message::Record(..)) && state.others >= MOST_OTHERS {
            let text = format!("it has left {MOST_OTHERS} messages about programs waiting");
            state.fail_for_good(io::Error::new(io::ErrorKind::TimedOut, text));
            self.closing.begin();
            return Ok(());
        }
        match &message {
            Message::Record(_, record) => {
                state.records += 1;
                state.bytes += size(record);
            }
            _ => state.others += 1,
        }
        state.messages.push_back(message);
        self.news.notify_all();
        Ok(())
    }

    /// Checks that there is room for a record; one without is counted.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn has_room(&self) -> io::Result<()> {
        let mut state = self.state();
        let room = match state.is_full() {
            true => Err(io::Error::new(io::ErrorKind::WouldBlock, "it is slower than the records come")),
            false => Ok(()),
        };
        let room = state.takes().and(room);
        state.lost += u64::from(room.is_err());
        room
    }

    /// Waits while the queue is full. A sink that takes nothing for so long has failed: nobody waits for it again.
    pub(super) fn wait_for_room(&self, patience: Duration) {
        let mut state = self.state();
        while !self.is_ready_now(&mut state, patience) {
            state = self.wait(state);
        }
    }

    /// Whether nobody needs to wait.
    pub(super) fn is_ready(&self, patience: Duration) -> bool {
        self.is_ready_now(&mut self.state(), patience)
    }

    fn is_ready_now(&self, state: &mut State, patience: Duration) -> bool {
        if !state.is_full() || state.takes().is_err() {
            return true;
        }
        let since = state.busy.map(|busy| self.closing.moved().map_or(busy, |moved| moved.max(busy)));
        if since.is_none_or(|since| since.elapsed() <= patience) {
            return false;
        }
        let text = format!("it has taken nothing for {} seconds", patience.as_secs());
        state.fail_for_good(io::Error::new(io::ErrorKind::TimedOut, text));
        // The thread comes back from it.
        self.closing.begin();
        true
    }

    /// There is no thread: it could not be begun for this message.
    pub(super) fn never_began(&self, message: &Message, error: &io::Error) {
        let mut state = self.state();
        state.lost += u64::from(matches!(message, Message::Record(..)));
        state.ended = true;
        state.fail_for_good(io::Error::new(error.kind(), format!("no thread for it: {error}")));
    }

    /// There will be no thread.
    pub(super) fn never_begins(&self) {
        let mut state = self.state();
        (state.ends, state.ended) = (true, true);
    }

    /// Waits until the thread has ended, after which there are no more messages. False: it has not at this time, and is left alone.
    pub(super) fn end(&self, until: Instant) -> bool {
        let mut state = self.state();
        state.ends = true;
        self.closing.begin();
        self.news.notify_all();
        while !state.ended {
            if Instant::now() >= until && !state.left_alone {
                state.left_alone = true;
                state.lost += u64::from(mem::take(&mut state.in_hand));
                state.fail_for_good(io::Error::new(io::ErrorKind::TimedOut, "it does not come to an end"));
            }
            if state.left_alone {
                return false;
            }
            state = self.wait(state);
        }
        true
    }

    /// Gives messages to the sink until there will be no more: what its thread does.
    pub(super) fn run(&self, mut sink: Box<dyn Sink + Send>) {
        let mut state = self.state();
        loop {
            let Some(message) = state.next() else {
                if state.ends {
                    break;
                }
                state = self.idle(&mut *sink, state);
                continue;
            };
            let is_record = matches!(message, Message::Record(..));
            (state.busy, state.in_hand) = (Some(Instant::now()), is_record);
            drop(state);
            let result = guarded(|| give(&mut *sink, message));
            state = self.state();
            if state.left_alone {
                return;
            }
            (state.busy, state.in_hand) = (None, false);
            state.lost += u64::from(is_record && !matches!(result, Ok(Ok(()))));
            self.take(&mut state, result, is_record);
        }
        drop(state);
        let finished = guarded(|| sink.finish());
        state = self.state();
        self.take(&mut state, finished, false);
        state.ended = true;
        self.news.notify_all();
    }

    /// What came of a call of the sink.
    fn take(&self, state: &mut State, result: Result<io::Result<()>, io::Error>, is_record: bool) {
        match result {
            Ok(Ok(())) => {}
            // It has been told to end, and is stuck.
            Ok(Err(error))
                if is_record && error.kind() == io::ErrorKind::TimedOut && state.failed.is_none() =>
            {
                state.fail_for_good(error);
            }
            Ok(Err(error)) => state.fail(error),
            Err(panic) => state.fail_for_good(panic),
        }
        self.news.notify_all();
    }

    /// Calls the sink for its other business, and waits for news.
    fn idle<'a>(&'a self, sink: &mut dyn Sink, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.failed.is_none() {
            state.busy = Some(Instant::now());
            drop(state);
            let mut notes = Vec::new();
            let result = guarded(|| {
                let idle = sink.idle();
                sink.refresh(&mut |text| notes.push(text.to_owned()));
                idle
            });
            state = self.state();
            state.busy = None;
            notes.iter().for_each(|note| state.notes.push(note));
            self.take(&mut state, result, false);
        }
        if state.messages.is_empty() && !state.ends {
            state = self.wait(state);
        }
        state
    }
}
