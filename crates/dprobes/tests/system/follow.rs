//! `dprobes show` on streams of raw events, whole and while they are written.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use crate::support::{
    Scratch, Server, Session, attach, becomes_traced, dprobes, engine, make_pipe, need, run, start_server,
    target,
};

fn program(module: &Path) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = server_work\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        module.display()
    )
}

/// `dprobes show` that follows a stream.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn new(stream: &Path) -> Follower {
        let mut command = dprobes();
        command.args(["show", "--follow", "--unformatted-output"]).arg(stream);
        // Of its own: a process group with a stopped process is sent SIGHUP when others of it end
        // whose parents are elsewhere (setpgid(2)).
        command.process_group(0);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Follower { child, lines }
    }

    /// Waits for the next records: the words that they logged.
    fn records(&mut self, count: usize) -> Vec<u64> {
        let mut words = Vec::new();
        let mut line = String::new();
        while words.len() < count {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "the stream has ended: {words:?}");
            words.extend(word(&line));
        }
        words
    }

    /// The other records up to the end of the stream, the status, and what was told.
    fn end(mut self) -> (usize, Option<i32>, String) {
        let mut told = String::new();
        let mut errors = self.child.stderr.take().expect("it is a pipe");
        let mut line = String::new();
        let mut count = 0;
        while self.lines.read_line(&mut line).expect("text") > 0 {
            count += usize::from(word(&line).is_some());
            line.clear();
        }
        errors.read_to_string(&mut told).expect("text");
        (count, self.child.wait().expect("it ends").code(), told)
    }
}

/// The word that a record logged, if the line has its bytes.
fn word(line: &str) -> Option<u64> {
    let bytes: String = line.strip_prefix("DProbes(3,1)  ")?.split_whitespace().collect();
    u64::from_str_radix(&bytes, 16).ok().map(u64::swap_bytes)
}

/// A session that writes a stream of a server's calls.
fn session(module: &Path) -> (Session, Server, PathBuf) {
    let session = Session::new();
    let server = start_server(module);
    let (stream, pid) = (session.path().join("stream.ltt"), server.pid().to_string());
    let file = session.program("work.rpn", &program(module));
    let to = format!("ltt:{}", stream.display());
    session.done(&["insert", "-p", &pid, "--log-target", &to, &file]);
    becomes_traced(server.pid(), true);
    (session, server, stream)
}

#[test]
fn readers_follow_a_stream_from_its_beginning_whenever_they_come() {
    let module = need!("follow", target("server"), "gcc");
    let (session, mut server, stream) = session(&module);
    let mut early = Follower::new(&stream);
    assert_eq!(server.ask("call 3"), "done 3");
    assert_eq!(early.records(3), [0, 1, 2]);
    assert_eq!(server.ask("call 2"), "done 2");
    assert_eq!(early.records(2), [0, 1]);
    let mut late = Follower::new(&stream);
    assert_eq!(late.records(5), [0, 1, 2, 0, 1]);
    assert_eq!(server.ask("call 1"), "done 1");
    // Without --follow: what is there, and that it has no end.
    assert_eq!((early.records(1), late.records(1)), (vec![0], vec![0]));
    let (status, shown, told) = run(dprobes().arg("show").arg(&stream));
    assert_eq!((status.code(), shown.matches("DProbes(3,1) ").count()), (Some(1), 12), "{told}");
    assert!(told.contains("is still being written"), "{told}");
    session.done(&["session", "stop"]);
    for follower in [early, late] {
        assert_eq!(follower.end(), (0, Some(0), String::new()));
    }
    let (status, shown, told) = run(dprobes().arg("show").arg(&stream));
    assert_eq!((status.code(), shown.matches("DProbes(3,1) ").count()), (Some(0), 12), "{told}");
}

#[test]
fn who_follows_a_stream_is_told_that_its_writer_was_killed() {
    let module = need!("follow", target("server"), "gcc");
    let scratch = Scratch::new();
    let stream = scratch.path().join("stream.ltt");
    let mut server = start_server(&module);
    let to = format!("ltt:{}", stream.display());
    let mut attached = attach(server.pid(), &program(&module), &["--log-target", &to]);
    attached.wait_for(server.pid(), &module, "server_work");
    assert_eq!(server.ask("call 2"), "done 2");
    let mut follower = Follower::new(&stream);
    assert_eq!(follower.records(2), [0, 1]);
    // SAFETY: kill takes no pointers; the tracer is a child of our child, which has not reaped it.
    assert_eq!(unsafe { libc::kill(attached.tracer(), libc::SIGKILL) }, 0);
    attached.death();
    let (more, status, told) = follower.end();
    assert_eq!((more, status), (0, Some(1)), "{told}");
    assert!(
        told.contains("stream.ltt: nobody writes to it any more") && told.contains("was killed"),
        "{told}"
    );
    // Who comes later, too.
    assert_eq!(Follower::new(&stream).end().1, Some(1));
}

