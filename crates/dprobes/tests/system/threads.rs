//! Threads that come and go while the tracer does.

use std::path::Path;

use crate::support::{Server, attach, counting, is_traced, need, target, text_differences};

#[test]
fn threads_born_while_attached_are_counted_and_those_dying_do_no_harm() {
    come_and_go(&need!("threads", target("threads"), "gcc"), 15);
}

/// Attaches `rounds` times to the program `threads`, whose threads begin and end meanwhile.
pub(crate) fn come_and_go(program: &Path, rounds: u32) {
    let mut server = Server::start(program, [] as [&str; 0]);
    let pid = server.pid();
    assert_eq!(server.ask("pid"), format!("pid {pid}"));
    for round in 0..rounds {
        let mut attached = attach(pid, &counting(program, ["threads_work"]), &[]);
        attached.wait_for(pid, program, "threads_work");
        assert_eq!(server.ask("run 100"), "done 1000");
        let outcome = attached.stop(libc::SIGINT);
        assert_eq!(outcome.stats.hits(1), 1000, "round {round}: {outcome:#?}");
        assert!(!is_traced(pid), "round {round}");
        assert_eq!(text_differences(pid), [""; 0], "round {round}");
        assert_eq!(server.ask("run 10"), "done 100");
    }
    server.send("quit");
    let (status, _) = server.end();
    assert!(status.success());
}
