//! Scripts on processes that run already, and how tracing ends.

use super::support::{Scratch, Server, dprobes, run, target, text_differences};
use super::tracing::{Tracing, becomes_free, send};
use std::path::PathBuf;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut both = |name: &str, test: fn(&PathBuf, &str)| {
        for engine in ["jump", "trap"] {
            trials.add(format!("live: {name} ({engine})"), move || match target("scripted") {
                Some(program) => test(&program, engine),
                None => testing::skipped("trace: live", "gcc"),
            });
        }
    };
    both("ctrl-c prints maps, and the program goes on", ctrl_c);
    both("the program's end is the end", end_of_the_program);
    both("a killed tracer leaves a program that goes on", killed);
    both("who reads no more ends tracing", closed);
    both("after its time, tracing ends", after_a_time);
    both("a command is ended with the script", command_is_ended);
    trials.add("live: a file takes what the script prints", file);
    trials.add("live: a script in a file has parameters", script_file);
    trials.add("live: nothing runs if -p is nobody", nobody);
}

const COUNTS: &str = "uprobe:a.out:scripted_size { @ = count(); }";

fn serve(program: &PathBuf) -> Server {
    let server = Server::start(program, ["serve"]);
    assert_eq!(server.line(), "ready");
    server
}

/// Traces a process; returns when its probes are in.
fn trace(server: &Server, engine: &str, script: &str) -> Tracing {
    let pid = server.pid().to_string();
    let tracing = Tracing::start(&["--engine", engine, "-p", &pid, script]);
    tracing.says("armed");
    tracing
}

/// The program works, and its code is as it was.
fn is_whole(mut server: Server) {
    becomes_free(server.pid());
    assert_eq!(server.ask("still there"), "still there");
    assert_eq!(text_differences(server.pid()), [] as [String; 0]);
    assert_eq!(server.end().0.code(), Some(3));
}

fn ctrl_c(program: &PathBuf, engine: &str) {
    let mut server = serve(program);
    let tracing = trace(&server, engine, COUNTS);
    for _ in 0..5 {
        server.ask("x");
    }
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 5"));
    is_whole(server);
}

fn end_of_the_program(program: &PathBuf, engine: &str) {
    let mut server = serve(program);
    let script = format!("{COUNTS} end {{ printf(\"over\\n\"); }}");
    let tracing = trace(&server, engine, &script);
    server.ask("x");
    assert_eq!(server.end().0.code(), Some(3));
    let (status, stdout) = tracing.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), "over\n\n\n@: 1\n"));
}

fn killed(program: &PathBuf, engine: &str) {
    let mut server = serve(program);
    let tracing = trace(&server, engine, COUNTS);
    server.ask("x");
    send(tracing.tracer(), libc::SIGKILL);
    assert!(!tracing.end().0.success());
    is_whole(server);
}

fn closed(program: &PathBuf, engine: &str) {
    let mut server = serve(program);
    let mut tracing = trace(&server, engine, "uprobe:a.out:scripted_size { printf(\"%d\\n\", arg0); }");
    tracing.close_output();
    // The first line finds nobody; the next record, or the end of the program, ends tracing.
    let pid = server.pid();
    for _ in 0..500 {
        server.ask("x");
        if !super::support::is_traced(pid) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    is_whole(server);
    assert!(tracing.end().0.success());
}

fn after_a_time(program: &PathBuf, engine: &str) {
    let server = serve(program);
    let pid = server.pid().to_string();
    let words = ["--engine", engine, "--for", "200ms", "-q", "-p", &pid, COUNTS];
    let (status, stdout) = Tracing::start(&words).end();
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 0"));
    is_whole(server);
}

fn command_is_ended(program: &PathBuf, engine: &str) {
    let script = "uprobe:a.out:scripted_size { printf(\"%d\\n\", pid); exit(); }";
    let mut command = dprobes();
    command.args(["trace", "--engine", engine, script, "--"]).arg(program).arg("wait");
    let (status, stdout, _) = run(&mut command);
    assert_eq!(status.code(), Some(0));
    let pid = stdout.trim();
    assert!(pid.parse::<u32>().is_ok(), "{stdout}");
    let name = std::fs::read_link(format!("/proc/{pid}/exe"));
    assert!(name.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound), "it still runs");
}

fn file() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: live", "gcc") };
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let mut command = dprobes();
    command.args(["trace", "-q", "-o"]).arg(&out).arg(COUNTS).arg("--").arg(program).args(["calls", "4"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    assert_eq!(std::fs::read_to_string(out).expect("it was written"), "\n\n@: 4\n");
}

fn script_file() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: live", "gcc") };
    let scratch = Scratch::new();
    let text = "uprobe:a.out:scripted_size /arg0 < $1/ { @[str($2)] = count(); }";
    let script = scratch.file("few.bt", text);
    let line = format!("'{}' calls 9", program.display());
    let mut command = dprobes();
    command.args(["trace", "-q", "-c", &line]).arg(script).args(["4", "few"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.trim(), stderr.as_str()), (Some(0), "@[few]: 4", ""));
}

/// The process has ended, but nobody has taken its status: its number is not given anew.
fn nobody() {
    let mut child = std::process::Command::new("true").spawn().expect("it starts");
    let pid = child.id().to_string();
    child.wait().expect("it ends");
    let mut command = dprobes();
    command.args(["trace", "-p", &pid, "begin { printf(\"begun\"); } uprobe:libc:malloc { }"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""), "{stderr}");
    assert_eq!(stderr, format!("dprobes: error: no process {pid}\n"));
}
