//! Attaching: until a signal, a time limit, or the end of the process; afterwards every byte is
//! restored.

use crate::support::{
    Outcome, Server, attach, counting, dprobes, engine, finish, is_traced, need, target, text_differences,
};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The executable mappings of a process.
fn executable_mappings(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is there");
    maps.lines()
        .filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.contains('x')))
        .map(str::to_string)
        .collect()
}

/// Attaches to a server, lets it call 50 times, ends the tracer, and checks that nothing is left
/// behind.
fn until(end: impl FnOnce(crate::support::Attached) -> Outcome) {
    let program = need!("attaching", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid();
    let before = executable_mappings(pid);
    let text = counting(&program, ["server_work"]);
    let mut attached = attach(pid, &text, &[]);
    attached.wait_for(pid, &program, "server_work");
    assert!(is_traced(pid));
    assert_eq!(server.ask("call 50"), "done 50");
    let outcome = end(attached);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 50, "{outcome:#?}");
    assert!(outcome.stderr.contains("50"), "the summary is on standard error: {outcome:#?}");
    assert!(server.lives() && !is_traced(pid));
    assert_eq!(text_differences(pid), [""; 0]);
    assert_eq!(executable_mappings(pid), before);
    assert_eq!(server.ask("call 20"), "done 20");
    let (status, _) = server.end();
    assert!(status.success());
}

#[test]
fn until_ctrl_c() {
    until(|attached| attached.stop(libc::SIGINT));
}

#[test]
fn until_sigterm() {
    until(|attached| attached.stop(libc::SIGTERM));
}

#[test]
fn until_sighup() {
    until(|attached| attached.stop(libc::SIGHUP));
}

#[test]
fn a_signal_at_any_moment_of_the_beginning_ends_the_whole_session() {
    let program = need!("attaching", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid();
    let (pid_word, point) = (pid.to_string(), format!("{}:server_work:entry", program.display()));
    for round in 0..testing::rounds(60, 200) {
        let mut command = dprobes();
        command.args([
            "attach",
            "-p",
            &pid_word,
            "-o",
            "/dev/null",
            "--at",
            &point,
            "--do",
            "inc lv, 0; abort",
        ]);
        command.args(engine()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let attached = command.process_group(0).spawn().expect("dprobes starts");
        std::thread::sleep(Duration::from_micros(100 * (round as u64 % 200)));
        // SAFETY: kill takes no pointers; dprobes is our child and was not reaped.
        unsafe { libc::kill(attached.id() as i32, [libc::SIGINT, libc::SIGTERM, libc::SIGHUP][round % 3]) };
        let (status, _, told) = finish(attached, "after the signal");
        // If the front was killed by the signal, the command it started has ended too, with no
        // output.
        match status.signal() {
            Some(_) => assert_eq!(told, "", "round {round}: {status}"),
            None => assert_eq!(status.code(), Some(0), "round {round}: {status}, {told}"),
        }
        assert!(server.lives() && !is_traced(pid), "round {round}");
        assert_eq!(text_differences(pid), [""; 0], "round {round}");
    }
    assert_eq!(server.ask("call 20"), "done 20");
    assert!(server.end().0.success());
}

#[test]
fn for_a_time() {
    let program = need!("attaching", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid();
    let start = Instant::now();
    let mut attached = attach(pid, &counting(&program, ["server_work"]), &["--for", "2s"]);
    attached.wait_for(pid, &program, "server_work");
    assert_eq!(server.ask("call 50"), "done 50");
    let outcome = attached.end().ended_with(0);
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(10)).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(outcome.stats.hits(1), 50, "{outcome:#?}");
    assert_eq!(text_differences(pid), [""; 0]);
}

#[test]
fn until_the_process_ends() {
    let program = need!("attaching", target("server"), "gcc");
    for (last_words, status) in [("exit 3", Some(3)), ("die", None)] {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
        attached.wait_for(pid, &program, "server_work");
        assert_eq!(server.ask("call 50"), "done 50");
        server.send(last_words);
        let outcome = attached.end().ended_with(0);
        assert_eq!(outcome.stats.hits(1), 50, "{outcome:#?}");
        assert_eq!(server.end().0.code(), status);
    }
}

#[test]
fn detaching_in_the_middle_of_the_hits_loses_nothing_and_harms_nothing() {
    let program = need!("attaching", target("tight"), "gcc");
    let mut server = Server::start(&program, ["-i"]);
    server.line();
    let pid = server.pid();
    for _ in 0..5 {
        // Four threads, until the tracer is gone.
        server.send("0 4");
        // Little waits in the rings: it is hits that are counted here, not how fast records are
        // written.
        let mut attached = attach(pid, &counting(&program, ["work"]), &["--buffer=256K"]);
        attached.wait_for(pid, &program, "work");
        std::thread::sleep(Duration::from_millis(100));
        let outcome = attached.stop(libc::SIGINT).ended_with(0);
        assert!(outcome.stats.hits(1) > 0, "{outcome:#?}");
        assert_eq!(outcome.stats.locals, [outcome.stats.hits(1)], "{outcome:#?}");
        assert_eq!(text_differences(pid), [""; 0]);
        // The program knows the expected sums of its calls.
        let line = server.ask("that is enough");
        assert!(line.starts_with("calls ") && !line.contains("wrong"), "{line}");
    }
}
