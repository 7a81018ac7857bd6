//! Memory that the tracer and a process share, and what a process knows about itself, tested with
//! real processes of all kinds.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crate::common::{Scratch, have};
use crate::obedient::{FILTERED, Target, programs};
use dprobes_process::{
    Birth, Caller, Entrance, Error, Stop, Stopped, StubMemory, keeps_its_id, read, shared_memory,
    thread_id_offset, write,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SIZE: u64 = 0x8_0000;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Private memory at an unmapped address.
const MAP_LOW: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

fn begin(thread: Stopped, stop: Stop, syscall: Entrance) -> Caller {
    Caller::begin(thread, stop, syscall).unwrap_or_else(|(_, error)| panic!("{error}"))
}

/// A process can unmap or change what its threads make calls by, at any moment.
#[test]
fn a_call_by_memory_that_is_gone_fails_and_changes_nothing() {
    let scratch = Scratch::new();
    for (kind, program) in programs(&scratch) {
        let target = Target::start(&program);
        let (place, syscall) = target.room(SIZE);
        let (thread, _) = target.stop(target.pid);
        let before = thread.registers().expect("its registers").words();
        let arguments = [place, SIZE, READ_WRITE as u64, MAP_LOW, !0, 0];
        let (thread, _, mapped) = thread.call(syscall, libc::SYS_mmap, arguments).expect("it lives");
        assert_eq!(mapped.expect("there is room"), place, "{kind}");
        // Writable memory is not executable; and it contains only zeros.
        let gone = Entrance { refuge: Some(StubMemory { stub: place, end: place + SIZE }), ..syscall };
        let (thread, _, failed) = thread.call(gone, libc::SYS_getpid, [0; 6]).expect("it lives");
        assert_eq!(failed.expect_err("nothing can be called").raw_os_error(), Some(libc::EFAULT), "{kind}");
        assert_eq!(thread.registers().expect("its registers").words(), before, "{kind}");
        let (thread, _, pid) = thread.call(syscall, libc::SYS_getpid, [0; 6]).expect("it lives");
        assert_eq!(pid.expect("a plain call"), target.pid as u64, "{kind}");
        thread.resume(0);
        target.quit();
    }
}

#[test]
fn memory_is_shared_with_every_kind_of_process_and_nothing_else_changes() {
    let scratch = Scratch::new();
    for (kind, program) in programs(&scratch) {
        let target = Target::start(&program);
        let (mappings, descriptors) = target.look();
        let (place, syscall) = target.room(SIZE);
        let memory = shared_memory(SIZE).expect("memory");
        let file = File::from(memory.try_clone().expect("a descriptor"));
        file.write_all_at(b"from the tracer", 100).expect("it is large enough");
        let (thread, stop) = target.stop(target.pid);
        let before = thread.registers().expect("its registers").words();
        let began = Instant::now();
        let caller = begin(thread, stop, syscall);
        let (caller, shared) = share(caller, &memory, place);
        println!("{kind}: shared in {:?}", began.elapsed());
        shared.unwrap_or_else(|error| panic!("{kind}: {error}"));
        // Again at the now occupied address: refused, and nothing is lost.
        let (caller, again) = share(caller, &memory, place);
        assert!(matches!(again, Err(Error::Remote { call: "mmap", .. })), "{kind}: {again:?}");
        let (thread, _) = caller.end().expect("it lives");
        assert_eq!(thread.registers().expect("its registers").words(), before, "{kind}");
        let mut bytes = [0; 15];
        read(target.pid, place + 100, &mut bytes).expect("it is mapped");
        assert_eq!(&bytes, b"from the tracer", "{kind}");
        write(target.pid, place + SIZE - 16, b"from the process").expect("it may write");
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, SIZE - 16).expect("it is large enough");
        assert_eq!(&bytes, b"from the process", "{kind}");
        let (now, now_open) = target.look();
        assert_eq!(now_open, descriptors, "{kind}");
        let new: Vec<_> = now.iter().filter(|range| !mappings.contains(range)).collect();
        assert_eq!(new, [&(place, place + SIZE)], "{kind}");
        // Unmapped again.
        let (caller, unmapped) =
            begin(thread, Stop::Interrupt, syscall).unmap(place, SIZE).expect("it lives");
        unmapped.expect("it was mapped");
        let (thread, _) = caller.end().expect("it lives");
        assert_eq!(target.look(), (mappings, descriptors), "{kind}");
        thread.resume(0);
        target.quit();
    }
}

