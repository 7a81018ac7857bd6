//! `ignore`, `maxhits`, `remove`, and exits to facilities.

use crate::support::{Scratch, Server, copy, need, needs_kernel, start, target};

/// A session on a copy of the program `server`, with this handler of `server_work` and a second
/// probe that counts all calls.
fn session(scratch: &Scratch, head: &str, handler: &str) -> Option<(crate::support::Session, Server)> {
    let program = copy(scratch, &target("server")?, "server");
    let server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let name = program.display();
    let text = format!(
        "name = \"{name}\"\nmajor = 3\nvars = 2\noffset = server_work\nminor = 1\n{head}{handler}\n\
         offset = main+0\nminor = 2\ninc lv, 1\nabort\n"
    );
    let mut session = start(&text, &[]);
    session.armed();
    Some((session, server))
}

#[test]
fn the_first_hits_are_ignored_and_the_probe_is_over_after_its_runs() {
    needs_kernel!("limits");
    let scratch = Scratch::new();
    let made = session(&scratch, "ignore = 10\nmaxhits = 25\n", "push 7\nlog 1\nexit");
    let (session, mut server) = need!("bpf: limits", made, "gcc");
    assert_eq!(server.ask("call 100"), "done 100");
    // The other probe goes on.
    assert!(std::process::Command::new(scratch.path().join("server")).arg("x").status().is_ok());
    let outcome = session.stop().ended_with(0);
    let probe = &outcome.stats.probes[0];
    let counts = (probe.hits, probe.ignored, probe.runs, probe.logged);
    assert_eq!((counts, probe.state.as_str()), ((35, 10, 25, 25), "disabled"), "{outcome:#?}");
    assert_eq!((outcome.stats.hits(2), outcome.stats.locals[1]), (1, 1), "{outcome:#?}");
    assert_eq!(outcome.headers().len(), 25);
    assert!(server.end().0.success());
}

#[test]
fn limits_are_exact_with_threads_of_many_processes() {
    needs_kernel!("limits");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: limits", target("tight"), "gcc"), "tight");
    let text = format!(
        "name = \"{}\"\nlogmax = 0\nvars = 1\noffset = work\nminor = 1\nignore = 1000\nmaxhits = 5000\ninc lv, 0\nexit\n",
        program.display()
    );
    let mut session = start(&text, &[]);
    session.armed();
    let run = || {
        std::process::Command::new(&program).args(["4000", "4"]).stdout(std::process::Stdio::null()).spawn()
    };
    let children: Vec<_> = (0..3).map(|_| run().expect("it starts")).collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let outcome = session.end_or_stop().ended_with(0);
    let probe = &outcome.stats.probes[0];
    assert_eq!((probe.hits, probe.ignored, probe.runs + probe.missed), (6000, 1000, 5000), "{outcome:#?}");
    assert_eq!(outcome.stats.locals[0], probe.runs, "{outcome:#?}");
}

#[test]
fn a_handler_removes_its_probe_and_the_others_go_on() {
    needs_kernel!("limits");
    let scratch = Scratch::new();
    let made = session(&scratch, "", "inc lv, 0\npush lv, 0\nlog 1\nremove");
    let (session, mut server) = need!("bpf: limits", made, "gcc");
    assert_eq!(server.ask("call 50"), "done 50");
    assert!(std::process::Command::new(scratch.path().join("server")).arg("x").status().is_ok());
    let outcome = session.stop().ended_with(0);
    let probe = &outcome.stats.probes[0];
    assert_eq!((probe.hits, probe.logged, probe.state.as_str()), (1, 1, "removed"), "{outcome:#?}");
    assert_eq!(outcome.stats.hits(2), 1, "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn a_session_whose_probes_are_over_ends() {
    needs_kernel!("limits");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: limits", target("server"), "gcc"), "server");
    let text =
        format!("name = \"{}\"\noffset = server_work\nminor = 1\nmaxhits = 3\nexit\n", program.display());
    let mut session = start(&text, &[]);
    session.armed();
    let status = std::process::Command::new(&program).args(["leaf", "5"]).output().expect("it starts").status;
    assert_eq!(status.code(), Some(5));
    assert_eq!(session.end().ended_with(0).stats.hits(1), 3);
}

#[test]
fn exits_to_facilities_that_are_not_there_are_told() {
    needs_kernel!("limits");
    let scratch = Scratch::new();
    for (exit, said, state, hits) in [
        ("exit 1", "DProbes(3,1) exit 1: the kernel debugger is for kernel probes only", "removed", 1),
        ("exit 2", "DProbes(3,1) exit 2: a crash dump is for kernel probes only", "removed", 1),
        ("exit 3", "DProbes(3,1) exit 3: no more core dumps: ", "armed", 20),
    ] {
        let (session, mut server) = need!("bpf: limits", session(&scratch, "", exit), "gcc");
        assert_eq!(server.ask("call 20"), "done 20");
        let outcome = session.stop().ended_with(0);
        let probe = &outcome.stats.probes[0];
        assert_eq!((probe.hits, probe.logged, probe.state.as_str()), (hits, hits, state), "{outcome:#?}");
        assert_eq!(outcome.stderr.matches(said).count(), 1, "{outcome:#?}");
        assert!(server.end().0.success());
    }
}
