//! The first system calls that a process makes for its tracer go through a few bytes borrowed
//! behind the code of the vdso or of the dynamic linker. The tracer is killed before each of its
//! own system calls that change the process: afterwards the bytes are zeros again, and the program
//! works on.

use crate::support::{Scratch, Server, counting, dprobes, is_traced, memory, need, target};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// System calls that change a traced process: ptrace, pwrite64, process_vm_writev.
const CHANGING: [i64; 3] = [libc::SYS_ptrace, libc::SYS_pwrite64, libc::SYS_process_vm_writev];

/// `ptrace` on a process or thread that this test traces.
fn trace(request: u32, pid: i32, data: usize) {
    // SAFETY: the requests made here take an address of 0, and a number or a valid pointer.
    let done = unsafe { libc::ptrace(request, pid, 0usize, data) };
    assert_ne!(done, -1, "{request:#x}: {}", std::io::Error::last_os_error());
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is valid for the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) }, pid);
    status
}

/// Starts the command and lets it run until it has forked its tracer, which stays stopped and
/// traced by this thread; the front is detached.
fn split(command: &mut Command) -> (std::process::Child, i32) {
    // SAFETY: one system call without pointers in the child.
    let child = unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let child = child.spawn().expect("dprobes starts");
    let front = child.id() as i32;
    wait(front);
    trace(libc::PTRACE_SETOPTIONS, front, libc::PTRACE_O_TRACEFORK as usize);
    let mut tracer = 0u64;
    while tracer == 0 {
        trace(libc::PTRACE_CONT, front, 0);
        if wait(front) >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_FORK << 8 {
            trace(libc::PTRACE_GETEVENTMSG, front, (&raw mut tracer).addr());
        }
    }
    wait(tracer as i32);
    trace(libc::PTRACE_DETACH, front, 0);
    trace(libc::PTRACE_SETOPTIONS, tracer as i32, libc::PTRACE_O_TRACESYSGOOD as usize);
    (child, tracer as i32)
}

/// Whether a process has a guard, that is, its first calls are done.
fn has_guard(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("every process has one");
    u64::from_str_radix(line.trim(), 16).expect("a set") & 1 << (libc::SIGTRAP - 1) != 0
}

/// Kills a tracer before its `call`th system call that changes the process; returns whether the
/// first calls were done by then.
fn kill_before(call: usize, tracer: i32, pid: u32) -> bool {
    let (mut calls, mut entered) = (0, false);
    loop {
        trace(libc::PTRACE_SYSCALL, tracer, 0);
        let status = wait(tracer);
        assert!(libc::WIFSTOPPED(status), "the tracer ends by itself: {status:#x}");
        if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
            continue;
        }
        entered = !entered;
        // SAFETY: all zeros is a valid value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        trace(libc::PTRACE_GETREGS, tracer, (&raw mut registers).addr());
        if entered && CHANGING.contains(&registers.orig_rax.cast_signed()) {
            calls += 1;
            if calls > call {
                let made = has_guard(pid);
                // SAFETY: kill takes no pointers; the tracer is stopped, and this thread's.
                assert_eq!(unsafe { libc::kill(tracer, libc::SIGKILL) }, 0);
                wait(tracer);
                return made;
            }
        }
    }
}

/// The code of the vdso and of the dynamic linker in a process.
fn code(pid: u32) -> Vec<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let lines = maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && (line.contains("[vdso]") || line.contains("/ld-")));
    let read = lines.map(|line| {
        let (start, rest) = line.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("its end");
        let [start, end] = [start, end].map(|digits| u64::from_str_radix(digits, 16).expect("an address"));
        memory(pid, start, (end - start) as usize).expect("code can be read")
    });
    read.collect()
}

#[test]
fn leave_no_byte_behind_wherever_the_tracer_is_killed() {
    let program = need!("death", target("mortal"), "gcc");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &counting(&program, ["mix"]));
    for way in ["loop", "signals"] {
        let mut call = 0;
        loop {
            let server = Server::start(&program, [way]);
            server.line();
            let pid = server.pid();
            let before = code(pid);
            assert_eq!(before.len(), 2);
            let mut command = dprobes();
            command
                .args(["attach", "--max-overhead=none", "--engine", "trap", "-p", &pid.to_string()])
                .arg("-o")
                .arg("/dev/null")
                .arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let (mut front, tracer) = split(&mut command);
            let made = kill_before(call, tracer, pid);
            front.wait().expect("a child can be waited for");
            let start = Instant::now();
            while is_traced(pid) {
                assert!(start.elapsed() < Duration::from_secs(20), "{way}, call {call}: it is traced still");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(code(pid) == before, "{way}, call {call}: other bytes than before");
            // SAFETY: kill takes no pointers; the process is a child and was not reaped.
            unsafe { libc::kill(pid as i32, libc::SIGTERM) };
            let (status, lines) = server.end();
            assert!(status.success() && lines == ["right"], "{way}, call {call}: {status}, {lines:?}");
            if made {
                break;
            }
            call += 1;
        }
        assert!(call > 10, "{way}: {call} calls");
    }
}
