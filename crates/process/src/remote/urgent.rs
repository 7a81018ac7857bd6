//! Which threads make several calls with one stop, and that nobody sees the signal by which it comes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::{Running, Status};

/// What a child does about the signal, and meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Nothing; it computes.
    Plain,
    /// It has a handler for it.
    Handles,
    /// It blocks it.
    Blocks,
    /// It has one that waits, which it blocks.
    Pending,
    /// It ignores it.
    Ignores,
    /// It sleeps: the kernel has noted how the call goes on.
    Sleeps,
    /// It waits for a byte in a pipe.
    Waits,
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

/// The life of a child, which must not allocate: 0 if all was as it should be.
fn live(who: Who, ready: &AtomicU32, end: &AtomicU32, pipe: i32) -> i32 {
    // SAFETY: system calls on local variables.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGURG);
        match who {
            Who::Handles => {
                libc::signal(libc::SIGURG, count as *const () as libc::sighandler_t);
            }
            Who::Ignores => {
                libc::signal(libc::SIGURG, libc::SIG_IGN);
            }
            Who::Blocks | Who::Pending => {
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            _ => {}
        }
        if who == Who::Pending {
            libc::raise(libc::SIGURG);
        }
        ready.store(1, Ordering::Release);
        let good = match who {
            Who::Sleeps => {
                let begin = Instant::now();
                let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000_000 };
                let slept = libc::nanosleep(&time, std::ptr::null_mut());
                slept == 0 && begin.elapsed() >= Duration::from_millis(300)
            }
            Who::Waits => {
                let mut byte = 0u8;
                libc::read(pipe, (&raw mut byte).cast(), 1) == 1 && byte == 7
            }
            _ => {
                while end.load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
                true
            }
        };
        // One that waits is still the only one.
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut pending);
        let waits = libc::sigismember(&pending, libc::SIGURG) == 1;
        let as_it_was = SEEN.load(Ordering::Relaxed) == 0 && waits == (who == Who::Pending);
        i32::from(!(good && as_it_was))
    }
}

/// Has a child make calls; gives whether it made them with one stop.
fn chains(who: Who, refuge: bool) -> bool {
    let map = |protection| {
        // SAFETY: a fresh mapping.
        let place = unsafe {
            let flags = libc::MAP_ANONYMOUS
                | if protection & libc::PROT_EXEC == 0 { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            libc::mmap(std::ptr::null_mut(), 2 * Refuge::ROOM as usize, protection, flags, -1, 0)
        };
        assert_ne!(place, libc::MAP_FAILED);
        place
    };
    let flags = map(libc::PROT_READ | libc::PROT_WRITE).cast::<[AtomicU32; 2]>();
    // SAFETY: zeros in shared memory, which stays; atomics may be shared.
    let [ready, end] = unsafe { &*flags };
    let refuge = refuge.then(|| {
        let place = map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        // SAFETY: the mapping was made above.
        unsafe { std::ptr::copy_nonoverlapping(STUB.as_ptr(), place.cast(), STUB.len()) };
        Refuge { stub: place as u64, end: place as u64 + 2 * Refuge::ROOM }
    });
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors. The child makes only calls that are safe after a fork, and ends.
    let child = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::_exit(live(who, ready, end, pipe[0]));
        }
        child
    };
    let until = Instant::now() + Duration::from_secs(60);
    let sleeps = || Status::read(child).is_ok_and(|status| status.state == 'S');
    while ready.load(Ordering::Acquire) == 0 || matches!(who, Who::Sleeps | Who::Waits) && !sleeps() {
        assert!(Instant::now() < until, "{who:?} is not ready");
        std::thread::sleep(Duration::from_millis(1));
    }
    let thread = Running::seize(child).expect("an own child");
    thread.interrupt().expect("it lives");
    let (thread, _) = Stopped::new(child).next_stop().expect("it lives");
    let memory = Memory::open(child).expect("it lives");
    let mappings = crate::maps(child).expect("its mappings");
    let entrance = find_syscall(&memory, &mappings, Machine::X86_64).expect("it makes calls");
    let (thread, mut away) = thread.set_out(Entrance { refuge, ..entrance }, &mut || ()).expect("it lives");
    // A call that fails is between two that do not, and more calls than one chain has.
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
    let (thread, _) = away.come_back(thread, &mut || ()).expect("it lives");
    thread.detach(0);
    end.store(1, Ordering::Release);
    let mut status = 0;
    // SAFETY: one byte into a pipe with a reader; a wait for an own child.
    unsafe {
        assert_eq!(libc::write(pipe[1], [7u8].as_ptr().cast(), 1), 1);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        for end in pipe {
            libc::close(end);
        }
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{who:?}, {refuge:?}: {status:#x}");
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
