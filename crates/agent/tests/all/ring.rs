//! Records in a ring: complete, in order, dropped and counted if there is no room, or waited for.

use crate::common;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Bench, identity};
use dprobes_agent::image::{Entry, image};
use layout::{ABANDONED, ExtraHeader, HEADER, HandlerInfo, LOST_MARK, MORE, RING_SIZE, UNSET, state};
use testing::conformance::assemble;
use vm::{Call, Element, Program, Word};

fn describe(bench: &Bench, text: &str, logmax: usize) -> HandlerInfo {
    let code = assemble(&text.lines().map(str::to_owned).collect::<Vec<_>>(), Word::W8).code;
    let point = vm::ProbepointInfo { major: 11, minor: 12, ..vm::ProbepointInfo::default() };
    bench.describe(&Program { code: &code, logmax, point, ..Program::default() }, 0)
}

#[test]
fn a_record_says_all_of_its_hit() {
    let mut bench = Bench::new();
    let mut info = describe(&bench, "push 5\nlog 1\nsetmaj 3\nexit", 1024);
    info.record = state::TENTATIVE;
    bench.context().holder.store(4343, Ordering::Relaxed);
    bench.registers().general[4] = 0x88;
    let left = bench.run(&info);
    assert_eq!(left.result, bench.ring, "a tentative record is the caller's to commit");
    let record = bench.record(0);
    assert_eq!((record.log, record.trace), (&5u64.to_le_bytes()[..], &[][..]));
    assert_eq!((record.state, record.has_log), (state::TENTATIVE, true));
    assert_eq!(record.more, Some(ExtraHeader { major: 3, minor: 12, traces: 0 }));
    assert_eq!((record.header.time, record.header.number), (99, 7));
    assert_eq!((record.header.tid, record.header.rsp), (4343, 0x88));
    // SAFETY: a system call without arguments.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    assert!(i64::from(record.header.processor & 0xfff) < processors);
    assert_eq!(record.size, (HEADER + 8 + MORE) as u64);
    assert_eq!(bench.context().head.load(Ordering::Relaxed), record.size);
}

#[test]
fn what_makes_no_record_makes_none() {
    let mut bench = Bench::new();
    let nothing = std::ptr::from_ref(&identity().dummy_state) as u64;
    let head = |bench: &Bench| bench.context().head.load(Ordering::Relaxed);
    let run = |bench: &mut Bench, text: &str, logmax| {
        let info = describe(bench, text, logmax);
        bench.run(&info).result
    };
    assert_eq!(run(&mut bench, "push 5\nlog 1\nabort", 1024), nothing);
    assert_eq!(run(&mut bench, "push 5\nlog st\nabort", 1024), nothing);
    assert_eq!(run(&mut bench, "exit", 0), nothing);
    assert_eq!(head(&bench), 0);
    // The first run that removes the probe makes a record, the next does not.
    assert_eq!(run(&mut bench, "push 5\nlog 1\nremove", 1024), nothing);
    assert_eq!((head(&bench), bench.over.load(Ordering::Relaxed)), (40, 1 << 32 | 1));
    assert_eq!(run(&mut bench, "push 5\nlog 1\nremove", 1024), nothing);
    assert_eq!(head(&bench), 40);
    // An empty log is a record; a record may also have stack traces and no log.
    assert_eq!(run(&mut bench, "exit", 1024), nothing);
    assert_eq!((head(&bench), bench.record(40).has_log), (72, true));
    assert_eq!(run(&mut bench, "log st\nexit", 0), nothing);
    let record = bench.record(72);
    assert!(!record.has_log && record.log.is_empty() && !record.trace.is_empty());
    assert_eq!(record.more.map(|more| (more.major, more.minor)), Some((11, 12)));
    assert_eq!(head(&bench), 72 + record.size);
    assert_eq!(bench.dropped.load(Ordering::Relaxed), 0);
}

