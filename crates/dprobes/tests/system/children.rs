//! Children of every kind, and the programs they execute, are probed too.

use std::path::Path;

use crate::support::{Run, Server, attach, counting, need, target};

#[test]
fn every_call_in_every_child_is_counted() {
    let program = need!("children", target("forks"), "gcc");
    for _ in 0..5 {
        let outcome = Run::new(&counting(&program, ["forks_work"])).on([&program]).ended_with(0);
        let calls = outcome.stdout.strip_prefix("calls ").and_then(|rest| rest.trim_end().parse().ok());
        assert_eq!(Some(outcome.stats.hits(1)), calls, "{outcome:#?}");
    }
}

#[test]
fn a_process_that_executes_another_program_keeps_its_probes() {
    keeps_its_probes(&need!("children", target("server"), "gcc"));
}

/// A server that executes itself again is probed before and after.
pub(crate) fn keeps_its_probes(program: &Path) {
    let mut server = Server::start(program, [] as [&str; 0]);
    server.line();
    let mut attached = attach(server.pid(), &counting(program, ["server_work"]), &[]);
    attached.wait_for(server.pid(), program, "server_work");
    assert_eq!(server.ask("call 10"), "done 10");
    assert_eq!(server.ask("exec 30"), "done 30");
    let outcome = attached.end();
    assert_eq!(outcome.stats.hits(1), 40, "{outcome:#?}");
    assert_eq!(server.end().0.code(), Some(5));
}

#[test]
fn the_status_of_a_shell_pipeline_and_its_output_are_as_before() {
    let program = need!("children", target("leaf"), "gcc");
    let script = format!("{0} 20; {0} 30 | cat; ({0} 5 & wait); exit 9", program.display());
    let outcome = Run::new(&counting(&program, ["leaf_work"])).on(["/bin/sh", "-c", &script]).ended_with(9);
    assert_eq!(outcome.stdout, "calls 20 sum 670\ncalls 30 sum 1455\ncalls 5 sum 55\n");
    assert_eq!(outcome.stats.hits(1), 55, "{outcome:#?}");
}
