//! Breakpoints on variables of this process.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use bpf::{Access, AttachError, Breakpoint, Errno, ProgramKind};

use crate::support::{Words, counter, load, permitted, thread, without_children};

/// A breakpoint on a variable for the thread that calls this.
fn on(variable: &AtomicU64, access: Access) -> Breakpoint {
    let address = std::ptr::from_ref(variable) as u64;
    Breakpoint {
        address,
        length: 8,
        access,
        thread: Some(thread()),
        processor: None,
        inherit: false,
        kernel: false,
    }
}

/// Skips the test if the processor, or the machine that imitates it, has no breakpoints.
#[track_caller]
fn attached(test: &str, result: Result<bpf::Link, AttachError>) -> Option<bpf::Link> {
    match result {
        Ok(link) => Some(link),
        Err(AttachError::Event(Errno::ENODEV | Errno::EOPNOTSUPP | Errno::ENOENT)) => {
            testing::skipped(&format!("optional: {test}"), "hardware breakpoints");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn accesses_to_a_variable_are_counted_while_the_link_lives() {
    let test = "accesses_to_a_variable_are_counted_while_the_link_lives";
    if !permitted(test) {
        return;
    }
    let words = Words::new();
    let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
    let variable = AtomicU64::new(0);
    let access = || {
        variable.store(1, Ordering::Relaxed);
        variable.store(2, Ordering::Relaxed);
        black_box(variable.load(Ordering::Relaxed));
    };
    let _links_end = without_children();
    // One after the other: a machine that imitates a processor may report one breakpoint an access.
    for (access_kind, cookie) in [(Access::Write, 1), (Access::ReadWrite, 2)] {
        let breakpoint = on(&variable, access_kind);
        let Some(_link) = attached(test, breakpoint.attach(&program, cookie)) else { return };
        access();
        // Another thread is none of this breakpoint's.
        std::thread::scope(|scope| scope.spawn(access).join()).expect("the thread only reads and writes");
    }
    access();
    assert_eq!(words.first(), [0, 2, 3]);
}

#[test]
fn threads_that_are_created_later_inherit_a_breakpoint() {
    let test = "threads_that_are_created_later_inherit_a_breakpoint";
    if !permitted(test) {
        return;
    }
    let words = Words::new();
    let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
    let variable = AtomicU64::new(0);
    let _links_end = without_children();
    let breakpoint = Breakpoint { inherit: true, ..on(&variable, Access::Write) };
    let Some(link) = attached(test, breakpoint.attach(&program, 1)) else { return };
    let (written, dropped) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            variable.store(1, Ordering::Relaxed);
            written.wait();
            dropped.wait();
            variable.store(2, Ordering::Relaxed);
        });
        written.wait();
        drop(link);
        dropped.wait();
    });
    // Which of the two threads' events was hit, and so the cookie, is not determined.
    let [zero, one] = words.first();
    assert_eq!(zero + one, 1, "{zero} {one}");
}

#[inline(never)]
extern "C" fn executed(argument: u64) -> u64 {
    black_box(argument) + 10
}

#[test]
fn calls_of_a_function_are_counted() {
    let test = "calls_of_a_function_are_counted";
    if !permitted(test) {
        return;
    }
    let words = Words::new();
    let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
    let unused = AtomicU64::new(0);
    let address = executed as extern "C" fn(u64) -> u64 as usize as u64;
    let breakpoint = Breakpoint { address, ..on(&unused, Access::Execute) };
    let Some(_link) = attached(test, breakpoint.attach(&program, 3)) else { return };
    for number in 0..4 {
        executed(number);
    }
    assert_eq!(words.get(3), 4);
}

#[test]
fn what_the_processor_cannot_watch_is_refused() {
    if !permitted("what_the_processor_cannot_watch_is_refused") {
        return;
    }
    let words = Words::new();
    let program = load(ProgramKind::PerfEvent, counter(), &[&words.map]);
    let variable = AtomicU64::new(0);
    let good = on(&variable, Access::Write);
    let unaligned = Breakpoint { address: good.address + 1, ..good };
    let three = Breakpoint { length: 3, ..good };
    for wrong in [unaligned, three] {
        assert_eq!(wrong.attach(&program, 0).err(), Some(AttachError::Event(Errno::EINVAL)), "{wrong:?}");
    }
}
