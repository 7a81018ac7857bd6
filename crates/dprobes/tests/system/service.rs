//! The session as a service: it stays in the foreground, says when it answers, and takes its probes
//! out when it is asked to end.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{
    Session, becomes_traced, counting, dprobes, need, start_server, target, text_differences,
};

/// How long a supervisor waits.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the session as a supervisor does, and waits until it is ready.
fn start(session: &Session) -> Child {
    let path = session.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a fresh path");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let child = dprobes()
        .args(["session", "start", "--foreground"])
        .env("DPROBES_SESSION_DIR", session.path().join("home"))
        .env("NOTIFY_SOCKET", &path)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dprobes starts");
    let mut message = [0; 64];
    let size = socket.recv(&mut message).expect("it says that it is ready");
    assert_eq!(&message[..size], b"READY=1");
    child
}

#[test]
fn it_answers_once_it_is_ready_and_ends_when_asked() {
    let module = need!("service", target("server"), "gcc");
    let session = Session::new();
    let service = start(&session);
    // Nobody waits: it is ready.
    assert!(session.done(&["session", "status"]).contains("0 programs, 0 processes followed"));
    let refused = session.fails(&["session", "start", "--foreground"]);
    assert!(refused.contains("there is a session already"), "{refused}");
    // One that is there will do.
    assert!(session.done(&["session", "start"]).contains("0 programs"));

    let copy = session.path().join("server");
    std::fs::copy(&module, &copy).expect("room for a copy");
    let mut server = start_server(&copy);
    let program = session.program("count.rpn", &counting(&copy, ["server_work"]));
    session.done(&["insert", &program, "-p", &server.pid().to_string()]);
    assert_eq!(server.ask("call 5"), "done 5");
    assert!(session.done(&["query", "--all"]).contains("hits 5 runs 5"));

    // SAFETY: a plain call; the process is a child that was not waited for.
    unsafe { libc::kill(service.id() as i32, libc::SIGTERM) };
    let output = service.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    becomes_traced(server.pid(), false);
    assert_eq!(text_differences(server.pid()), [""; 0]);
    assert_eq!(server.ask("call 3"), "done 3");
    assert!(session.fails(&["session", "status"]).contains("there is no session"));
}

#[test]
fn without_a_service_it_starts_in_the_background() {
    let session = Session::new();
    assert!(session.done(&["session", "start"]).contains("0 programs"));
    assert!(session.done(&["session", "status"]).contains("0 programs"));
    session.done(&["session", "stop"]);
    assert!(session.fails(&["session", "status"]).contains("there is no session"));
}
