//! System calls in which threads sleep while a tracer comes and goes: none may notice.

use crate::support::{Server, attach, counting, need, target, text_differences};

#[test]
fn no_sleeping_system_call_returns_when_a_tracer_comes_and_goes() {
    let program = need!("sleepers", target("syscalls"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    assert_eq!(server.line(), "ready");
    let pid = server.pid();
    for _ in 0..3 {
        let mut attached = attach(pid, &counting(&program, ["syscalls_work"]), &[]);
        attached.wait_for(pid, &program, "syscalls_work");
        assert_eq!(server.ask("call 7"), "done 7");
        let outcome = attached.stop(libc::SIGTERM);
        assert_eq!(outcome.stats.hits(1), 7, "{outcome:#?}");
    }
    assert_eq!(text_differences(pid), [""; 0]);
    server.send("go");
    let (status, lines) = server.end();
    let broken: Vec<_> = lines.iter().filter(|line| !line.ends_with(" ok") && *line != "end").collect();
    assert!(broken.is_empty() && status.success(), "{broken:?}");
    assert_eq!(lines.len(), 18, "{lines:?}");
}
