//! The tracer dies at each step of a call: a thread that ends lets go what it traces, as a process does that is killed.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::{Running, Status};

/// The calls that the child makes for the tracer, one after another.
const CALLS: usize = 3;

/// What the child waits for.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// It computes until it is told to end.
    Computes,
    /// It waits for a byte in a pipe.
    Waits,
}

/// Shared with the child.
struct Flags {
    ready: AtomicU32,
    end: AtomicU32,
}

/// Some work for the general and the vector registers, always with the same result.
#[inline(never)]
fn work() -> u64 {
    let (mut sum, mut float) = (1u64, 1.0f64);
    for step in 0..1000u64 {
        sum = sum.wrapping_mul(31).wrapping_add(step);
        float = float * 1.000_1 + step as f64;
    }
    sum ^ std::hint::black_box(float).to_bits()
}

fn map(size: usize, protection: i32, flags: i32) -> u64 {
    // SAFETY: a fresh mapping.
    let place =
        unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_ANONYMOUS | flags, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    place as u64
}

/// The signals that the child blocks.
const BLOCKED: u64 = 1 << (libc::SIGUSR2 - 1);

/// The life of a child, which must not allocate: 0 if all was as it should be.
fn live(life: Life, flags: &Flags, pipe: i32) -> i32 {
    let expected = work();
    // SAFETY: system calls on local variables.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR2);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
    flags.ready.store(1, Ordering::Release);
    let mut good = true;
    match life {
        Life::Computes => {
            while flags.end.load(Ordering::Acquire) == 0 {
                good &= work() == expected;
            }
        }
        Life::Waits => {
            let mut byte = 0u8;
            // SAFETY: one byte into a local variable.
            good &= unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } == 1 && byte == 7;
        }
    }
    i32::from(!(good && work() == expected))
}

/// How the child makes its calls, and where its way back is.
#[derive(Clone, Copy, Debug)]
struct How {
    life: Life,
    /// The tracer has memory of its own in the child.
    own: bool,
    /// All calls with one stop.
    together: bool,
}

/// Whether a call in which the tracer dies at this step does the child no harm; `None`: there are not so many steps.
fn dies_at(how: How, last: u32) -> Option<()> {
    let How { life, own, together } = how;
    let flags = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED) as *const Flags;
    // SAFETY: zeros in shared memory, which stays; atomics may be shared.
    let flags = unsafe { &*flags };
    let refuge = own.then(|| {
        let size = 2 * Refuge::ROOM;
        let place = map(size as usize, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: the mapping was made above.
        unsafe {
            std::ptr::copy_nonoverlapping(STUB.as_ptr(), place as *mut u8, STUB.len());
            libc::mprotect(place as *mut _, 4096, libc::PROT_READ | libc::PROT_EXEC);
        }
        Refuge { stub: place, end: place + size }
    });
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors. The child makes only calls that are safe after a fork, and ends.
    let child = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::_exit(live(life, flags, pipe[0]));
        }
        child
    };
    let wait_until = |what: &str, is: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(Instant::now() < end, "{how:?}, step {last}: not {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until("ready", &|| flags.ready.load(Ordering::Acquire) == 1);
    if matches!(life, Life::Waits) {
        wait_until("waiting", &|| Status::read(child).is_ok_and(|status| status.state == 'S'));
    }
    let before = crate::maps(child).expect("its mappings").len();
    let tracer = std::thread::spawn(move || {
        let thread = Running::seize(child).expect("an own child");
        thread.interrupt().expect("it lives");
        let (thread, _) = Stopped::new(child).next_stop().expect("it lives");
        let memory = Memory::open(child).expect("it lives");
        let entrance = find_syscall(&memory, &crate::maps(child).expect("its mappings"), Machine::X86_64);
        let entrance = Entrance { refuge, ..entrance.expect("it makes calls") };
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let mut step = 0;
        let mut count = || {
            if step == last {
                // Quietly, in the middle of it: the thread ends, and lets the child go.
                resume_unwind(Box::new(()));
            }
            step += 1;
        };
        let (mut thread, mut away) = thread.set_out(entrance, &mut count).expect("it lives");
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
        let (thread, _) = away.come_back(thread, &mut count).expect("it lives");
        thread.detach(0);
    });
    let died = tracer.join().is_err();
    wait_until("free", &|| Status::read(child).is_ok_and(|status| status.tracer == 0 && status.state != 't'));
    std::thread::sleep(Duration::from_millis(3));
    // It makes the call by itself and goes on, or has not begun.
    let more = crate::maps(child).expect("its mappings").len() - before;
    assert!(more <= 1 + CALLS, "{how:?}, step {last}: {more} more mappings");
    let status = Status::read(child).expect("it lives");
    assert_eq!(status.blocked, BLOCKED, "{how:?}, step {last}");
    flags.end.store(1, Ordering::Release);
    let mut end = 0;
    // SAFETY: one byte into a pipe with a reader; a wait for an own child.
    unsafe {
        assert_eq!(libc::write(pipe[1], [7u8].as_ptr().cast(), 1), 1);
        assert_eq!(libc::waitpid(child, &mut end, 0), child);
        for end in pipe {
            libc::close(end);
        }
    }
    assert!(libc::WIFEXITED(end) && libc::WEXITSTATUS(end) == 0, "{how:?}, step {last}: {end:#x}");
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
