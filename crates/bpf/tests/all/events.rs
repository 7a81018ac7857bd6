//! Events that the kernel counts, on each processor.

use std::time::{Duration, Instant};

use bpf::{AttachError, Event, EventKind, Every, ProgramKind};

use crate::support::{Words, counter, load, permitted};

/// The processors that are online, as far as they have the first numbers.
fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

#[test]
fn a_clock_fires_on_each_processor_that_works_while_the_link_lives() {
    if !permitted("a_clock_fires_on_each_processor_that_works_while_the_link_lives") {
        return;
    }
    for (every, cookie) in [(Every::Count(1_000_000), 1), (Every::Hertz(500), 2)] {
        let words = Words::new();
        let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
        let attach = |processor| Event::clock(every).attach(&program, processor, cookie as u64);
        let links: Result<Vec<_>, _> = (0..processors()).map(attach).collect();
        let links = links.expect("the kernel has a clock");
        let begun = Instant::now();
        while words.get(cookie) < 20 && begun.elapsed() < Duration::from_secs(60) {
            std::hint::black_box(begun.elapsed());
        }
        assert!(words.get(cookie) >= 20, "{every:?}: {}", words.get(cookie));
        drop(links);
    }
}

#[test]
fn what_nothing_counts_is_refused() {
    if !permitted("what_nothing_counts_is_refused") {
        return;
    }
    let words = Words::new();
    let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
    let event = Event { kind: EventKind::Software, number: 1 << 20, every: Every::Count(1) };
    assert!(matches!(event.attach(&program, 0, 0), Err(AttachError::Event(_))));
}

#[test]
fn the_members_of_the_kernels_structs_are_found() {
    // A kernel without type information answers with an error.
    let Ok(found) = bpf::kernel_members("task_struct", ["pid", "tgid"]) else { return };
    let [pid, tgid] = found.expect("a task has numbers");
    assert_eq!(tgid, pid + 4);
    assert_eq!(bpf::kernel_members("task_struct", ["no_such_member"]), Ok(None));
}