#[test]
fn a_run_goes_on_where_compiled_code_has_left_off() {
    let mut bench = Bench::new();
    let text = "push 1\ncall p\nlog 3\nexit\np: nop\nmiddle: push 30\nret";
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let assembled = assemble(&lines, Word::W8);
    let info = describe(&bench, text, 1024);
    let info_place = bench.begin(&info);
    // The run has logged 3 bytes at the place of its future record, pushed 10 and 20, and is in the
    // procedure.
    let log = bench.ring + HEADER as u64;
    // SAFETY: the ring is the test's.
    unsafe { (log as *mut [u8; 3]).write([1, 2, 3]) };
    let back = assembled.code.len() as u32 - 9 - 1 - 1 - 1 - 3;
    let resume = bench.resume();
    (resume.log, resume.log_length, resume.complete, resume.time) = (log, 3, 3, 5);
    (resume.offset, resume.top) = (assembled.labels["middle"] as u32, 1022);
    (resume.elements[0], resume.elements[1]) =
        (Element { slot: 1023, value: 10 }, Element { slot: 1022, value: 20 });
    (resume.element_count, resume.call_count, resume.calls_made) = (2, 1, 1);
    resume.calls[0] = Call { callee: assembled.labels["p"] as u32, back };
    (resume.major, resume.minor) = (UNSET, 9);
    bench.call(info_place);
    let record = bench.record(0);
    let words: Vec<u8> = [30u64, 20, 10].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(record.log, [&[1, 2, 3], &words[..]].concat());
    assert_eq!((record.more, record.header.time), (Some(ExtraHeader { major: 11, minor: 9, traces: 0 }), 5));
}

/// A handler that logs 3,000 bytes and the number in rax.
const LOGS: &str = "push r rax\nlog 1\nrepeat 375\npush 6\nend\nlog 375\nexit";

/// The size of its record.
const SIZE: u64 = HEADER as u64 + 8 + 3000;

/// Removes all records from the ring; returns their numbers.
fn take(bench: &Bench) -> Vec<u64> {
    take_with_losses(bench).0
}

/// The same with the marked losses: before which record, and how many.
fn take_with_losses(bench: &Bench) -> (Vec<u64>, Vec<(usize, u32)>) {
    let (mut numbers, mut losses) = (Vec::new(), Vec::new());
    let mut tail = bench.control().tail.0.load(Ordering::Relaxed);
    while tail < bench.control().head.0.load(Ordering::Acquire) {
        // SAFETY: the first 8 bytes of a ring entry are always mapped.
        let kind = unsafe { ((bench.ring + tail % RING_SIZE) as *const u32).read() };
        let size = if kind == state::SKIP {
            RING_SIZE - tail % RING_SIZE
        } else if kind == state::LOST {
            // SAFETY: likewise.
            let count = unsafe { ((bench.ring + tail % RING_SIZE + 4) as *const u32).read() };
            losses.push((numbers.len(), count));
            LOST_MARK as u64
        } else {
            let record = bench.record(tail);
            assert_eq!((record.state, record.size), (state::COMMITTED, SIZE));
            assert!(record.log[8..].chunks_exact(8).all(|word| word == 6u64.to_le_bytes()));
            numbers.push(u64::from_le_bytes(record.log[..8].try_into().expect("8 bytes")));
            record.size
        };
        tail += size;
    }
    bench.control().tail.0.store(tail, Ordering::Release);
    (numbers, losses)
}

#[test]
fn a_full_ring_drops_and_counts_and_what_is_in_it_stays() {
    let mut bench = Bench::new();
    let info = describe(&bench, LOGS, 20_000);
    let fits = RING_SIZE / SIZE;
    let mut next = 0;
    let (mut dropped, mut before) = (0, 0);
    for round in 0..5 {
        let from = next;
        for _ in 0..fits + 10 {
            bench.registers().general[0] = next;
            bench.run(&info);
            next += 1;
        }
        let now = bench.dropped.load(Ordering::Relaxed);
        let (numbers, losses) = take_with_losses(&bench);
        assert_eq!(numbers.len() as u64 + (now - dropped), fits + 10, "round {round}");
        // The losses of the previous round are marked before the first record.
        let expected = if round == 0 { vec![] } else { vec![(0, before as u32)] };
        assert_eq!(losses, expected, "round {round}");
        before = now - dropped;
        // The end of the ring may have no room for one.
        assert!((fits - 1..=fits).contains(&(numbers.len() as u64)), "{}", numbers.len());
        assert!(numbers.iter().copied().eq(from..from + numbers.len() as u64));
        dropped = now;
    }
}