#[test]
fn a_slow_reader_delays_nobody_and_misses_nothing() {
    let module = need!("follow", target("server"), "gcc");
    let (session, mut server, stream) = session(&module);
    // Its output is not read: it waits once the pipe is full.
    let slow = Follower::new(&stream);
    let mut quick = Follower::new(&stream);
    const CALLS: usize = 100_000;
    assert_eq!(server.ask(&format!("call {CALLS}")), format!("done {CALLS}"));
    assert_eq!(quick.records(CALLS).last(), Some(&(CALLS as u64 - 1)));
    session.done(&["session", "stop"]);
    assert_eq!(quick.end(), (0, Some(0), String::new()));
    assert_eq!(slow.end(), (CALLS, Some(0), String::new()));
}

#[test]
fn what_a_pipe_had_no_room_for_is_told_by_its_reader() {
    let module = need!("follow", target("server"), "gcc");
    let scratch = Scratch::new();
    let pipe = scratch.path().join("pipe");
    make_pipe(&pipe);
    let follower = Follower::new(&pipe);
    // A pipe that nobody reads is refused: it is opened for writing once its reader has it.
    let held = loop {
        match File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&pipe) {
            Ok(file) => break file,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "{error}"),
        }
        std::thread::yield_now();
    };
    // Stopped before it reads: what is logged meanwhile does not find room for ever.
    let pid = follower.child.id() as i32;
    let signal = |signal| {
        // SAFETY: kill takes no pointers, and the process is our child that was not waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    };
    let file = scratch.file("work.rpn", &program(&module));
    const CALLS: usize = 1_500_000;
    let mut command = dprobes();
    command.arg("run").args(engine()).args(["--buffer", "256K", "--log-target"]);
    command.arg(format!("ltt:{}", pipe.display())).arg(file);
    command.arg("--").arg(&module).args(["leaf", &CALLS.to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    signal(libc::SIGSTOP);
    let mut traced = command.spawn().expect("it runs");
    let mut done = String::new();
    let mut output = BufReader::new(traced.stdout.take().expect("it is a pipe"));
    output.read_line(&mut done).expect("text");
    assert_eq!(done, format!("done {CALLS}\n"), "the program goes on though nobody reads");
    // The stream ends with its writer.
    drop(held);
    signal(libc::SIGCONT);
    let (count, status, told) = follower.end();
    assert_eq!((status, traced.wait().expect("it ends").code()), (Some(0), Some(5)), "{told}");
    let lost: usize = told
        .lines()
        .map(|line| {
            let (_, count) = line.rsplit_once("pipe: ").expect("a warning");
            let (count, rest) = count.split_once(' ').expect("a number");
            assert!(rest.contains(" lost before this"), "{line}");
            count.parse::<usize>().expect("a number")
        })
        .sum();
    assert_eq!(count + lost, CALLS, "{told}");
    assert!(count > 0 && lost > 0, "{count} shown, {lost} lost");
}

#[test]
fn what_cannot_be_followed_is_told() {
    let scratch = Scratch::new();
    let text = scratch.file("text", "no stream");
    let show = |words: &[&str], file: &Path| {
        let (status, _, told) = run(dprobes().arg("show").args(words).arg(file));
        (status.code(), told)
    };
    let (status, told) = show(&["--follow"], &text);
    assert!(status == Some(2) && told.contains("this is no stream of `ltt`"), "{told}");
    let (status, told) = show(&["--follow"], &scratch.path().join("nowhere"));
    assert!(status == Some(1) && told.contains("No such file"), "{told}");
    let stream = scratch.file("stream", "");
    std::fs::write(&stream, b"\0\0\0\0\x04\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0x").expect("room");
    let (status, told) = show(&["--follow"], &stream);
    assert!(status == Some(1) && told.contains("offset 0x14: this is no entry"), "{told}");
    let (status, told) = show(&["--pid", "1"], &stream);
    assert!(status == Some(2) && told.contains("has no index"), "{told}");
}
