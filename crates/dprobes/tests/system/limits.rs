//! Limits and signals that would kill the tracer: it removes the probes before it ends, or it does
//! not end.

use crate::support::{
    Run, Scratch, Server, attach, changed_text, counting, dprobes, file_offset, is_traced, need, target,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Waits for the end of a command that must not hang.
#[track_caller]
fn ends(command: &mut Command) -> (ExitStatus, String) {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("dprobes starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child can be waited for").is_none() {
        if begun.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it has ended");
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Sets a limit of this process, both soft and hard.
fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the kernel reads one structure.
    match unsafe { libc::setrlimit(resource, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that a server works on and has nothing of dprobes in it.
#[track_caller]
fn works_on(mut server: Server) {
    let pid = server.pid();
    let begun = Instant::now();
    while is_traced(pid) || !changed_text(pid).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the probes are still in");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.ask("call 20"), "done 20");
    assert!(server.end().0.success());
}

#[test]
fn a_file_that_may_not_grow_ends_nobody() {
    let program = need!("limits", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let scratch = Scratch::new();
    let point = format!("{}:server_work:entry", program.display());
    assert!(file_offset(&program, "server_work").is_some());
    let mut command = dprobes();
    command.args(["attach", "--for", "3s", "-p", &server.pid().to_string(), "--at", &point]);
    command.args(["--do", "push r, rdi; log 1", "-o"]).arg(scratch.path().join("records"));
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(|| limit(libc::RLIMIT_FSIZE, 2048)) };
    let tracing = std::thread::spawn(move || ends(&mut command));
    while !is_traced(server.pid()) && !tracing.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    while !tracing.is_finished() {
        assert_eq!(server.ask("call 2000"), "done 2000");
    }
    let (status, said) = tracing.join().expect("it has ended");
    assert!(status.code().is_some(), "{status}: {said}");
    works_on(server);
}

#[test]
fn a_command_has_its_own_actions_for_signals() {
    let program = need!("limits", target("server"), "gcc");
    let words = ["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"];
    let alone = Command::new(words[0]).args(&words[1..]).output().expect("there is a grep");
    let outcome = Run::new(&counting(&program, ["server_work"])).on(words);
    // Signals beyond belong to the C library, or are unused.
    let ordinary = |text: &str| -> Vec<u64> {
        let sets = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        sets.map(|set| u64::from_str_radix(set, 16).expect("a set") & 0x7fff_ffff).collect()
    };
    assert_eq!(ordinary(&outcome.stdout), ordinary(&String::from_utf8_lossy(&alone.stdout)));
}

#[test]
fn signals_that_would_end_the_tracer_take_the_probes_out() {
    let program = need!("limits", target("server"), "gcc");
    for signal in [libc::SIGXCPU, libc::SIGUSR1, libc::SIGALRM, libc::SIGQUIT, libc::SIGRTMIN() + 3] {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let mut attached = attach(server.pid(), &counting(&program, ["server_work"]), &[]);
        attached.wait_for(server.pid(), &program, "server_work");
        assert_eq!(server.ask("call 7"), "done 7");
        // SAFETY: kill takes no pointers; the front lives and has not reaped its child.
        assert_eq!(unsafe { libc::kill(attached.tracer(), signal) }, 0);
        let outcome = attached.end();
        assert_eq!(outcome.stats.hits(1), 7, "{signal}: {outcome:#?}");
        works_on(server);
    }
}

#[test]
fn without_proc_nothing_is_begun() {
    let unshare = need!("limits", testing::find_program("unshare"), "unshare");
    if !testing::is_root() {
        return testing::skipped("limits: a mount namespace", "root");
    }
    let script = "umount -l /proc && exec \"$0\" run --at nothing:main:entry --do 'inc lv, 0; abort' -- true";
    let mut command = Command::new(unshare);
    command.args(["-m", "sh", "-c", script]).arg(env!("CARGO_BIN_EXE_dprobes"));
    let (status, said) = ends(&mut command);
    assert_eq!(status.code(), Some(125), "{said}");
    assert!(said.contains("/proc/self"), "{said}");
}

#[test]
fn without_threads_nothing_is_begun() {
    /// The id of a user that does not exist.
    const USER: u32 = 61_234;
    if !testing::is_root() {
        return testing::skipped("limits: a limit of processes", "root");
    }
    // Others may not enter the directory of the build.
    let copy = std::env::temp_dir().join(format!("dprobes-limits-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_dprobes"), &copy).expect("room for a copy");
    let mut command = Command::new(&copy);
    command.args(["run", "--at", "nothing:main:entry", "--do", "inc lv, 0; abort", "--", "true"]);
    command.current_dir("/").uid(USER).gid(USER);
    // Two processes, the front and the tracer: the tracer cannot start its second thread.
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(|| limit(libc::RLIMIT_NPROC, 2)) };
    let (status, said) = ends(&mut command);
    std::fs::remove_file(copy).expect("it is ours");
    assert_eq!(status.code(), Some(125), "{said}");
    assert!(said.contains("thread cannot be started"), "{said}");
}

#[test]
fn an_error_that_nobody_reads_is_still_one() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut command = dprobes();
    command.args(["check", "/nowhere/program.rpn"]).stdin(Stdio::null()).stderr(writer);
    assert_eq!(command.status().expect("dprobes starts").code(), Some(1));
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut command = dprobes();
    command.args(["completions", "bash"]).stdin(Stdio::null()).stdout(writer);
    assert_eq!(command.status().expect("dprobes starts").code(), Some(1));
}

/// Failing to write requested output is an error.
#[test]
fn a_full_disk_is_an_error() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/malloc.rpn");
    let commands = [
        &["check", program][..],
        &["man", "lang"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
        &["help", "run"],
        &["attach", "--help"],
        &["session", "status", "-h"],
    ];
    for words in commands {
        let full = std::fs::File::create("/dev/full").expect("it is there");
        let output = dprobes().args(words).stdout(full).output().expect("dprobes starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains("No space left on device"), "{words:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{words:?}: {error}");
    }
}
