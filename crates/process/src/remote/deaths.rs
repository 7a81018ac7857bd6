//! The tracer dies at each step of a call. It is a thread here: when it ends, it releases the
//! threads that it traces, as a killed process does.

use std::collections::HashSet;
use std::io::{PipeReader, Read};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::{SigmaskHow, Signal};

use super::child::{Child, Flags, mask, refuge, stopped};
use crate::Status;

/// How many calls the child makes for the tracer, one after another.
const CALLS: usize = 3;

/// What the child does.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// It computes until it is told to end.
    Computes,
    /// It waits for a byte in a pipe.
    Waits,
}

/// Work in general and vector registers that always has the same result.
#[inline(never)]
fn work() -> u64 {
    let (mut sum, mut float) = (1u64, 1.0f64);
    for step in 0..1000u64 {
        sum = sum.wrapping_mul(31).wrapping_add(step);
        float = float * 1.000_1 + step as f64;
    }
    sum ^ std::hint::black_box(float).to_bits()
}

/// The signals that the child blocks.
const BLOCKED: u64 = 1 << (libc::SIGUSR2 - 1);

/// Runs in the child and must not allocate. Returns whether all went well.
fn live(life: Life, flags: &Flags, pipe: &mut PipeReader) -> bool {
    let expected = work();
    mask(SigmaskHow::SIG_SETMASK, Signal::SIGUSR2);
    flags.ready.store(1, Ordering::Release);
    let mut good = true;
    match life {
        Life::Computes => {
            while flags.end.load(Ordering::Acquire) == 0 {
                good &= work() == expected;
            }
        }
        Life::Waits => {
            let mut byte = [0];
            good &= pipe.read(&mut byte).is_ok_and(|count| count == 1) && byte == [7];
        }
    }
    good && work() == expected
}

/// How the child makes its calls, and where stub and frame are.
#[derive(Clone, Copy, Debug)]
struct How {
    life: Life,
    /// The tracer has its own memory in the child.
    own: bool,
    /// All calls are made with one stop.
    together: bool,
}

/// Checks that the child is unharmed if the tracer dies at this step; `None` if there are fewer
/// steps.
fn dies_at(how: How, last: u32) -> Option<()> {
    let How { life, own, together } = how;
    let refuge = own.then(refuge);
    let forked = Child::new(|flags, pipe| live(life, flags, pipe));
    let child = forked.pid;
    forked.wait_until_ready(matches!(life, Life::Waits));
    let before = crate::maps(child).expect("its mappings").len();
    let tracer = std::thread::spawn(move || {
        let (thread, entrance) = stopped(child, refuge);
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let mut step = 0;
        let mut count = || {
            if step == last {
                // The tracer's thread ends without a message, and so releases the child.
                resume_unwind(Box::new(()));
            }
            step += 1;
        };
        let (mut thread, mut away) = thread.begin_detour(entrance, &mut count).expect("it lives");
        let arguments = [0, 4096, protection, flags, !0, 0];
        if together {
            let calls = [(libc::SYS_mmap, arguments); CALLS];
            let (stopped, results) = away.calls(thread, &calls, None, &mut count).expect("it lives");
            thread = stopped;
            let places: HashSet<u64> = results.into_iter().map(|it| it.expect("there is memory")).collect();
            assert_eq!(places.len(), CALLS);
        } else {
            for _ in 0..CALLS {
                let (stopped, result) =
                    away.call(thread, libc::SYS_mmap, arguments, &mut count).expect("it lives");
                thread = stopped;
                result.expect("there is memory");
            }
        }
        let (thread, _) = away.end_detour(thread, &mut count).expect("it lives");
        thread.detach(0);
    });
    let died = tracer.join().is_err();
    let is_free = |status: Status| status.tracer == 0 && status.state != 't' && status.blocked == BLOCKED;
    forked.wait_until(&(how, last, "free"), |_| Status::read(child).is_ok_and(is_free));
    std::thread::sleep(Duration::from_millis(3));
    // The child makes the calls by itself and continues, or has not begun.
    let more = crate::maps(child).expect("its mappings").len() - before;
    assert!(more <= 1 + CALLS, "{how:?}, step {last}: {more} more mappings");
    let status = Status::read(child).expect("it lives");
    assert_eq!(status.blocked, BLOCKED, "{how:?}, step {last}");
    forked.end(&(how, last));
    died.then_some(())
}

#[test]
fn a_thread_finds_back_alone_whenever_the_tracer_dies() {
    for life in [Life::Computes, Life::Waits] {
        for own in [false, true] {
            for (together, least) in [(false, 4 + 3 * CALLS), (true, 7)] {
                let how = How { life, own, together };
                let steps = (0..30).take_while(|&last| dies_at(how, last).is_some()).count();
                assert!(steps >= least, "{how:?}: {steps} steps");
            }
        }
    }
}
