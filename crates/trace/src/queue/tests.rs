//! Tests of a queue whose writers are slow, fail, hang, or are given up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use super::state::{MAX_NOTES, Notes};
use super::*;

/// Records that are plain numbers.
#[derive(Debug, Default)]
struct Numbers(Vec<u64>);

impl Block for Numbers {
    fn records(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The most records of a block.
const FULL: usize = 10;
/// The most waiting bytes.
const MOST: usize = 100 * 8;

/// What a writer of these tests does, and what it got.
#[derive(Debug, Default)]
struct Told {
    /// Whether it may write.
    allowed: AtomicBool,
    /// The record at which it fails, and whether it is given up meanwhile.
    fails_at: AtomicU64,
    /// Whether it does not return even when it is given up.
    hangs: AtomicBool,
    written: Mutex<Vec<u64>>,
    /// The memory of the blocks.
    memory: Mutex<Vec<usize>>,
}

struct Slow {
    told: Arc<Told>,
    progress: Progress,
    lost: u64,
}

impl Writer<Numbers> for Slow {
    fn write(&mut self, block: &mut Numbers) -> io::Result<()> {
        self.told.memory.lock().expect("nobody panics").push(block.0.as_ptr().addr());
        for (place, number) in block.0.iter().enumerate() {
            let mut fails = *number == self.told.fails_at.load(Ordering::SeqCst);
            while !self.told.allowed.load(Ordering::SeqCst) {
                if self.progress.is_given_up() && !self.told.hangs.load(Ordering::SeqCst) {
                    fails = true;
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if fails {
                self.lost += (block.0.len() - place) as u64;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.told.written.lock().expect("nobody panics").push(*number);
            self.progress.record_done();
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn queue(limits: Limits) -> (Queue<Numbers>, Arc<Told>) {
    let (told, progress) = (Arc::new(Told::default()), Progress::default());
    told.fails_at.store(u64::MAX, Ordering::SeqCst);
    let writer = Slow { told: Arc::clone(&told), progress: progress.clone(), lost: 0 };
    (Queue::new(writer, Limits { bytes: MOST, ..limits }, progress), told)
}

fn put(queue: &mut Queue<Numbers>, number: u64) -> io::Result<()> {
    if queue.block.0.len() >= FULL || queue.is_closed() {
        queue.make_room()?;
    }
    queue.block.0.push(number);
    Ok(())
}

/// The limits of a file of a session, with a short patience.
fn impatient() -> Limits {
    let short = Duration::from_millis(200);
    let patience = Patience { stuck: short, longest: 10 * short };
    Limits { full: patience, end: patience, ..Limits::file(|| 0) }
}

#[test]
fn all_comes_out_in_order_and_memory_is_used_again() {
    let (mut queue, told) = queue(Limits::file(|| 0));
    told.allowed.store(true, Ordering::SeqCst);
    for number in 0..100_000 {
        put(&mut queue, number).expect("it is waited for");
        if number % 997 == 0 {
            queue.idle().expect("it is written");
        }
    }
    queue.finish().expect("all is written");
    assert!(told.written.lock().expect("nobody panics").iter().copied().eq(0..100_000));
    assert_eq!(queue.lost(), 0);
    let mut memory = std::mem::take(&mut *told.memory.lock().expect("nobody panics"));
    memory.sort_unstable();
    memory.dedup();
    assert!(memory.len() < 100, "{} blocks", memory.len());
    assert_eq!(put(&mut queue, 0).map_err(|error| error.kind()), Err(io::ErrorKind::NotConnected));
    assert_eq!(queue.lost(), 1);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (mut queue, told) = queue(Limits::device(false));
    let refused = (0..1000).filter(|&number| put(&mut queue, number).is_err()).count() as u64;
    assert!(queue.is_ready(), "nobody waits");
    assert_eq!((refused, queue.lost()), (900, 900));
    told.allowed.store(true, Ordering::SeqCst);
    queue.finish().expect("all is written");
    assert!(told.written.lock().expect("nobody panics").iter().copied().eq(0..100));
    assert_eq!(queue.lost(), 900);
}

#[test]
fn a_full_queue_is_waited_for() {
    let (mut queue, told) = queue(Limits::file(|| 0));
    let mut count = 0;
    while queue.is_ready() {
        put(&mut queue, count).expect("there is room");
        count += 1;
    }
    assert_eq!(count, 100 - 100 / 8, "memory is bounded");
    let later = std::thread::spawn({
        let told = Arc::clone(&told);
        move || {
            std::thread::sleep(Duration::from_millis(200));
            told.allowed.store(true, Ordering::SeqCst);
        }
    });
    (count..1000).for_each(|number| put(&mut queue, number).expect("it is waited for"));
    queue.finish().expect("all is written");
    assert!(told.written.lock().expect("nobody panics").iter().copied().eq(0..1000));
    assert_eq!(queue.lost(), 0);
    later.join().expect("it ends");
}

#[test]
fn who_asks_twice_for_the_end_waits_no_longer() {
    static ASKED: AtomicU64 = AtomicU64::new(1);
    let (mut queue, told) = queue(Limits::file(|| ASKED.load(Ordering::SeqCst) as u32));
    let asks = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(200));
        ASKED.store(2, Ordering::SeqCst);
    });
    let refused = (0..1000).filter(|&number| put(&mut queue, number).is_err()).count();
    asks.join().expect("it ends");
    assert_eq!(refused, 900);
    assert_eq!(queue.finish().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
    assert_eq!((queue.lost(), told.written.lock().expect("nobody panics").len()), (1000, 0));
}

#[test]
fn a_writer_that_takes_nothing_is_given_up_at_the_end() {
    let (mut queue, told) = queue(impatient());
    (0..50).for_each(|number| put(&mut queue, number).expect("there is room"));
    let begin = Instant::now();
    assert_eq!(queue.finish().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
    assert!((200..2000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    assert_eq!((queue.lost(), told.written.lock().expect("nobody panics").len()), (50, 0));
    assert!(queue.is_ready(), "nobody waits for it");
}

/// The tracer asks once for many records. If it waited for room for one, no thread of a program
/// would be served.
#[test]
fn who_asks_first_puts_an_eighth_in_without_a_wait() {
    let (mut queue, _told) = queue(impatient());
    while queue.is_ready() {
        (0..12).for_each(|number| put(&mut queue, number).expect("it is not waited for, and not given up"));
    }
    assert_eq!(queue.lost(), 0);
}

#[test]
fn a_writer_that_is_given_up_while_the_queue_is_full_has_failed() {
    let (mut queue, told) = queue(impatient());
    let refused = (0..1000).filter(|&number| put(&mut queue, number).is_err()).count();
    assert_eq!(refused, 900, "it is waited for once");
    told.allowed.store(true, Ordering::SeqCst);
    assert_eq!(queue.idle().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
    queue.finish().expect("it was told");
    assert_eq!((queue.lost(), told.written.lock().expect("nobody panics").len()), (1000, 0));
}

#[test]
fn a_writer_that_hangs_is_left_alone_and_what_it_has_is_counted() {
    let (mut queue, told) = queue(impatient());
    told.hangs.store(true, Ordering::SeqCst);
    (0..50).for_each(|number| put(&mut queue, number).expect("there is room"));
    assert_eq!(queue.finish().map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
    assert_eq!(queue.lost(), 50);
    told.allowed.store(true, Ordering::SeqCst);
    drop(queue);
}

/// A writer that has failed is called again, or with `fails_once` never.
#[test]
fn a_failure_is_told_once_and_what_is_lost_is_counted() {
    for fails_once in [false, true] {
        let (mut queue, told) = queue(Limits { fails_once, ..Limits::file(|| 0) });
        told.fails_at.store(3, Ordering::SeqCst);
        told.allowed.store(true, Ordering::SeqCst);
        let mut refused = 0;
        for number in 0..50 {
            refused += u64::from(put(&mut queue, number).is_err());
            // A block is written as a whole before the next one.
            while queue.is_busy() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let failed = queue.idle().map_err(|error| error.kind());
        assert_eq!(failed, Err(io::ErrorKind::StorageFull));
        let finished = queue.finish().is_ok();
        let written = told.written.lock().expect("nobody panics").len() as u64;
        let expected = if fails_once { (3, 47) } else { (43, 7) };
        assert_eq!(((written, queue.lost()), finished), (expected, true));
        assert_eq!(refused > 0, fails_once, "{refused}");
    }
}

#[test]
fn without_a_record_there_is_no_thread() {
    let (mut queue, _told) = queue(Limits::file(|| 0));
    queue.idle().expect("there is nothing");
    queue.finish().expect("there is nothing");
    assert!(queue.thread.is_none());
    assert!(put(&mut queue, 1).is_err());
}

#[test]
fn notes_are_bounded() {
    let mut notes = Notes::default();
    (0..1000).for_each(|number| notes.push(&number.to_string()));
    let told = notes.take();
    assert_eq!(told.len(), MAX_NOTES + 1);
    assert_eq!(told.last().map(String::as_str), Some("warning: 936 more messages of this kind"));
    assert!(notes.take().is_empty());
}
