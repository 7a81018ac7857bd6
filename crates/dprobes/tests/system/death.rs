//! dprobes is killed with SIGKILL: the probed program lives on, with every byte as before.

use crate::support::{
    Attached, Server, attach, changed_text, counting, is_traced, need, target, text_differences,
};
use std::time::Duration;

/// Attaches, kills the process that `victim` names, and checks that the program works on, unprobed.
fn killed(victim: impl Fn(&Attached) -> i32) {
    let program = need!("death", target("server"), "gcc");
    for _ in 0..5 {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
        attached.wait_for(pid, &program, "server_work");
        assert_eq!(server.ask("call 50"), "done 50");
        // SAFETY: kill takes no pointers; the front is our child and was not reaped, and it has not reaped its own.
        assert_eq!(unsafe { libc::kill(victim(&attached), libc::SIGKILL) }, 0);
        attached.death();
        let mut patience = 500;
        while is_traced(pid) || !changed_text(pid).is_empty() {
            patience -= 1;
            assert!(patience > 0, "the probes are still in: {:?}", text_differences(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.ask("call 20"), "done 20");
        assert!(server.end().0.success());
    }
}

#[test]
fn the_process_that_the_user_started() {
    killed(Attached::pid);
}

#[test]
fn the_tracer_behind_it() {
    killed(Attached::tracer);
}
