//! System calls in which threads sleep while a tracer comes and goes: none may be disturbed.

use std::path::Path;

use crate::support::{Server, attach, counting, is_traced, need, target, text_differences};

#[test]
fn no_sleeping_system_call_returns_when_a_tracer_comes_and_goes() {
    nobody_notices(&need!("sleepers", target("syscalls"), "gcc"));
}

/// A tracer attaches and detaches several times, while threads of the program `syscalls` sleep in
/// every kind of system call.
pub(crate) fn nobody_notices(program: &Path) {
    let mut server = Server::start(program, [] as [&str; 0]);
    server.line();
    assert_eq!(server.line(), "ready");
    let pid = server.pid();
    for _ in 0..3 {
        let mut attached = attach(pid, &counting(program, ["syscalls_work"]), &[]);
        attached.wait_for(pid, program, "syscalls_work");
        assert!(is_traced(pid));
        assert_eq!(server.ask("call 7"), "done 7");
        let outcome = attached.stop(libc::SIGTERM);
        assert_eq!(outcome.stats.hits(1), 7, "{outcome:#?}");
        assert!(!is_traced(pid));
        assert_eq!(text_differences(pid), [""; 0]);
    }
    server.send("go");
    let (status, lines) = server.end();
    let broken: Vec<_> = lines.iter().filter(|line| !line.ends_with(" ok") && *line != "end").collect();
    assert!(broken.is_empty() && status.success(), "{broken:?}");
    assert_eq!(lines.len(), 18, "{lines:?}");
}
