//! `--by-process`: which processes hit a probe, and how often.

use std::process::{Command, Stdio};

use crate::support::{Scratch, Server, copy, counting, dprobes, need, needs_kernel, run, start, target};

#[test]
fn the_calls_of_each_process_are_counted() {
    needs_kernel!("by process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: by process", target("server"), "gcc"), "server");
    let mut servers = [(); 3].map(|()| Server::start(&program, [] as [&str; 0]));
    servers.iter().for_each(|server| _ = server.line());
    let pids = servers.each_ref().map(Server::pid);
    // One probe is a function, the other one matches several.
    let name = program.display();
    let text = counting(&name.to_string(), &["server_work", "\"server_w*\":entry"]);
    let mut session = start(&text, &["--by-process"]);
    session.armed();
    for (server, calls) in servers.iter_mut().zip([30, 1000, 7]) {
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
    }
    let mut leaf =
        Command::new(&program).args(["leaf", "50"]).stdout(Stdio::null()).spawn().expect("it starts");
    let leaf_pid = leaf.id();
    assert_eq!(leaf.wait().expect("it ends").code(), Some(5));
    let outcome = session.stop().ended_with(0);
    let processes = outcome.stats.processes.as_deref().expect("they are counted");
    let mut found: Vec<(u32, &str, u64, u64)> =
        processes.iter().map(|it| (it.pid, &*it.name, it.hits[0], it.hits[1])).collect();
    assert_eq!(found[0].0, pids[1], "the most hits come first: {outcome:#?}");
    found.sort_unstable();
    let mut expected = vec![
        (pids[0], "server", 30, 30),
        (pids[1], "server", 1000, 1000),
        (pids[2], "server", 7, 7),
        (leaf_pid, "server", 50, 50),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected, "{outcome:#?}");
    assert_eq!(outcome.stats.unassigned.as_deref(), Some(&[0, 0][..]));
    assert_eq!((outcome.stats.hits(1), outcome.stats.hits(2)), (1087, 1087));
    let line = format!("        1000   92.00  {:>7}  server", pids[1]);
    assert!(outcome.stderr.contains(&line), "{line} in {}", outcome.stderr);
    assert!(servers.map(|server| server.end().0.success()).iter().all(|good| *good));
}

#[test]
fn without_the_option_and_by_other_engines_they_are_not() {
    needs_kernel!("by process");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: by process", target("server"), "gcc"), "server");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid().to_string();
    let text = counting(&program.display().to_string(), &["server_work"]);
    let mut session = start(&text, &[]);
    session.armed();
    assert_eq!(server.ask("call 3"), "done 3");
    let outcome = session.stop().ended_with(0);
    assert!(outcome.stats.processes.is_none() && outcome.stats.unassigned.is_none(), "{outcome:#?}");
    assert!(!outcome.stderr.contains("process of"), "{outcome:#?}");
    let (status, _, said) = run(dprobes().args(["attach", "--by-process", "-p", &pid, "--at", "a.out:main"]));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("--by-process: only the kernel engine counts by process"), "{said}");
    assert!(server.end().0.success());
}
