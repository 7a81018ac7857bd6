//! The state that the tracer and the writing thread share.

use std::any::Any;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::progress::stuck;
use super::state::{Size, State, Wait};
use super::{Block, Limits, Progress, Writer};

/// The most empty blocks that are kept for reuse.
const KEPT: usize = 16;
/// The interval at which a thread without blocks calls [`Writer::idle`].
const IDLE: Duration = Duration::from_millis(200);
/// The interval at which a waiting tracer checks whether to give up.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the thread may take to return after its writer is given up; a disk may take longer.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Shared<B> {
    state: Mutex<State<B>>,
    /// Signalled at every change of the state.
    news: Condvar,
    progress: Progress,
    /// Whether the writer takes no records. An atomic, because it is read for each record.
    pub(super) is_closed: AtomicBool,
}

/// Calls a writer. The outer error is a panic.
fn guarded(call: impl FnOnce() -> io::Result<()>) -> Result<io::Result<()>, io::Error> {
    // Unwind safe: after a panic the writer gets no more blocks; only `finish` is called.
    catch_unwind(AssertUnwindSafe(call)).map_err(|reason: Box<dyn Any + Send>| {
        let text = reason.downcast_ref::<String>().map(String::as_str);
        let text = text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("no message");
        io::Error::other(format!("a bug in dprobes has ended it: {text}"))
    })
}

