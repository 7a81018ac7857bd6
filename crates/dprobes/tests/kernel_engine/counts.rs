//! Every hit counts: of processes that ran before and that begin later, of all users, of children
//! however they begin, of threads, of static and of 32-bit programs.

use crate::support::{Scratch, Server, copy, counting, need, needs_kernel, start, target, variant};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn processes_are_counted_from_their_first_call() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: counts", target("server"), "gcc"), "server");
    let mut before = Server::start(&program, [] as [&str; 0]);
    before.line();
    assert_eq!(before.ask("call 7"), "done 7");
    let text = counting(&program.display().to_string(), &["server_work"]);
    let mut session = start(&text, &[]);
    session.armed();
    assert_eq!(before.ask("call 30"), "done 30");
    for calls in [1, 20, 300] {
        // Its first call is in the first microseconds of `main`.
        let leaf = Command::new(&program).args(["leaf", &calls.to_string()]).output().expect("it starts");
        assert_eq!(leaf.status.code(), Some(5));
    }
    let outcome = session.stop().ended_with(0);
    assert_eq!((outcome.stats.hits(1), outcome.stats.runs(1)), (351, 351), "{outcome:#?}");
    assert_eq!(outcome.stats.locals[0], 351, "{outcome:#?}");
    assert_eq!(outcome.stats.probes[0].state, "armed");
    assert_eq!(outcome.stats.probes[0].engine, "kernel");
    // Nothing is left behind.
    assert_eq!(before.ask("call 10"), "done 10");
    assert!(before.end().0.success());
}

#[test]
fn processes_of_all_users_are_counted() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: counts", target("server"), "gcc"), "server");
    // Another user must reach the file.
    let probe = Command::new(&program).args(["leaf", "0"]).uid(65534).gid(65534).status();
    need!("bpf: counts: users", probe.ok(), "a build directory that others can enter");
    let text = format!("name = \"{}\"\noffset = server_work\npush pid\nlog 1\nexit\n", program.display());
    let mut session = start(&text, &["--log", "UID"]);
    session.armed();
    for user in [0, 65534, 4711] {
        let status = Command::new(&program).args(["leaf", "3"]).stdout(Stdio::null()).uid(user).status();
        assert_eq!(status.expect("it starts").code(), Some(5));
    }
    let outcome = session.stop().ended_with(0);
    for user in ["uid=0 ", "uid=65534 ", "uid=4711 "] {
        let of = |header: &&&str| format!("{header} ").contains(user);
        assert_eq!(outcome.headers().iter().filter(of).count(), 3, "{user} in {outcome:#?}");
    }
}

#[test]
fn children_are_counted_however_they_begin() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: counts", target("forks"), "gcc"), "forks");
    let mut session = start(&counting(&program.display().to_string(), &["forks_work"]), &[]);
    session.armed();
    let output = Command::new(&program).output().expect("it starts");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcome = session.stop().ended_with(0);
    assert_eq!(said, format!("calls {}\n", outcome.stats.hits(1)), "{outcome:#?}");
}

#[test]
fn eight_threads_count_exactly() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: counts", target("tight"), "gcc"), "tight");
    let mut session = start(&counting(&program.display().to_string(), &["work"]), &[]);
    session.armed();
    let calls = testing::rounds(20_000, 200_000);
    let status = Command::new(&program).args([&calls.to_string(), "8"]).stdout(Stdio::null()).status();
    assert!(status.expect("it starts").success());
    let outcome = session.stop().ended_with(0);
    let probe = &outcome.stats.probes[0];
    assert_eq!(probe.hits, 8 * calls, "{outcome:#?}");
    // A run that finds no context is missed, and counted so.
    assert_eq!(probe.runs + probe.missed, 8 * calls, "{outcome:#?}");
    assert_eq!(outcome.stats.locals[0], probe.runs, "{outcome:#?}");
}

#[test]
fn static_and_32_bit_programs_are_counted() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    for (name, flags) in [
        ("static", &["-static"][..]),
        ("32", &["-m32"]),
        ("static-32", &["-m32", "-static"]),
        ("fixed", &["-no-pie"]),
    ] {
        let built = std::panic::catch_unwind(|| variant("server", &format!("server-{name}"), flags));
        let Ok(Some(built)) = built else {
            testing::skipped("bpf: counts: machines", &format!("gcc {}", flags.join(" ")));
            continue;
        };
        let program = copy(&scratch, &built, name);
        let mut session = start(&counting(&program.display().to_string(), &["server_work"]), &[]);
        session.armed();
        let leaf = Command::new(&program).args(["leaf", "41"]).output().expect("it starts");
        assert_eq!(leaf.status.code(), Some(5));
        let outcome = session.stop().ended_with(0);
        assert_eq!(outcome.stats.hits(1), 41, "{name}: {outcome:#?}");
    }
}

#[test]
fn nothing_is_left_behind_when_the_session_is_killed() {
    needs_kernel!("counts");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: counts", target("server"), "gcc"), "server");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let text = counting(&program.display().to_string(), &["server_work"]);
    let mut session = start(&text, &[]);
    session.armed();
    assert_eq!(server.ask("call 5"), "done 5");
    // SAFETY: kill takes no pointers; the child was not reaped, so the number is still its.
    unsafe { libc::kill(session.pid(), libc::SIGKILL) };
    drop(session);
    assert_eq!(server.ask("call 5"), "done 5");
    // The next session counts from zero.
    let mut session = start(&text, &[]);
    session.armed();
    assert_eq!(server.ask("call 6"), "done 6");
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 6);
    assert!(server.end().0.success());
}
