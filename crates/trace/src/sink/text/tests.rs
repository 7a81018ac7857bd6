//! Tests of text files that are slow, stuck, closed or full: what they contain, and what is
//! counted.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::queue::Patience;

/// How long a pipe of these tests may take nothing.
const STUCK: Duration = Duration::from_millis(900);

fn of_a_session() -> Limits {
    let patience = Patience { stuck: STUCK, longest: 10 * STUCK };
    Limits { full: patience, end: patience, ..Limits::file(|| 0) }
}

fn record(number: u32) -> Record {
    Record { minor: number, data: number.to_le_bytes().to_vec(), ..Record::default() }
}

/// A text file that writes to a pipe.
fn piped(limits: Limits) -> (TextFile, io::PipeReader) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (TextFile::new(File::from(OwnedFd::from(writer)), limits), reader)
}

/// The text of `count` records, and where each of them ends.
fn all(count: u32) -> (Vec<u8>, Vec<usize>) {
    let (mut texts, mut text, mut ends) = (ProgramTexts::default(), Vec::new(), Vec::new());
    for number in 0..count {
        texts.of(0).append(&record(number), &mut text);
        ends.push(text.len());
    }
    (text, ends)
}

fn put(file: &mut TextFile, count: u32) {
    (0..count).for_each(|number| file.record(0, &record(number)).expect("there is room"));
}

#[test]
fn all_that_is_put_in_comes_out_in_order() {
    let (mut file, mut reader) = piped(Limits::file(|| 0));
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).expect("it is read");
        all
    });
    for number in 0..200_000 {
        file.record(0, &record(number)).expect("it is written");
        if number % 1000 == 0 {
            file.idle().expect("it is written");
        }
    }
    file.finish().expect("it is written");
    drop(file);
    assert!(reader.join().expect("it reads") == all(200_000).0);
}

#[test]
fn a_file_that_takes_nothing_makes_it_unready_and_not_slow() {
    let (mut file, mut reader) = piped(Limits::file(|| 0));
    let mut count = 0;
    while file.is_ready() {
        file.record(0, &record(count)).expect("there is room");
        count += 1;
        assert!(count < 10_000_000, "memory is bounded");
    }
    let (expected, _) = all(count);
    let mut text = vec![0; expected.len()];
    let read = std::thread::spawn(move || reader.read_exact(&mut text).map(|()| text));
    file.finish().expect("it is read now");
    assert_eq!(file.lost(), 0);
    assert!(read.join().expect("it reads").expect("all of it") == expected);
}

/// The number of records in the tests with a reader that stops.
const COUNT: u32 = 50_000;

/// A file whose pipe is full after some of it was read, and how many bytes the pipe took in all.
fn stuck(limits: Limits) -> (TextFile, io::PipeReader, usize) {
    let (mut file, mut reader) = piped(limits);
    put(&mut file, COUNT);
    let mut some = vec![0; 100_003];
    reader.read_exact(&mut some).expect("so much comes");
    // Nobody reads now: wait until the pipe is full.
    let (mut before, mut waiting) = (-1, 0);
    while before != waiting || waiting < 4096 {
        before = waiting;
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: the call writes one number.
        unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
    }
    (file, reader, some.len() + waiting as usize)
}

/// The number of records that are not written as a whole.
fn missing(taken: usize) -> u64 {
    all(COUNT).1.iter().filter(|&&end| end > taken).count() as u64
}

fn kind(result: io::Result<()>) -> Result<(), io::ErrorKind> {
    result.map_err(|error| error.kind())
}

#[test]
fn a_reader_that_is_gone_is_told_and_every_lost_record_is_counted() {
    let (mut file, reader, taken) = stuck(Limits::file(|| 0));
    drop(reader);
    assert_eq!(kind(file.finish()), Err(io::ErrorKind::BrokenPipe));
    assert_eq!(file.lost(), missing(taken));
    assert!((0..1000).all(|number| file.record(0, &record(number)).is_err()), "none is taken any more");
    assert!(file.is_ready(), "nobody waits for it");
    assert_eq!(file.lost(), missing(taken) + 1000);
}

/// Gives up a stuck file and checks what is in its pipe.
fn gives_up(limits: Limits) -> Duration {
    let (mut file, mut reader, taken) = stuck(limits);
    let begin = Instant::now();
    assert_eq!(kind(file.finish()), Err(io::ErrorKind::Interrupted));
    let time = begin.elapsed();
    assert_eq!(file.lost(), missing(taken));
    assert!(file.record(0, &record(1)).is_err());
    drop(file);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("it is read");
    assert!(all(COUNT).0[..taken].ends_with(&rest), "nothing came after it was counted");
    time
}

#[test]
fn who_gives_up_knows_what_was_written() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let asks = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(3));
        ASKED.store(1, Ordering::SeqCst);
    });
    gives_up(Limits::file(|| ASKED.load(Ordering::SeqCst)));
    asks.join().expect("it ends");
}

#[test]
fn one_that_gives_up_by_itself_does_so_when_nothing_is_taken() {
    let time = gives_up(of_a_session());
    assert!((STUCK..5 * STUCK).contains(&time), "{time:?}");
}

#[test]
fn one_that_gives_up_by_itself_waits_as_long_as_something_is_taken() {
    let (mut file, mut reader, _) = stuck(of_a_session());
    let (text, _) = all(COUNT);
    let mut rest = vec![0; text.len() - 100_003];
    let read = std::thread::spawn(move || {
        let piece = rest.len() / 5 + 1;
        for piece in rest.chunks_mut(piece) {
            std::thread::sleep(STUCK / 3);
            reader.read_exact(piece).expect("it comes");
        }
        rest
    });
    file.finish().expect("all is written");
    assert_eq!(file.lost(), 0);
    assert!(text.ends_with(&read.join().expect("it reads")));
}

#[test]
fn a_full_device_takes_none_and_all_are_counted() {
    let full = File::options().write(true).open("/dev/full").expect("there is one");
    let mut file = TextFile::new(full, Limits::file(|| 0));
    let refused = (0..100_000).filter(|&number| file.record(0, &record(number)).is_err()).count();
    assert!(refused < 100_000, "the first are taken");
    assert!(file.finish().is_err());
    assert_eq!(file.lost(), 100_000);
}