/// The tracer's side.
impl<B: Block> Shared<B> {
    pub(super) fn new(progress: Progress) -> Shared<B> {
        let is_closed = AtomicBool::new(false);
        Shared { state: Mutex::new(State::default()), news: Condvar::new(), progress, is_closed }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<B>> {
        // Poisoning is ignored: nothing that may panic is called with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<B>>) -> MutexGuard<'a, State<B>> {
        self.news.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn takes(&self) -> io::Result<()> {
        self.state().takes()
    }

    /// Checks that there is room for a record after this block, or that the caller may wait for
    /// room. If not, counts the record as lost.
    pub(super) fn admit(&self, block: &B, limits: &Limits) -> io::Result<()> {
        let mut state = self.state();
        let room = match !limits.waits && state.is_full(block, limits) {
            true => Err(io::Error::new(io::ErrorKind::WouldBlock, "it is slower than the records arrive")),
            false => Ok(()),
        };
        state.takes().and(room).inspect_err(|_| state.lost += 1)
    }

    /// Checks that the writer takes messages. If too many wait already, the writer has failed,
    /// which is reported later.
    pub(super) fn admit_message(&self, in_block: u64, limits: &Limits) -> io::Result<()> {
        let mut state = self.state();
        if state.failed.is_some() || state.ends {
            return state.takes();
        }
        if let Some(most) = limits.messages.filter(|most| state.waiting.messages + in_block >= *most) {
            let text = format!("it has {most} unread messages about programs");
            self.fail(&mut state, io::Error::new(io::ErrorKind::TimedOut, text));
            self.progress.give_up();
        }
        Ok(())
    }

    /// Queues a block and puts an empty one in its place. Returns how many records the empty one
    /// may have.
    pub(super) fn push(&self, block: &mut B, limits: &Limits) -> io::Result<u64> {
        let mut state = self.state();
        if state.failed.is_some() || state.ends {
            state.lost += block.records();
            block.clear();
            return Err(state.takes().err().unwrap_or_else(stuck));
        }
        state.waiting.add(Size::of(block));
        let empty = state.empty.pop().unwrap_or_default();
        state.full.push_back(mem::replace(block, empty));
        self.news.notify_all();
        Ok(limits.records.saturating_sub(state.waiting.records))
    }

    /// Waits while the queue is full. A writer that is given up here has failed.
    pub(super) fn wait_for_room(&self, block: &B, limits: &Limits) {
        let mut wait = Wait::new(&self.progress);
        let mut state = self.state();
        // A block that is larger than the queue is queued once nothing else waits.
        while state.waiting.bytes > 0 && state.is_full(block, limits) && state.failed.is_none() {
            let is_over = wait.is_over(limits.full, &self.progress, true);
            // The first signal asks for the end; the second one asks for it at once.
            if is_over || (limits.asked)() >= 2 {
                self.give_up_when_full(state, limits);
                return;
            }
            state = self.wait(state);
        }
    }

    /// Whether a caller can add some records without waiting.
    pub(super) fn is_ready(&self, block: &B, limits: &Limits) -> bool {
        let mut state = self.state();
        if !state.is_nearly_full(block, limits) || state.takes().is_err() {
            state.wait = None;
            return true;
        }
        let mut wait = state.wait.take().unwrap_or_else(|| Wait::new(&self.progress));
        if limits.gives_up && wait.is_over(limits.full, &self.progress, true) {
            self.give_up_when_full(state, limits);
            return true;
        }
        state.wait = Some(wait);
        false
    }

    fn give_up_when_full(&self, mut state: MutexGuard<'_, State<B>>, limits: &Limits) {
        let error = match limits.is_device {
            true => {
                let text = format!("it has accepted nothing for {} seconds", limits.full.stuck.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            false => io::ErrorKind::Interrupted.into(),
        };
        self.fail(&mut state, error);
        self.progress.give_up();
        let end = Instant::now() + ABANDON_TIMEOUT;
        while state.in_hand.is_some() {
            if Instant::now() >= end {
                state.abandon(self.progress.done());
            } else {
                state = self.wait(state);
            }
        }
    }

    /// Marks the writer as failed: it gets no more blocks, and all waiting records are lost.
    fn fail(&self, state: &mut State<B>, error: io::Error) {
        if state.failed.is_none() {
            state.failed = Some((error.kind(), error.to_string()));
            state.failure = Some(error);
        }
        state.lose_all();
        self.is_closed.store(true, Ordering::SeqCst);
        self.news.notify_all();
    }

    pub(super) fn is_busy(&self) -> bool {
        let state = self.state();
        state.in_hand.is_some() || !state.full.is_empty()
    }

    /// Notes that the thread could not be started.
    pub(super) fn never_begins(&self, error: &io::Error) {
        let mut state = self.state();
        state.ended = true;
        let text = format!("cannot start its thread: {error}");
        self.fail(&mut state, io::Error::new(error.kind(), text));
    }

    /// Notes that all is done without a thread, as there was no record. The writer lost `lost`.
    pub(super) fn never_began(&self, lost: u64) {
        let mut state = self.state();
        (state.ends, state.ended, state.lost_by_writer) = (true, true, lost);
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Waits until the thread has ended. False: it does not return and is abandoned.
    pub(super) fn end(&self, limits: &Limits) -> bool {
        // One signal may have caused this end.
        let asked = (limits.asked)().min(1);
        let mut wait = Wait::new(&self.progress);
        let mut given_up = None;
        let mut state = self.state();
        let lost = state.lost;
        state.ends = true;
        self.is_closed.store(true, Ordering::SeqCst);
        self.news.notify_all();
        while !state.ended && !state.left_alone {
            match given_up {
                None if wait.is_over(limits.end, &self.progress, false) || (limits.asked)() > asked => {
                    given_up = Some(Instant::now());
                    state.lose_all();
                    if !limits.is_device {
                        self.fail(&mut state, io::ErrorKind::Interrupted.into());
                    }
                    self.progress.give_up();
                }
                Some(since) if since.elapsed() >= ABANDON_TIMEOUT => state.abandon(self.progress.done()),
                _ => state = self.wait(state),
            }
        }
        if given_up.is_some() && state.lost > lost {
            self.fail(&mut state, stuck());
        }
        !state.left_alone
    }
}

/// The thread's side.
impl<B: Block> Shared<B> {
    /// Gives blocks to the writer until the queue ends. With `fails_once`, the first failure is
    /// final.
    pub(super) fn run(&self, mut writer: Box<dyn Writer<B>>, fails_once: bool) {
        let writer = &mut *writer;
        let mut state = self.state();
        loop {
            if state.left_alone {
                return;
            }
            let Some(mut block) = state.full.pop_front() else {
                if state.ends {
                    break;
                }
                state = self.rest(writer, state, fails_once);
                continue;
            };
            let size = Size::of(&block);
            state.in_hand = Some(writer.kept() + size.records);
            drop(state);
            self.progress.begin();
            let result = guarded(|| writer.write(&mut block));
            let undone = if result.is_err() { size.records - self.progress.done() } else { 0 };
            block.clear();
            state = self.came_back(writer, result, fails_once);
            state.waiting.take(size);
            if !state.left_alone {
                state.lost += undone;
            }
            if state.empty.len() < KEPT {
                state.empty.push(block);
            }
        }
        state.in_hand = Some(writer.kept());
        drop(state);
        self.progress.begin();
        let finished = guarded(|| writer.finish());
        self.came_back(writer, finished, fails_once).ended = true;
    }

    /// Calls [`Writer::idle`], then waits for a change of the state.
    fn rest<'a>(
        &'a self,
        writer: &mut dyn Writer<B>,
        mut state: MutexGuard<'a, State<B>>,
        fails_once: bool,
    ) -> MutexGuard<'a, State<B>> {
        let idles = writer.has_idle() && state.failed.is_none();
        if idles {
            state.in_hand = Some(writer.kept());
            drop(state);
            self.progress.begin();
            let mut notes = Vec::new();
            let result = guarded(|| writer.idle(&mut |text| notes.push(text.to_owned())));
            state = self.came_back(writer, result, fails_once);
            notes.iter().for_each(|note| state.notes.push(note));
        }
        match state.full.is_empty() && !state.ends && !state.left_alone {
            true if idles => self.news.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0,
            true => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            false => state,
        }
    }

    /// Updates the state after the thread has returned from the writer.
    fn came_back(
        &self,
        writer: &dyn Writer<B>,
        result: Result<io::Result<()>, io::Error>,
        fails_once: bool,
    ) -> MutexGuard<'_, State<B>> {
        let mut state = self.state();
        if state.left_alone {
            return state;
        }
        state.in_hand = None;
        state.lost_by_writer = writer.lost();
        if !writer.is_full() {
            state.refusal = None;
        }
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) if fails_once || self.progress.is_given_up() => self.fail(&mut state, error),
            Ok(Err(error)) => {
                if writer.is_full() {
                    state.refusal = Some((error.kind(), error.to_string()));
                }
                state.failure.get_or_insert(error);
            }
            Err(panic) => self.fail(&mut state, panic),
        }
        let is_closed = state.failed.is_some() || state.refusal.is_some() || state.ends;
        self.is_closed.store(is_closed, Ordering::SeqCst);
        self.news.notify_all();
        state
    }
}
