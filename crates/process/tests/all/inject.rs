//! Memory that the tracer and a process share, and what a process knows about itself, tested with
//! real processes of all kinds.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Scratch, have, run};
use dprobes_process::{
    Birth, Caller, Entrance, Error, Event, Memory, Stop, Stopped, StubMemory, find_syscall, heap_start,
    keeps_its_id, look_at, low_gaps, low_places, maps, read, shared_memory, thread_id_offset, write,
};
use image::Machine;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Obeys one-byte orders from descriptor 0: `f` forks, `t` creates a thread, `q` quits with 7. It
/// is always in a system call that must continue as if nothing had happened.
const OBEYS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *idle(void *unused) { for (;;) pause(); return unused; }
int main(void) {
    char byte;
    while (read(0, &byte, 1) == 1) {
        pthread_t thread;
        if (byte == 'f' && fork() == 0) for (;;) pause();
        if (byte == 't' && pthread_create(&thread, 0, idle, 0)) return 1;
        if (byte == 'q') return 7;
    }
    return 2;
}
"#;

/// The same without a libc and with hardly any stack; it knows only `q`.
const RAW: &str = r#"
    .globl _start
_start:
    lea end(%rip), %rsp
again:
    xor %eax, %eax
    xor %edi, %edi
    lea byte(%rip), %rsi
    mov $1, %edx
    syscall
    cmp $1, %rax
    jne fail
    cmpb $'q', byte(%rip)
    jne again
    mov $60, %eax
    mov $7, %edi
    syscall
fail:
    mov $60, %eax
    mov $2, %edi
    syscall
    .bss
byte:
    .skip 8
end:
    .skip 8
    .section .note.GNU-stack, "", @progbits
"#;

/// The same behind a seccomp filter that kills for any unexpected call.
const FILTERED: &str = r#"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
int main(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_exit_group), ALLOW(SYS_restart_syscall),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    char byte;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    while (read(0, &byte, 1) == 1) if (byte == 'q') return 7;
    return 2;
}
"#;

/// A running traced program.
struct Target {
    pid: i32,
    orders: File,
}

impl Target {
    /// Starts a program, which waits for its first order.
    fn start(program: &Path) -> Target {
        let (reading, writing) = io::pipe().expect("descriptors");
        // The shell, started by this process, connects the program's descriptor 0.
        let path = format!("/proc/{}/fd/{}", std::process::id(), reading.as_raw_fd());
        let script = format!("exec {} < {path}", program.display());
        let command = ["/bin/sh", "-c", &script].map(OsString::from);
        let running = dprobes_process::start(&command, &Default::default()).expect("the shell starts");
        let pid = running.tid();
        let target = Target { pid, orders: File::from(OwnedFd::from(writing)) };
        for _ in ["the shell", "the program"] {
            let (stopped, _) = target.until(pid, |stop| matches!(stop, Stop::Exec { .. }));
            stopped.resume(0);
        }
        target.wait_for_read();
        target
    }

    /// Waits until the first thread is in read(0).
    fn wait_for_read(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let text = fs::read_to_string(format!("/proc/{}/syscall", self.pid)).unwrap_or_default();
            if text.starts_with("0 0x0 ")
                && dprobes_process::Status::read(self.pid).is_ok_and(|it| it.state == 'S')
            {
                return;
            }
            assert!(Instant::now() < deadline, "it reads its orders: {text}");
            let _ = self.pass_on(self.pid);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes a thread that has stopped for a reason of its own.
    fn pass_on(&self, tid: i32) -> Option<()> {
        match look_at(tid).ok()?? {
            Event::Stopped(stopped, Stop::Signal(signal)) => drop(stopped.resume(signal)),
            Event::Stopped(stopped, _) => drop(stopped.resume(0)),
            Event::Ended { status, .. } => panic!("{tid} has ended: {status:#x}"),
        }
        Some(())
    }

    /// Waits for a given stop of a thread, and resumes it from others.
    fn until(&self, tid: i32, wanted: impl Fn(&Stop) -> bool) -> (Stopped, Stop) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match look_at(tid).expect("it is traced") {
                Some(Event::Stopped(stopped, stop)) if wanted(&stop) => return (stopped, stop),
                Some(Event::Stopped(stopped, Stop::Signal(signal))) => drop(stopped.resume(signal)),
                Some(Event::Stopped(stopped, _)) => drop(stopped.resume(0)),
                Some(Event::Ended { status, .. }) => panic!("{tid} has ended: {status:#x}"),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
            assert!(Instant::now() < deadline, "{tid} does not stop");
        }
    }

