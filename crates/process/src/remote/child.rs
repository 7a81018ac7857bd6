//! A child process in which the tests make calls.

use std::fmt::Debug;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use image::Machine;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::*;
use crate::{Running, Status};

/// What a child shares with its test.
#[derive(Debug)]
pub(super) struct Flags {
    /// Set when the child has begun.
    pub(super) ready: AtomicU32,
    /// Set when the child shall end.
    pub(super) end: AtomicU32,
}

/// A child that waits until it is told to end.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: i32,
    flags: &'static Flags,
    pipe: PipeWriter,
}

impl Child {
    /// Forks a child that runs `live`. That must not allocate, and returns whether all went well.
    pub(super) fn new(live: impl FnOnce(&Flags, &mut PipeReader) -> bool) -> Child {
        let flags = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED) as *const Flags;
        // SAFETY: zeros in shared memory, which stays; atomics may be shared.
        let flags = unsafe { &*flags };
        let (mut reader, pipe) = pipe().expect("descriptors");
        // SAFETY: the child makes only calls that are safe after a fork, and ends.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(i32::from(!live(flags, &mut reader)));
            }
            pid
        };
        Child { pid, flags, pipe }
    }

    /// Waits until a condition holds.
    pub(super) fn wait_until(&self, what: &dyn Debug, is: impl Fn(&Flags) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is(self.flags) {
            assert!(Instant::now() < end, "not {what:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the child has begun and, if it will sleep in a call, sleeps there.
    pub(super) fn wait_until_ready(&self, sleeps: bool) {
        self.wait_until(&"ready", |flags| flags.ready.load(Ordering::Acquire) == 1);
        if sleeps {
            self.wait_until(&"asleep", |_| Status::read(self.pid).is_ok_and(|status| status.state == 'S'));
        }
    }

    /// Tells the child to end, and asserts that all went well in it.
    pub(super) fn end(mut self, what: &dyn Debug) {
        self.flags.end.store(1, Ordering::Release);
        self.pipe.write_all(&[7]).expect("it has the other end");
        let pid = Pid::from_raw(self.pid);
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 0)), "{what:?}");
    }
}

/// Stops a child, and finds its entrance to the kernel.
pub(super) fn stopped(child: i32, refuge: Option<StubMemory>) -> (Stopped, Entrance) {
    let thread = Running::seize(child).expect("an own child");
    thread.interrupt().expect("it lives");
    let (thread, _) = Stopped::new(child).next_stop().expect("it lives");
    let memory = Memory::open(child).expect("it lives");
    let mappings = crate::maps(child).expect("its mappings");
    let entrance = find_syscall(&memory, &mappings, Machine::X86_64).expect("it makes calls");
    (thread, Entrance { refuge, ..entrance })
}

/// Maps new memory and returns its address.
fn map(size: usize, protection: i32, flags: i32) -> u64 {
    // SAFETY: the kernel chooses where it is; nothing else is mapped there.
    let place = unsafe { libc::mmap(null_mut(), size, protection, libc::MAP_ANONYMOUS | flags, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    place as u64
}

/// The tracer's memory in children that are forked later.
pub(super) fn refuge() -> StubMemory {
    let size = 2 * StubMemory::ROOM;
    let place = map(size as usize, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    // SAFETY: the mapping was made above, and nobody else knows it.
    unsafe {
        let code = StubMemory::code();
        std::ptr::copy_nonoverlapping(code.as_ptr(), place as *mut u8, code.len());
        libc::mprotect(place as *mut _, 4096, libc::PROT_READ | libc::PROT_EXEC);
    }
    StubMemory { stub: place, end: place + size }
}

/// Changes the calling thread's signal mask by one signal.
pub(super) fn mask(how: SigmaskHow, signal: Signal) {
    let _ = sigprocmask(how, Some(&SigSet::from(signal)), None);
}
