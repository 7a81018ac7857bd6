//! `--engine kernel -p PID`: one process, or several, which are never stopped.

use crate::support::{Scratch, Server, copy, counting, need, needs_kernel, start, target};
use std::process::{Command, Stdio};

/// Whether any thread of a process is traced.
fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
}

#[test]
fn only_the_process_counts() {
    needs_kernel!("one process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: one process", target("server"), "gcc"), "server");
    let (mut probed, mut other) =
        (Server::start(&program, [] as [&str; 0]), Server::start(&program, [] as [&str; 0]));
    probed.line();
    other.line();
    let pid = probed.pid().to_string();
    let mut session = start(
        &counting(&program.display().to_string(), &["server_work"]),
        &["--engine", "kernel", "-p", &pid],
    );
    session.armed();
    assert!(!is_traced(probed.pid()));
    assert_eq!((probed.ask("call 30"), other.ask("call 40")), ("done 30".into(), "done 40".into()));
    let leaf = Command::new(&program).args(["leaf", "50"]).stdout(Stdio::null()).status();
    assert_eq!(leaf.expect("it starts").code(), Some(5));
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(1), 30, "{outcome:#?}");
    assert!(outcome.stderr.contains(&format!(" of process {pid}")), "{outcome:#?}");
    assert!(probed.end().0.success() && other.end().0.success());
}

#[test]
fn its_threads_count_and_its_children_do_not() {
    needs_kernel!("one process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: one process", target("threads"), "gcc"), "threads");
    let mut server = Server::start(&program, [] as [&str; 0]);
    let pid = server.pid().to_string();
    assert_eq!(server.ask("pid"), format!("pid {pid}"));
    let text = counting(&program.display().to_string(), &["threads_work"]);
    let mut session = start(&text, &["--engine", "kernel", "-p", &pid]);
    session.armed();
    assert_eq!(server.ask("run 20"), "done 200");
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 200);

    // A shell that forks: only what it executes itself counts.
    let forks = copy(&scratch, &need!("bpf: one process", target("forks"), "gcc"), "forks");
    let script = format!("read line; {0} leaf 5; exec {0} leaf 11", forks.display());
    let mut shell =
        Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("it starts");
    let pid = shell.id().to_string();
    let text = counting(&forks.display().to_string(), &["forks_work"]);
    let mut session = start(&text, &["--engine", "kernel", "-p", &pid]);
    session.armed();
    drop(shell.stdin.take());
    // Its exec is followed, and the session ends with it.
    let outcome = session.end().ended_with(0);
    assert!(shell.wait().expect("it ends").success());
    assert_eq!(outcome.stats.hits(1), 11, "{outcome:#?}");
}

#[test]
fn the_session_ends_with_the_process() {
    needs_kernel!("one process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: one process", target("server"), "gcc"), "server");
    for (last_words, status) in [("exit 3", Some(3)), ("die", None), ("exec 6", Some(5))] {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid().to_string();
        let text = counting(&program.display().to_string(), &["server_work"]);
        let mut session = start(&text, &["--engine=kernel", "-p", &pid]);
        session.armed();
        assert_eq!(server.ask("call 50"), "done 50");
        server.send(last_words);
        assert_eq!(server.end().0.code(), status);
        let hits = session.end().ended_with(0).stats.hits(1);
        assert_eq!(hits, if last_words == "exec 6" { 56 } else { 50 }, "{last_words}");
    }
}

#[test]
fn the_engine_of_a_process_is_the_jump_engine_unless_asked() {
    needs_kernel!("one process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: one process", target("server"), "gcc"), "server");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid().to_string();
    let text = counting(&program.display().to_string(), &["server_work"]);
    let mut session = start(&text, &["-p", &pid]);
    session.armed();
    assert_eq!(server.ask("call 5"), "done 5");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.probes[0].engine, "jump", "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn of_several_processes_each_counts_and_no_other() {
    needs_kernel!("several processes");
    let scratch = Scratch::new();
    let built = need!("bpf: several processes", target("server"), "gcc");
    // Two run one file, the third another; both files are called alike.
    let program = copy(&scratch, &built, "server");
    let elsewhere = Scratch::new();
    let other = copy(&elsewhere, &built, "server");
    let mut servers =
        [&program, &program, &other, &program, &other].map(|program| Server::start(program, [] as [&str; 0]));
    servers.iter().for_each(|server| _ = server.line());
    let pids: Vec<u32> = servers.iter().map(Server::pid).collect();
    let text = "name = \"a.out\"\nmajor = 1\nvars = 1\noffset = server_work\nminor = 1\ninc lv, 0\npush pid\nlog 1\nexit\n";
    let probed: Vec<String> = pids[..3].iter().map(u32::to_string).collect();
    let mut options = vec!["--engine", "kernel", "--log", "PID"];
    probed.iter().for_each(|pid| options.extend(["-p", pid]));
    let mut session = start(text, &options);
    probed.iter().for_each(|pid| _ = session.until(&format!(" of process {pid}")));
    assert!(pids.iter().all(|pid| !is_traced(*pid)));
    let calls = [3, 20, 100, 1000, 2000];
    for (server, calls) in servers.iter_mut().zip(calls) {
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
    }
    // Two end: the session goes on with the third, and ends with it.
    let [first, second, mut last, ..] = servers;
    assert!(first.end().0.success() && second.end().0.success());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(last.ask("call 7"), "done 7");
    assert!(last.end().0.success());
    let outcome = session.end().ended_with(0);
    assert_eq!(outcome.stats.hits(1), 3 + 20 + 107, "{outcome:#?}");
    assert_eq!(outcome.stats.locals[0], 130, "{outcome:#?}");
    for (pid, calls) in pids.iter().zip([3, 20, 107, 0, 0]) {
        let of = |header: &&&str| format!("{header} ").contains(&format!("pid={pid} "));
        assert_eq!(outcome.headers().iter().filter(of).count(), calls, "{pid} of {outcome:#?}");
    }
}
