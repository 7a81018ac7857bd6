//! Programs that do what they are told, and are traced meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Scratch, have, run};
use dprobes_process::{
    Entrance, Event, Memory, Stop, Stopped, find_syscall, heap_start, look_at, low_gaps, low_places, maps,
};
use image::Machine;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Obeys one-byte orders from descriptor 0: `f` forks, `t` creates a thread, `q` quits with 7. It
/// is always in a system call that must continue as if nothing had happened.
pub(super) const OBEYS: &str = r#"
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
pub(super) const RAW: &str = r#"
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
pub(super) const FILTERED: &str = r#"
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
pub(super) struct Target {
    pub(super) pid: i32,
    orders: File,
}

impl Target {
    /// Starts a program, which waits for its first order.
    pub(super) fn start(program: &Path) -> Target {
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
    pub(super) fn wait_for_read(&self) {
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
    pub(super) fn pass_on(&self, tid: i32) -> Option<()> {
        match look_at(tid).ok()?? {
            Event::Stopped(stopped, Stop::Signal(signal)) => drop(stopped.resume(signal)),
            Event::Stopped(stopped, _) => drop(stopped.resume(0)),
            Event::Ended { status, .. } => panic!("{tid} has ended: {status:#x}"),
        }
        Some(())
    }

    /// Waits for a given stop of a thread, and resumes it from others.
    pub(super) fn until(&self, tid: i32, wanted: impl Fn(&Stop) -> bool) -> (Stopped, Stop) {
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
    pub(super) fn stop(&self, tid: i32) -> (Stopped, Stop) {
        interrupt(tid);
        self.until(tid, |stop| matches!(stop, Stop::Interrupt))
    }

    pub(super) fn order(&mut self, byte: u8) {
        self.orders.write_all(&[byte]).expect("it reads");
    }

    /// Tells it to quit, and asserts that it does so as if it had never been traced.
    pub(super) fn quit(mut self) {
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
    pub(super) fn room(&self, size: u64) -> (u64, Entrance) {
        let mappings = maps(self.pid).expect("its mappings");
        let gaps = low_gaps(&mappings, heap_start(self.pid));
        let place = *low_places(&gaps, size, 0x4_0000).first().expect("there is room below 2 GiB");
        let memory = Memory::open(self.pid).expect("its memory");
        let syscall = find_syscall(&memory, &mappings, Machine::X86_64).expect("it makes system calls");
        (place, syscall)
    }

    /// Its state as visible from outside: mappings and descriptors.
    pub(super) fn look(&self) -> (Vec<(u64, u64)>, BTreeSet<OsString>) {
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
pub(super) fn interrupt(tid: i32) {
    ptrace::interrupt(Pid::from_raw(tid)).expect("it is traced");
}

/// Compiles the programs for which there is a compiler.
pub(super) fn programs(scratch: &Scratch) -> Vec<(&'static str, PathBuf)> {
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