    /// Stops a thread.
    fn stop(&self, tid: i32) -> (Stopped, Stop) {
        interrupt(tid);
        self.until(tid, |stop| matches!(stop, Stop::Interrupt))
    }

    fn order(&mut self, byte: u8) {
        self.orders.write_all(&[byte]).expect("it reads");
    }

    /// Tells it to quit, and asserts that it does so as if it had never been traced.
    fn quit(mut self) {
        self.order(b'q');
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            // Its other threads also stop when they exit.
            for other in dprobes_process::threads(self.pid).unwrap_or_default() {
                if other != self.pid
                    && let Ok(Some(Event::Stopped(stopped, _))) = look_at(other)
                {
                    stopped.resume(0);
                }
            }
            match look_at(self.pid).expect("it is traced") {
                Some(Event::Ended { status, .. }) => {
                    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
                    return;
                }
                Some(Event::Stopped(stopped, Stop::Signal(signal))) => drop(stopped.resume(signal)),
                Some(Event::Stopped(stopped, _)) => drop(stopped.resume(0)),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
            assert!(Instant::now() < deadline, "it does not quit");
        }
    }

    /// An address for a low mapping, and the entrance to the kernel.
    fn room(&self, size: u64) -> (u64, Entrance) {
        let mappings = maps(self.pid).expect("its mappings");
        let gaps = low_gaps(&mappings, heap_start(self.pid));
        let place = *low_places(&gaps, size, 0x4_0000).first().expect("there is room below 2 GiB");
        let memory = Memory::open(self.pid).expect("its memory");
        let syscall = find_syscall(&memory, &mappings, Machine::X86_64).expect("it makes system calls");
        (place, syscall)
    }

    /// Its state as visible from outside: mappings and descriptors.
    fn look(&self) -> (Vec<(u64, u64)>, BTreeSet<OsString>) {
        let mappings = maps(self.pid).expect("its mappings").iter().map(|it| (it.start, it.end)).collect();
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("its descriptors");
        (mappings, descriptors.map(|entry| entry.expect("one of them").file_name()).collect())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

/// Asks a running traced thread to stop.
fn interrupt(tid: i32) {
    ptrace::interrupt(Pid::from_raw(tid)).expect("it is traced");
}

/// Compiles the programs for which there is a compiler.
fn programs(scratch: &Scratch) -> Vec<(&'static str, PathBuf)> {
    let mut programs = Vec::new();
    if have("inject", &["gcc"]) {
        programs.push(("dynamic", scratch.compile("dynamic.c", OBEYS, "dynamic", &["-pthread"])));
        programs.push((
            "static",
            scratch.compile("static.c", OBEYS, "static", &["-pthread", "-static", "-no-pie"]),
        ));
        programs.push(("raw", scratch.compile("raw.s", RAW, "raw", &["-nostdlib", "-static", "-no-pie"])));
    }
    if have("inject (musl)", &["musl-gcc"]) {
        let (source, output) = (scratch.file("musl.c", OBEYS), scratch.path().join("musl"));
        run(std::process::Command::new("musl-gcc").arg("-static").arg("-o").arg(&output).arg(&source));
        programs.push(("musl", output));
    }
    assert!(!programs.is_empty(), "no compiler: nothing is tested");
    programs
}

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
