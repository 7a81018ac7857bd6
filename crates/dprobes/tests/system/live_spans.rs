//! `--log-target otlp:URL`: calls are spans at a collector while they happen.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Collector, Scratch, Session, attach, becomes_traced, calls_of_work, dprobes, need, run, start_server,
    target,
};

/// The spans in requests, without their numbers, in the order of their beginnings.
fn spans(requests: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Value> {
    let mut all = Vec::new();
    for request in requests {
        let request: Value = serde_json::from_str(request.as_ref()).expect("JSON");
        for of_process in request["resourceSpans"].as_array().expect("a list") {
            for span in of_process["scopeSpans"][0]["spans"].as_array().expect("a list") {
                let mut span = span.clone();
                let members = span.as_object_mut().expect("a span");
                assert_eq!(members.remove("traceId").map(|id| id.to_string().len()), Some(34));
                assert_eq!(members.remove("spanId").map(|id| id.to_string().len()), Some(18));
                span["resource"] = of_process["resource"].clone();
                all.push(span);
            }
        }
    }
    all.sort_by_key(|span| span["startTimeUnixNano"].as_str().map(str::to_owned));
    all
}

/// The spans that a collector has.
fn received(collector: &Collector) -> Vec<Value> {
    let requests = collector.requests();
    assert!(requests.iter().all(|(path, _)| path == "/v1/traces"), "{requests:?}");
    spans(requests.iter().map(|(_, body)| body))
}

/// Waits until a collector has so many spans.
#[track_caller]
fn wait_for(collector: &Collector, count: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let spans = received(collector);
        if spans.len() >= count {
            return spans;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{} of {count} spans", spans.len());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn they_are_those_that_a_store_of_the_same_run_gives() {
    let module = need!("live spans", target("server"), "gcc");
    let (scratch, collector) = (Scratch::new(), Collector::start());
    let file = scratch.file("work.rpn", &calls_of_work(&module));
    const CALLS: usize = 3000;
    let mut command = dprobes();
    command.args(["run", "-o", "t.dpt", "--log-target", &collector.target()]).arg(file).arg("--");
    command.arg(&module).args(["leaf", &CALLS.to_string()]).current_dir(scratch.path());
    let (status, _, told) = run(&mut command);
    assert_eq!(status.code(), Some(5), "{told}");
    let live = received(&collector);
    let mut command = dprobes();
    let (status, text, told) =
        run(command.args(["convert", "t.dpt", "--to", "otlp"]).current_dir(scratch.path()));
    assert!(status.success(), "{told}");
    let converted = spans(text.lines());
    assert!(converted.len() >= CALLS, "{} spans", converted.len());
    assert_eq!(live, converted);
    let is_work = |span: &&Value| span["name"] == "server_work";
    assert_eq!(live.iter().filter(is_work).count(), live.len());
}

#[test]
fn they_come_while_a_process_runs() {
    let module = need!("live spans", target("server"), "gcc");
    let collector = Collector::start();
    let mut server = start_server(&module);
    let options = ["--log-target", &collector.target()];
    let mut attached = attach(server.pid(), &calls_of_work(&module), &options);
    attached.wait_for(server.pid(), &module, "server_work");
    for turn in 1..=3 {
        assert_eq!(server.ask("call 4"), "done 4");
        let spans = wait_for(&collector, 4 * turn);
        assert_eq!(spans.len(), 4 * turn, "{spans:?}");
    }
    assert!(attached.stop(libc::SIGINT).status.success());
    assert_eq!(received(&collector).len(), 12);
    assert!(server.lives());
}

#[test]
fn a_session_sends_them_too() {
    let module = need!("live spans", target("server"), "gcc");
    let (session, collector) = (Session::new(), Collector::start());
    let mut server = start_server(&module);
    let file = session.program("work.rpn", &calls_of_work(&module));
    let pid = server.pid().to_string();
    session.done(&["insert", "-p", &pid, "--log-target", &collector.target(), &file]);
    becomes_traced(server.pid(), true);
    assert_eq!(server.ask("call 5"), "done 5");
    assert_eq!(wait_for(&collector, 5).len(), 5);
    session.done(&["session", "stop"]);
}

#[test]
fn what_is_not_taken_is_counted_and_said() {
    let module = need!("live spans", target("server"), "gcc");
    let scratch = Scratch::new();
    let file = scratch.file("work.rpn", &calls_of_work(&module));
    // A port at which nobody listens.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let to = format!("otlp:http://{closed}");
    let mut command = dprobes();
    command
        .args(["run", "--strict", "--log-target", &to])
        .arg(file)
        .arg("--")
        .arg(&module)
        .args(["leaf", "50"]);
    let (status, _, told) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(125), "{told}");
    assert!(told.contains(&format!("spans are not taken by http://{closed}: ")), "{told}");
    assert!(told.contains(&format!("{to}: 100 records could not be written")), "{told}");
}

#[test]
fn what_is_no_collector_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("work.rpn", &calls_of_work(Path::new("none")));
    for (to, said) in [
        ("otlp:https://localhost", "otlp:https://localhost: there is no TLS here"),
        ("otlp:localhost", "expected `http://HOST:PORT`"),
        ("otlp:", "`otlp` needs a URL"),
    ] {
        let mut command = dprobes();
        let (status, _, told) =
            run(command.args(["run", "--log-target", to]).arg(&file).args(["--", "true"]));
        assert!(!status.success() && told.contains(said), "{told}");
    }
}
