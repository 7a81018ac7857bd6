//! Tests of a queue whose sinks are slow, stuck, or panic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;

/// The most waiting records, and the most waiting messages.
const MOST: u64 = 1 << 16;

/// A sink that takes a record when it is allowed to.
struct Slow {
    progress: Progress,
    allowed: Arc<AtomicU64>,
    taken: Arc<Mutex<Vec<u64>>>,
    fails_at: u64,
    lost: u64,
}

impl Sink for Slow {
    fn record(&mut self, _program: u32, record: &Record) -> io::Result<()> {
        while self.allowed.load(Ordering::SeqCst) == 0 {
            if self.progress.is_given_up() {
                self.lost += 1;
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if record.time == self.fails_at {
            self.lost += 1;
            return Err(io::Error::other("out of paper"));
        }
        self.taken.lock().expect("nobody panics").push(record.time);
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn slow(lossless: bool, fails_at: u64) -> (Queued, Arc<AtomicU64>, Arc<Mutex<Vec<u64>>>) {
    let (allowed, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (own, all) = (Arc::clone(&allowed), Arc::clone(&taken));
    let make = |progress| Ok(Slow { progress, lost: 0, allowed: own, taken: all, fails_at });
    (Queued::before(Limits::device(lossless), make).expect("it is made"), allowed, taken)
}

fn at(time: u64) -> Record {
    Record { time, ..Record::default() }
}

#[test]
fn what_does_not_fit_is_dropped_at_once_and_counted() {
    let (mut queue, allowed, taken) = slow(false, u64::MAX);
    let begin = Instant::now();
    let all = MOST + 1000;
    let refused = (0..all).filter(|&time| queue.record(0, &at(time)).is_err()).count() as u64;
    assert!(begin.elapsed() < Duration::from_secs(60), "nobody waits for it");
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
    assert!(begin.elapsed() < Duration::from_secs(60));
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

/// The text of the first failure that is reported.
fn failure(queue: &mut Queued) -> String {
    let begin = Instant::now();
    loop {
        match queue.idle() {
            Err(error) => return error.to_string(),
            Ok(()) => assert!(begin.elapsed() < Duration::from_secs(60), "nothing is told"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stuck_sink_that_may_lose_nothing_is_waited_for_once() {
    let (mut queue, _allowed, taken) = slow(true, u64::MAX);
    queue.queue.limits.full.stuck = Duration::from_millis(500);
    let begin = Instant::now();
    let all = MOST + 1000;
    let refused = (0..all).filter(|&time| queue.record(0, &at(time)).is_err()).count();
    assert!(begin.elapsed() < Duration::from_secs(60), "nobody waits for it twice: {:?}", begin.elapsed());
    assert!((999..=1000).contains(&refused), "{refused}");
    assert!(failure(&mut queue).contains("it has accepted nothing for"));
    assert!(queue.is_ready(), "it keeps nobody");
    let _ = queue.finish();
    assert_eq!((queue.lost(), taken.lock().expect("nobody panics").len()), (all, 0));
}

#[test]
fn who_asks_whether_a_stuck_sink_is_ready_is_not_kept_for_ever() {
    let (mut queue, _allowed, _taken) = slow(true, u64::MAX);
    while queue.is_ready() {
        queue.record(0, &at(1)).expect("there is room");
    }
    // Set only now, because filling it may take longer.
    queue.queue.limits.full.stuck = Duration::from_millis(500);
    let begin = Instant::now();
    while !queue.is_ready() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is waited for forever");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = queue.record(0, &at(2)).expect_err("it has failed");
    assert!(
        error.to_string().contains("it has accepted nothing for"),
        "whoever comes first tells why: {error}"
    );
    assert!(failure(&mut queue).contains("it has accepted nothing for"));
}

/// A sink that waits on purpose, for the kernel's rate limit, is not stuck.
#[test]
fn a_sink_that_rests_by_its_own_will_is_waited_for() {
    struct Resting(Progress, Arc<AtomicU64>);
    impl Sink for Resting {
        fn record(&mut self, _program: u32, _record: &Record) -> io::Result<()> {
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                self.0.wait_until(Instant::now() + Duration::from_millis(1500))?;
            }
            Ok(())
        }
        fn lost(&self) -> u64 {
            0
        }
    }
    let taken = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&taken);
    let mut queue =
        Queued::before(Limits::device(true), |progress| Ok(Resting(progress, own))).expect("it is made");
    queue.queue.limits.full.stuck = Duration::from_millis(300);
    let all = MOST + 100;
    (0..all).for_each(|time| queue.record(0, &at(time)).expect("it is waited for"));
    queue.finish().expect("all was taken");
    assert_eq!((queue.lost(), taken.load(Ordering::SeqCst)), (0, all));
}

#[test]
fn what_is_waited_for_can_be_changed() {
    let (mut queue, allowed, _taken) = slow(false, u64::MAX);
    queue.set_lossless(true);
    while queue.is_ready() {
        queue.record(0, &at(1)).expect("there is room");
    }
    queue.set_lossless(false);
    assert!(queue.is_ready());
    // There is some room left for callers that have asked before.
    assert!((0..MOST).any(|_| queue.record(0, &at(1)).is_err()), "it is dropped");
    allowed.store(1, Ordering::SeqCst);
    queue.finish().expect("all was taken");
    assert_eq!(queue.lost(), 1);
}

/// A sink that panics.
struct Panicking(Arc<AtomicU64>);

impl Sink for Panicking {
    fn record(&mut self, _program: u32, record: &Record) -> io::Result<()> {
        assert!(record.time < 3, "time {} is too late", record.time);
        Ok(())
    }
    fn finish(&mut self) -> io::Result<()> {
        self.0.store(1, Ordering::SeqCst);
        Ok(())
    }
    fn lost(&self) -> u64 {
        0
    }
}

#[test]
fn a_panic_is_told_and_all_that_it_has_lost_is_counted() {
    let ended = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&ended);
    let mut queue = Queued::before(Limits::device(true), |_| Ok(Panicking(own))).expect("it is made");
    let refused = (0..100_000).filter(|&time| queue.record(0, &at(time)).is_err()).count();
    let told = failure(&mut queue);
    assert!(told.contains("time 3 is too late"), "{told}");
    assert!(queue.record(0, &at(1)).is_err() && queue.is_ready());
    queue.finish().expect("it was told");
    assert!(refused < 100_000, "some were taken");
    assert_eq!(
        (queue.lost(), ended.load(Ordering::SeqCst)),
        (99_998, 1),
        "three were taken, and it was ended"
    );
}

#[test]
fn what_waits_beside_records_is_bounded() {
    let (mut queue, allowed, _taken) = slow(false, u64::MAX);
    queue.record(0, &at(0)).expect("there is room");
    (0..=MOST as u32).for_each(|program| drop(queue.forget(program)));
    assert!(failure(&mut queue).contains("unread messages about programs"));
    assert!(queue.forget(0).is_err());
    allowed.store(1, Ordering::SeqCst);
    let _ = queue.finish();
}

#[test]
fn a_thread_that_does_not_come_back_is_left_alone_and_its_records_counted() {
    struct Hanging(Arc<AtomicU64>);
    impl Sink for Hanging {
        fn record(&mut self, _program: u32, _record: &Record) -> io::Result<()> {
            while self.0.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
        fn lost(&self) -> u64 {
            0
        }
    }
    let allowed = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&allowed);
    let mut queue = Queued::before(Limits::device(false), |_| Ok(Hanging(own))).expect("it is made");
    (0..10).for_each(|time| queue.record(0, &at(time)).expect("there is room"));
    queue.queue.limits.end.stuck = Duration::from_millis(300);
    assert_eq!(queue.finish().map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    allowed.store(1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(queue.lost(), 10);
}
