//! `--max-overhead`: a probe whose traps cost too much is taken out.

use crate::support::{
    Server, Session, attach, counting, is_traced, need, start_server, target, text_differences,
};

/// A trap costs a thousand times what a call does, so a loop of calls is above any limit.
const CALLS: u64 = 200_000;

#[test]
fn a_probe_on_a_hot_place_is_taken_out_and_a_cold_one_stays() {
    let program = need!("budget", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let options = ["--engine", "trap", "--max-overhead", "0.1%"];
    let mut attached = attach(server.pid(), &counting(&program, ["server_work"]), &options);
    attached.wait_for(server.pid(), &program, "server_work");
    assert_eq!(server.ask(&format!("call {CALLS}")), format!("done {CALLS}"));
    // It is out while the session goes on.
    let of_program = |each: &String| each.contains(program.to_str().expect("text"));
    assert_eq!(text_differences(server.pid()).into_iter().find(of_program), None);
    assert!(is_traced(server.pid()));
    let outcome = attached.stop(libc::SIGINT);
    let told: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("is taken out")).collect();
    assert_eq!(told.len(), 1, "{outcome:#?}");
    assert!(told[0].contains("server_work") && told[0].contains("--max-overhead"), "{told:?}");
    let probe = &outcome.stats.probes[0];
    assert_eq!(probe.state, "removed", "{outcome:#?}");
    assert!(probe.hits > 0 && probe.hits < CALLS, "{}", probe.hits);
    assert!(outcome.stderr.contains("\nhits took about "), "{outcome:#?}");
    assert!(server.lives());
}

#[test]
fn without_a_limit_every_hit_is_counted() {
    let program = need!("budget", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let options = ["--engine", "trap", "--max-overhead", "none"];
    let mut attached = attach(server.pid(), &counting(&program, ["server_work"]), &options);
    attached.wait_for(server.pid(), &program, "server_work");
    assert_eq!(server.ask("call 20000"), "done 20000");
    let outcome = attached.stop(libc::SIGINT);
    let probe = &outcome.stats.probes[0];
    assert_eq!((probe.state.as_str(), probe.hits), ("armed", 20_000), "{outcome:#?}");
    assert!(!outcome.stderr.contains("is taken out"), "{outcome:#?}");
}

#[test]
fn a_session_has_the_limit_of_running_processes() {
    let module = need!("budget", target("server"), "gcc");
    // The first insert starts a session, too.
    for (options, calls, is_out) in [
        (&[][..], CALLS, true),
        (&["--max-overhead", "0.1%"], CALLS, true),
        (&["--max-overhead", "none"], 20_000, false),
    ] {
        let session = Session::limited();
        if !options.is_empty() {
            session.done(&[&["session", "start"], options].concat());
            let refused = session.fails(&["session", "start", "--max-overhead", "1%"]);
            assert!(refused.contains("--max-overhead is for a new one"), "{refused}");
        }
        let copy = session.path().join("server");
        std::fs::copy(&module, &copy).expect("room for a copy");
        let mut server = start_server(&copy);
        let program = session.program("count.rpn", &counting(&copy, ["server_work"]));
        session.done(&["insert", &program, "--engine", "trap", "-p", &server.pid().to_string()]);
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
        let text = session.done(&["query", "--all"]);
        let log = std::fs::read_to_string(session.path().join("home/log")).expect("a session has a log");
        let is_told = log.contains("server_work is taken out: ") && log.contains("(--max-overhead)");
        assert_eq!((is_told, text.contains("removed")), (is_out, is_out), "{text}{log}");
        assert_eq!(text.contains(&calls.to_string()), !is_out, "{text}");
    }
}
