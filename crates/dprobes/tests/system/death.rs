//! dprobes is killed with SIGKILL: the probed program lives on, with every byte as before.

use crate::support::{Server, attach, counting, is_traced, need, target, text_differences};
use std::time::Duration;

/// The tracer behind the process that the user started: its only child.
fn tracer(front: i32) -> i32 {
    let children =
        std::fs::read_to_string(format!("/proc/{front}/task/{front}/children")).expect("the front lives");
    children.trim().parse().expect("one child")
}

/// Where the text of a process differs from its files. Memory that belongs to no file is not counted: what a killed
/// tracer has mapped stays.
fn changed(pid: u32) -> Vec<String> {
    text_differences(pid).into_iter().filter(|difference| !difference.contains("of no file")).collect()
}

/// Attaches, kills the process that `victim` names, and checks that the program works on, unprobed.
fn killed(victim: impl Fn(i32) -> i32) {
    let program = need!("death", target("server"), "gcc");
    for _ in 0..5 {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
        attached.wait_for(pid, &program, "server_work");
        assert_eq!(server.ask("call 50"), "done 50");
        // SAFETY: kill takes no pointers; the front is our child and was not reaped, and it has not reaped its own.
        assert_eq!(unsafe { libc::kill(victim(attached.pid()), libc::SIGKILL) }, 0);
        attached.death();
        let mut patience = 500;
        while is_traced(pid) || !changed(pid).is_empty() {
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
    killed(|front| front);
}

#[test]
fn the_tracer_behind_it() {
    killed(tracer);
}