#[test]
fn a_process_without_descriptors_left_is_as_it_was() {
    let scratch = Scratch::new();
    for (kind, program) in programs(&scratch) {
        // With room for none, for one and for two more descriptors: either the pair or the received
        // one does not fit.
        for more in 0..=2 {
            let target = Target::start(&program);
            let before = target.look();
            let is_free = |number: &u64| !before.1.contains(&OsString::from(number.to_string()));
            let limit = (0..).filter(is_free).nth(more).expect("there are always more numbers");
            let limit = libc::rlimit64 { rlim_cur: limit, rlim_max: limit };
            // SAFETY: the kernel reads one structure.
            let set =
                unsafe { libc::prlimit64(target.pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
            assert_eq!(set, 0);
            let (place, syscall) = target.room(SIZE);
            let memory = shared_memory(SIZE).expect("memory");
            let (thread, stop) = target.stop(target.pid);
            let caller = begin(thread, stop, syscall);
            let (caller, shared) = share(caller, &memory, place);
            let Err(Error::Remote { call, .. }) = shared else { panic!("{kind}, {more} more: {shared:?}") };
            assert_eq!(call, if more < 2 { "socketpair" } else { "recvmsg" }, "{kind}");
            let (thread, _) = caller.end().expect("it lives");
            assert_eq!(target.look(), before, "{kind}, {more} more");
            thread.resume(0);
            target.quit();
        }
    }
}

/// Maps shared memory, with scratch memory that is mapped only meanwhile.
fn share(caller: Caller, memory: &OwnedFd, place: u64) -> (Caller, Result<(), Error>) {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let arguments = [0, 4096, READ_WRITE as u64, flags, !0, 0];
    let (caller, scratch) = caller.call("mmap", libc::SYS_mmap, arguments).expect("it lives");
    let scratch = scratch.expect("there is memory");
    let (caller, shared) = caller.share(memory.as_fd(), place, SIZE, READ_WRITE, scratch).expect("it lives");
    let mut bytes = [1; 4096];
    read(caller.thread().tid(), scratch, &mut bytes).expect("it is mapped");
    assert_eq!(bytes, [0; 4096]);
    let (caller, unmapped) = caller.unmap(scratch, 4096).expect("it lives");
    unmapped.expect("it was mapped");
    (caller, shared)
}

#[test]
fn a_child_finds_what_is_private_wiped_and_what_is_shared_as_it_is() {
    let scratch = Scratch::new();
    for (kind, program) in programs(&scratch).into_iter().filter(|(kind, _)| *kind != "raw") {
        let mut target = Target::start(&program);
        let (place, syscall) = target.room(2 * SIZE);
        let memory = shared_memory(SIZE).expect("memory");
        let (thread, stop) = target.stop(target.pid);
        let caller = begin(thread, stop, syscall);
        let (caller, mapped) = caller.map(place, 4096, READ_WRITE).expect("it lives");
        mapped.expect("there is room");
        let (caller, marked) = caller.wipe_on_fork(place, 4096).expect("it lives");
        marked.expect("the kernel knows it");
        let (caller, shared) = share(caller, &memory, place + SIZE);
        shared.expect("there is room");
        let (thread, _) = caller.end().expect("it lives");
        write(target.pid, place, &[9; 8]).expect("it may write");
        write(target.pid, place + SIZE, &[8; 8]).expect("it may write");
        thread.resume(0);
        target.order(b'f');
        let (parent, stop) = target.until(target.pid, |stop| matches!(stop, Stop::Clone { .. }));
        let Stop::Clone { child, kind: birth } = stop else { unreachable!("just looked at") };
        assert_eq!(birth, Birth::Fork, "{kind}");
        let (born, _) = target.until(child, |stop| matches!(stop, Stop::Interrupt));
        let page = |pid: i32, place: u64| {
            let mut bytes = [1; 8];
            read(pid, place, &mut bytes).expect("it is mapped");
            bytes
        };
        assert_eq!((page(target.pid, place), page(child, place)), ([9; 8], [0; 8]), "{kind}");
        assert_eq!((page(target.pid, place + SIZE), page(child, place + SIZE)), ([8; 8], [8; 8]), "{kind}");
        write(child, place + SIZE, &[7; 8]).expect("it may write");
        assert_eq!(page(target.pid, place + SIZE), [7; 8], "{kind}");
        let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        born.resume(0);
        parent.resume(0);
        target.quit();
    }
}

#[test]
fn threads_keep_their_ids_where_their_libc_does() {
    let scratch = Scratch::new();
    for (kind, program) in programs(&scratch) {
        let mut target = Target::start(&program);
        let (first, _) = target.stop(target.pid);
        let offset = thread_id_offset(&[&first]);
        if kind == "raw" {
            assert_eq!(offset, None);
            assert_eq!(first.rseq_registration(), None);
            first.resume(0);
            target.quit();
            continue;
        }
        let offset = offset.unwrap_or_else(|| panic!("{kind}: no place is known"));
        if let Some(rseq) = first.rseq_registration() {
            let pointer = first.registers().expect("its registers").fs_base();
            println!("{kind}: id at {offset:#x}, rseq at {:#x}", rseq.address.wrapping_sub(pointer));
            assert_eq!((rseq.signature, rseq.size), (0x5305_3053, 32));
            assert_eq!(Some(rseq.address), first.rseq_area());
        } else {
            println!("{kind}: id at {offset:#x}, no rseq");
            assert_eq!(kind, "musl");
        }
        first.resume(0);
        target.order(b't');
        let (first, stop) = target.until(target.pid, |stop| matches!(stop, Stop::Clone { .. }));
        let Stop::Clone { child, .. } = stop else { unreachable!("just looked at") };
        let (second, _) = target.until(child, |stop| matches!(stop, Stop::Interrupt));
        assert!(keeps_its_id(&second, offset), "{kind}: at its birth");
        assert!(!keeps_its_id(&second, offset + 8));
        assert_eq!(thread_id_offset(&[&first, &second]), Some(offset));
        first.resume(0);
        second.resume(0);
        target.quit();
    }
}

/// Drops CAP_SYS_ADMIN from this thread.
fn without_administration() {
    /// The structures of capset(2).
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_ADMIN: u32 = 21;
    let mut header = [VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the kernel reads and writes the two structures, which have that size.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()), 0);
        sets[0] &= !(1 << CAP_SYS_ADMIN);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
fn a_filtered_process_is_refused_before_it_is_touched() {
    if !have("inject (seccomp)", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("filtered.c", FILTERED, "filtered", &[]);
    let target = Target::start(&program);
    let before = target.look();
    let (place, syscall) = target.room(SIZE);
    let (thread, stop) = target.stop(target.pid);
    let memory = shared_memory(SIZE).expect("memory");
    // If the test may suspend filters, this works; then it gives up that capability.
    let thread = match Caller::begin(thread, stop, syscall) {
        Ok(caller) => {
            let (caller, shared) = share(caller, &memory, place);
            shared.expect("the filters are suspended");
            let (caller, unmapped) = caller.unmap(place, SIZE).expect("it lives");
            unmapped.expect("it was mapped");
            caller.end().expect("it lives").0
        }
        Err((thread, _)) => thread,
    };
    without_administration();
    let (thread, error) = Caller::begin(thread, Stop::Interrupt, syscall).expect_err("it must be refused");
    assert!(matches!(&error, Error::Unsuitable { reason, .. } if reason.contains("seccomp")), "{error}");
    assert_eq!(target.look(), before);
    thread.resume(0);
    target.quit();
}
