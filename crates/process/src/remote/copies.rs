//! A child is copied: what the copy has, and what the child sees of it. The tracer may die at each
//! step.

use std::io::{PipeReader, Read};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use super::child::{Child, Flags, refuge, stopped};
use super::*;
use crate::{Caller, Event, Stat, Status};

/// A word of the child's own memory that changes all the time.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Runs in the child, in a process group of its own, and must not allocate. Returns whether it has
/// never seen a child, nor a signal of one.
fn live(waits: bool, flags: &Flags, pipe: &mut PipeReader) -> bool {
    let sees_none = || {
        // SAFETY: a system call on integers and a null pointer.
        let found = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
        found == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
    };
    // SAFETY: system calls on integers.
    unsafe { libc::setpgid(0, 0) };
    flags.ready.store(1, Ordering::Release);
    let mut good = true;
    if waits {
        let mut byte = [0];
        good &= pipe.read(&mut byte).is_ok_and(|count| count == 1) && byte == [7];
    } else {
        while flags.end.load(Ordering::Acquire) == 0 {
            COUNT.fetch_add(1, Ordering::Relaxed);
            good &= sees_none();
        }
    }
    good && sees_none()
}

/// The living processes of a process's group, without itself.
fn others_of_group(group: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("it is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_other = |&pid: &i32| {
        pid != group
            && Stat::read(pid).is_ok_and(|stat| stat.group == group)
            && Status::read(pid).is_ok_and(|status| !status.has_ended())
    };
    pids.filter(is_other).collect()
}

fn count_of(pid: i32) -> u64 {
    let mut word = [0; 8];
    let memory = Memory::open(pid).expect("it lives and is traced");
    memory.peek((&raw const COUNT).addr() as u64, &mut word).expect("it is mapped");
    u64::from_le_bytes(word)
}

#[test]
fn a_copy_has_the_memory_of_its_moment_and_its_process_never_sees_it() {
    let refuge = refuge();
    let child = Child::new(|flags, pipe| live(false, flags, pipe));
    child.wait_until_ready(false);
    let (thread, entrance) = stopped(child.pid, Some(refuge));
    let caller = Caller::begin(thread, Stop::Interrupt, entrance).expect("it lives");
    let (caller, adopts) = caller.adopts_orphans().expect("it lives");
    assert!(!adopts.expect("the kernel says"));
    let (caller, copied) = caller.copy_process().expect("it lives");
    let copied = copied.expect("there is memory");
    let count = count_of(copied.pid());
    assert_eq!(count_of(child.pid), count);
    let status = Status::read(copied.pid()).expect("it lives");
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::gettid() };
    assert_eq!((status.tracer, status.state), (own, 't'));
    assert_ne!(status.parent, child.pid);
    assert_eq!(std::fs::read_dir(format!("/proc/{}/fd", copied.pid())).expect("it lives").count(), 0);
    assert_eq!(others_of_group(child.pid), [copied.pid()]);
    let (thread, _) = caller.end().expect("it lives");
    thread.detach(0);
    child.wait_until(&"counting", |_| {
        let mut word = [0; 8];
        let read = crate::read(child.pid, (&raw const COUNT).addr() as u64, &mut word);
        read.is_ok() && u64::from_le_bytes(word) > count + 1000
    });
    assert_eq!(count_of(copied.pid()), count);
    assert!(copied.lives() && copied.has_memory());
    copied.kill();
    child.wait_until(&"killed", |_| {
        let mut word = [0; 8];
        let read = crate::read(copied.pid(), (&raw const COUNT).addr() as u64, &mut word);
        assert!(read.is_ok() || !copied.has_memory());
        !copied.lives()
    });
    assert!(!copied.has_memory());
    let ended = loop {
        if let Some(Event::Ended { tid, .. }) = crate::look_at(copied.pid()).expect("it is traced") {
            break tid;
        }
    };
    assert_eq!(ended, copied.pid());
    child.end(&"copied");
}

/// Checks that nothing is left and the child is unharmed if the tracer dies at this step; `None` if
/// there are fewer steps.
fn dies_at(waits: bool, last: u32) -> Option<()> {
    let refuge = refuge();
    let forked = Child::new(|flags, pipe| live(waits, flags, pipe));
    let child = forked.pid;
    forked.wait_until_ready(waits);
    let tracer = std::thread::spawn(move || {
        let (thread, entrance) = stopped(child, Some(refuge));
        let mut step = 0;
        let mut count = || {
            if step == last {
                // The tracer's thread ends without a message, and so releases the child.
                resume_unwind(Box::new(()));
            }
            step += 1;
        };
        let (thread, mut away) = thread.begin_detour(entrance, &mut count).expect("it lives");
        let code = refuge.stub + StubMemory::COPY;
        let (thread, copied) = away.copy_process(thread, code, &mut count).expect("it lives");
        let copied = copied.expect("there is memory");
        let (thread, _) = away.end_detour(thread, &mut count).expect("it lives");
        thread.detach(0);
        // The kernel kills it, as it does when a tracer dies.
        std::mem::forget(copied);
    });
    let died = tracer.join().is_err();
    forked.wait_until(&(waits, last, "free"), |_| {
        let is_free = |status: Status| status.tracer == 0 && status.state != 't' && status.blocked == 0;
        Status::read(child).is_ok_and(is_free) && others_of_group(child).is_empty()
    });
    forked.end(&(waits, last));
    died.then_some(())
}

#[test]
fn where_no_process_can_be_made_there_is_no_copy() {
    /// The id of a user that has no process.
    const USER: u32 = 61_235;
    if !testing::is_root() {
        return testing::skipped("copies: a limit of processes", "root");
    }
    // There is no room for the helper, or for the copy.
    for limit in [1, 2] {
        let refuge = refuge();
        let child = Child::new(|flags, pipe| {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: system calls, on integers and a structure that is only read.
            let limited = unsafe {
                libc::setrlimit(libc::RLIMIT_NPROC, &limit) == 0 && libc::setresuid(USER, USER, USER) == 0
            };
            limited && live(false, flags, pipe)
        });
        child.wait_until_ready(false);
        let (thread, entrance) = stopped(child.pid, Some(refuge));
        let caller = Caller::begin(thread, Stop::Interrupt, entrance).expect("it lives");
        let (caller, copied) = caller.copy_process().expect("it lives");
        match copied.expect_err("there is a limit") {
            Error::Remote { cause, .. } => assert_eq!(cause.raw_os_error(), Some(libc::EAGAIN)),
            other => panic!("{other}"),
        }
        let (thread, _) = caller.end().expect("it lives");
        thread.detach(0);
        child.end(&limit);
    }
}

#[test]
fn no_process_is_left_whenever_the_tracer_dies() {
    for waits in [false, true] {
        let steps = (0..40).take_while(|&last| dies_at(waits, last).is_some()).count();
        assert!(steps >= 14, "{waits}: {steps} steps");
    }
}
