//! The program `jumps` as a server: threads that call a thousand functions and check the results.

use std::path::Path;

use super::{Server, changed_text};

/// Starts a server of so many threads.
pub(crate) fn start_jumps(program: &Path, threads: &str) -> Server {
    let server = Server::start(program, ["-i", threads]);
    server.line();
    server
}

/// Whether all calls of a round have returned the expected values.
pub(crate) fn is_right(line: &str) -> bool {
    line.starts_with("calls ") && !line.contains("wrong")
}

/// A server whose tracer has died finishes its round, has its bytes restored, and ends. The
/// trampolines may stay mapped.
#[track_caller]
pub(crate) fn ends_well(server: Server, round: u64) {
    let line = server.line();
    assert!(is_right(&line), "round {round}: {line}");
    assert_eq!(changed_text(server.pid()), [""; 0], "round {round}");
    assert!(server.end().0.success(), "round {round}");
}
