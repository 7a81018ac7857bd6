//! How an exporter's thread asks the tracer for a snapshot.
//!
//! The tracer sleeps in the kernel, and is woken; again, if it does not answer, since it may have
//! been about to sleep. It answers all that ask with one snapshot. If asked again at once, it gives
//! that once more, until nine times as long has passed as it took to make.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use crate::model::Snapshot;

/// The time between two wake-ups.
const AGAIN: Duration = Duration::from_millis(20);

/// How much longer than a snapshot takes the same one is given.
const REST: u32 = 9;

/// Asks for snapshots.
#[derive(Clone)]
pub struct Asker {
    calls: Sender<SyncSender<Arc<Snapshot>>>,
    waiting: Arc<AtomicUsize>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Asker").finish_non_exhaustive()
    }
}

/// Answers with snapshots.
#[derive(Debug)]
pub struct Answerer {
    calls: Receiver<SyncSender<Arc<Snapshot>>>,
    waiting: Arc<AtomicUsize>,
    last: Option<Last>,
}

/// The last snapshot.
#[derive(Debug)]
struct Last {
    made: Instant,
    took: Duration,
    snapshot: Arc<Snapshot>,
}

/// Both ends. `wake` interrupts the sleep of the thread that has the answering one.
pub fn exchange(wake: impl Fn() + Send + Sync + 'static) -> (Asker, Answerer) {
    let (calls, answered) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let asker = Asker { calls, waiting: Arc::clone(&waiting), wake: Arc::new(wake) };
    (asker, Answerer { calls: answered, waiting, last: None })
}

impl Asker {
    /// The values now; `None` if there is no answer in this time.
    pub fn ask(&self, within: Duration) -> Option<Arc<Snapshot>> {
        let end = Instant::now() + within;
        let (answer, answered) = sync_channel(1);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.calls.send(answer).ok()?;
        loop {
            (self.wake)();
            match answered.recv_timeout(AGAIN) {
                Ok(snapshot) => return Some(snapshot),
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => return None,
            }
        }
    }
}

impl Answerer {
    /// Whether somebody asks. It costs one read.
    pub fn is_asked(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Answers all that ask. `make` is not called if the last snapshot will do.
    pub fn answer(&mut self, make: impl FnOnce() -> Snapshot) {
        if self.is_asked() {
            let snapshot = self.current(make);
            while let Ok(call) = self.calls.try_recv() {
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                // Fails if it was waited for no longer.
                let _ = call.try_send(Arc::clone(&snapshot));
            }
        }
    }

    fn current(&mut self, make: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        match &self.last {
            Some(last) if last.made.elapsed() < last.took * REST => Arc::clone(&last.snapshot),
            _ => {
                let begun = Instant::now();
                let snapshot = Arc::new(make());
                let made = Instant::now();
                let took = made.duration_since(begun);
                self.last = Some(Last { made, took, snapshot: Arc::clone(&snapshot) });
                snapshot
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn snapshot(time: u64) -> Snapshot {
        Snapshot { time, ..Snapshot::default() }
    }

    #[test]
    fn who_sleeps_is_woken_until_it_answers() {
        let (woken, wakes) = channel();
        let (asker, mut answerer) = exchange(move || woken.send(()).unwrap_or_default());
        assert!(!answerer.is_asked());
        let asking = thread::spawn(move || asker.ask(Duration::from_secs(60)));
        // It is woken a second time without having answered.
        for _ in 0..2 {
            wakes.recv().expect("a wake-up");
        }
        assert!(answerer.is_asked());
        answerer.answer(|| snapshot(7));
        assert_eq!(asking.join().expect("no panic").map(|it| it.time), Some(7));
        assert!(!answerer.is_asked());
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (asker, mut answerer) = exchange(|| {});
        assert_eq!(asker.ask(Duration::from_millis(1)), None);
        // Who asked before is gone, which harms nobody.
        answerer.answer(|| snapshot(1));
        assert!(!answerer.is_asked());
        drop(answerer);
        assert_eq!(asker.ask(Duration::from_secs(3600)), None);
    }

    #[test]
    fn a_costly_snapshot_is_given_again_for_a_while() {
        let (_, mut answerer) = exchange(|| {});
        let took = |answerer: &mut Answerer, took| {
            answerer.last.as_mut().expect("there is one").took = took;
        };
        assert_eq!(answerer.current(|| snapshot(1)).time, 1);
        took(&mut answerer, Duration::from_secs(3600));
        assert_eq!(answerer.current(|| snapshot(2)).time, 1);
        took(&mut answerer, Duration::ZERO);
        assert_eq!(answerer.current(|| snapshot(3)).time, 3);
    }
}