/// The reader's sign of life is shared by all rings of a process, so tests that wait for it take
/// turns.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn with_lossless_nothing_is_dropped() {
    let _alone = alone();
    let mut bench = Bench::new();
    let mut info = describe(&bench, LOGS, 20_000);
    info.lossless = 1;
    let total = 4 * RING_SIZE / SIZE;
    std::thread::scope(|scope| {
        let reading = bench.clone();
        let reader = scope.spawn(move || {
            let mut numbers = Vec::new();
            let deadline = Instant::now() + Duration::from_secs(60);
            while (numbers.len() as u64) < total {
                numbers.extend(take(&reading));
                std::thread::sleep(Duration::from_millis(1));
                assert!(Instant::now() < deadline, "only {}", numbers.len());
            }
            numbers
        });
        for number in 0..total {
            bench.registers().general[0] = number;
            bench.run(&info);
        }
        assert!(reader.join().expect("it reads").into_iter().eq(0..total));
    });
    assert_eq!(bench.dropped.load(Ordering::Relaxed), 0);
}

/// Fills the ring and continues to log: the handler waits until its reader is `abandoned`, and
/// drops records from then on.
fn waits_until(bench: &mut Bench, info: &HandlerInfo, abandoned: impl FnOnce() + Send) {
    for _ in 0..RING_SIZE / SIZE {
        bench.run(info);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            abandoned();
        });
        let began = Instant::now();
        bench.run(info);
        assert!(began.elapsed() >= Duration::from_millis(40), "it has waited");
        bench.run(info);
    });
    assert_eq!(bench.dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn nobody_waits_for_a_reader_that_is_gone() {
    let _alone = alone();
    let mut bench = Bench::new();
    let mut info = describe(&bench, LOGS, 20_000);
    info.lossless = 1;
    let leaving = bench.clone();
    waits_until(&mut bench, &info, move || leaving.control().tail.0.store(ABANDONED, Ordering::Release));
}

#[test]
fn nobody_waits_when_the_reader_of_all_rings_is_dead() {
    let _alone = alone();
    let mut bench = Bench::new();
    let mut info = describe(&bench, LOGS, 20_000);
    info.lossless = 1;
    // SAFETY: the word is mapped, and atomic to all.
    let reader = unsafe { &*(common::loaded().reader as *const AtomicU64) };
    waits_until(&mut bench, &info, || reader.store(ABANDONED, Ordering::Release));
    // The reader was only asleep: it reads on, and nothing more is lost.
    reader.store(1, Ordering::Release);
    assert_eq!(take(&bench).len() as u64, RING_SIZE / SIZE);
    bench.run(&info);
    assert_eq!((take(&bench).len(), bench.dropped.load(Ordering::Relaxed)), (1, 2));
}

#[test]
fn compiled_code_waits_for_room_by_the_other_entry() {
    let _alone = alone();
    let mut bench = Bench::new();
    let info = describe(&bench, LOGS, 20_000);
    for _ in 0..RING_SIZE / SIZE {
        bench.run(&info);
    }
    // SAFETY: the entry is mapped and takes these arguments.
    let wait: extern "C" fn(u64, u64) =
        unsafe { std::mem::transmute(image().entry(Entry::Wait, common::loaded().base) as *const ()) };
    let reading = bench.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            take(&reading);
        });
        let began = Instant::now();
        wait(bench.context, 100_000);
        assert!(began.elapsed() >= Duration::from_millis(40), "it has waited");
    });
    let context = bench.context();
    assert_eq!(context.seen_tail.load(Ordering::Relaxed), bench.control().tail.0.load(Ordering::Relaxed));
    assert_eq!(context.head.load(Ordering::Relaxed), bench.control().tail.0.load(Ordering::Relaxed));
}
