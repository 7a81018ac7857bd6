//! Which threads make several calls with one stop, and that the program never sees the signal that
//! this uses.

use std::io::{PipeReader, Read};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigmaskHow, Signal, raise};

use super::child::{Child, Flags, mask, refuge, stopped};
use super::*;

/// What a child does with the signal, or meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Nothing; it runs.
    Plain,
    /// It has a handler for it.
    Handles,
    /// It blocks it.
    Blocks,
    /// It blocks it and has one pending.
    Pending,
    /// It ignores it.
    Ignores,
    /// It sleeps: the kernel has a restart block for the call.
    Sleeps,
    /// It waits for a byte in a pipe.
    Waits,
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

/// Sets the child's action for the signal.
fn handle(action: libc::sighandler_t) {
    // SAFETY: the handler, if it is one, only adds to an atomic.
    unsafe { libc::signal(libc::SIGURG, action) };
}

/// Whether the signal is pending.
fn is_pending() -> bool {
    // SAFETY: all zeros are an empty set, which the call fills.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut pending);
        libc::sigismember(&pending, libc::SIGURG) == 1
    }
}

/// Runs in the child and must not allocate. Returns whether all went well.
fn live(who: Who, flags: &Flags, pipe: &mut PipeReader) -> bool {
    match who {
        Who::Handles => handle(count as *const () as libc::sighandler_t),
        Who::Ignores => handle(libc::SIG_IGN),
        Who::Blocks | Who::Pending => mask(SigmaskHow::SIG_BLOCK, Signal::SIGURG),
        _ => {}
    }
    if who == Who::Pending {
        let _ = raise(Signal::SIGURG);
    }
    flags.ready.store(1, Ordering::Release);
    let good = match who {
        Who::Sleeps => {
            let begin = Instant::now();
            let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000_000 };
            // SAFETY: the time is only read. (The standard library would sleep on.)
            let slept = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
            slept == 0 && begin.elapsed() >= Duration::from_millis(300)
        }
        Who::Waits => {
            let mut byte = [0];
            pipe.read(&mut byte).is_ok_and(|count| count == 1) && byte == [7]
        }
        _ => {
            while flags.end.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            true
        }
    };
    // One that was pending is still the only one.
    good && SEEN.load(Ordering::Relaxed) == 0 && is_pending() == (who == Who::Pending)
}

/// Makes calls in a child; returns whether it made them with one stop.
fn chains(who: Who, own: bool) -> bool {
    let refuge = own.then(refuge);
    let child = Child::new(|flags, pipe| live(who, flags, pipe));
    child.wait_until_ready(matches!(who, Who::Sleeps | Who::Waits));
    let (thread, entrance) = stopped(child.pid, refuge);
    let (thread, mut away) = thread.begin_detour(entrance, &mut || ()).expect("it lives");
    // A failing call between two that succeed, and more calls than fit in one chain.
    let fails: Numbers = (libc::SYS_close, [!0, 0, 0, 0, 0, 0]);
    let asks: Numbers = (libc::SYS_getppid, [0; 6]);
    let calls: Vec<Numbers> = (0..11).map(|number| if number % 3 == 1 { fails } else { asks }).collect();
    let (thread, results) = away.calls(thread, &calls, None, &mut || ()).expect("it lives");
    let parent = u64::from(std::process::id());
    for (number, result) in results.iter().enumerate() {
        match number % 3 {
            1 => assert_eq!(result.as_ref().err().and_then(io::Error::raw_os_error), Some(libc::EBADF)),
            _ => assert_eq!(result.as_ref().ok(), Some(&parent), "{who:?}, call {number}"),
        }
    }
    assert_eq!(results.len(), calls.len());
    let is_chained = away.chains.flatten().is_some();
    let (thread, _) = away.end_detour(thread, &mut || ()).expect("it lives");
    thread.detach(0);
    child.end(&(who, own));
    is_chained
}

#[test]
fn only_who_would_not_see_the_signal_is_sent_it() {
    let expected = [
        (Who::Plain, true),
        (Who::Handles, false),
        (Who::Blocks, false),
        (Who::Pending, false),
        (Who::Ignores, true),
        (Who::Sleeps, false),
        (Who::Waits, true),
    ];
    for refuge in [false, true] {
        for (who, chained) in expected {
            assert_eq!(chains(who, refuge), chained, "{who:?}, {refuge}");
        }
    }
}
