//! Stacks through libraries that come and go, and the tables in a process that say how to walk them.

use testing::{need, target, variant};

use super::super::support::{Scratch, Server};
use super::super::tracing::{Tracing, becomes_free, send};
use super::shown::{named, names, trace};

/// A script that prints stacks with names, on a process.
fn trace_names(server: &Server, engine: &str) -> Tracing {
    let pid = server.pid().to_string();
    let script = "uprobe:a.out:deep_leaf { printf(\"%s\\n\", ustack()); }";
    let tracing = Tracing::start(&["--lossless", "--engine", engine, "-p", &pid, script]);
    tracing.says("armed");
    tracing
}

/// A library that is mapped after the script has begun, again and again.
pub(super) fn plugin(engine: &str) {
    let test = "unwinding: a library";
    let program = need!(test, target("deep"), "gcc");
    let flags = ["-DLIBRARY", "-shared", "-fPIC"];
    let library = need!(test, variant("deep", "deep.so", &flags), "gcc");
    let mut server = Server::start(&program, ["open"]);
    assert_eq!(server.line(), "ready");
    let tracing = trace_names(&server, engine);
    const ROUNDS: usize = 12;
    for _ in 0..ROUNDS {
        assert_eq!(server.ask(&library.display().to_string()), "done");
    }
    assert_eq!(blocks(server.pid()), usize::from(engine == "jump"));
    let (status, printed) = tracing.stop(libc::SIGINT);
    assert!(status.success(), "{status}");
    are_through_the_library(&printed, ROUNDS);
    assert_eq!(blocks(server.pid()), 0);
    assert_eq!(server.end().0.code(), Some(0));
}

/// Checks the stacks of so many calls of the library.
fn are_through_the_library(printed: &str, calls: usize) {
    let found = names(printed);
    assert_eq!(found.len(), calls, "{printed}");
    let expected = ["deep_leaf", "deep_within"].into_iter().chain(["deep_inside"; 5]).chain(["main"]);
    let expected: Vec<&str> = expected.collect();
    for stack in found {
        assert_eq!(stack[..expected.len()], expected);
        assert_eq!(stack.last().map(String::as_str), Some("_start"), "{stack:?}");
    }
}

/// How many blocks of tables a process has: nothing else is mapped as they are.
fn blocks(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let is_block = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hex = |text| u64::from_str_radix(text, 16).expect("an address");
        let size = fields[0].split_once('-').map_or(0, |(start, end)| hex(end) - hex(start));
        fields[1] == "r--p" && fields.len() == 5 && size >= 16 << 20
    };
    maps.lines().filter(is_block).count()
}

/// Libraries with so much unwinding information that a block is soon full.
pub(super) fn full_blocks() {
    let test = "unwinding: full blocks";
    let program = need!(test, target("deep"), "gcc");
    let flags = ["-DLIBRARY", "-DMANY", "-shared", "-fPIC"];
    let library = need!(test, variant("deep", "deep-many.so", &flags), "gcc");
    let scratch = Scratch::new();
    let mut server = Server::start(&program, ["open"]);
    assert_eq!(server.line(), "ready");
    let tracing = trace_names(&server, "jump");
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let copy = scratch.path().join(format!("library-{round}.so"));
        std::fs::copy(&library, &copy).expect("the scratch directory");
        assert_eq!(server.ask(&copy.display().to_string()), "done");
        std::fs::remove_file(&copy).expect("it was copied");
        assert_eq!(blocks(server.pid()), 1, "round {round}");
    }
    let (status, printed) = tracing.stop(libc::SIGINT);
    assert!(status.success(), "{status}");
    are_through_the_library(&printed, ROUNDS);
    assert_eq!(blocks(server.pid()), 0);
    assert_eq!(server.end().0.code(), Some(0));
}

/// The tracer is killed: the tables go, too.
pub(super) fn killed() {
    let test = "unwinding: killed";
    let program = need!(test, target("deep"), "gcc");
    let library = need!(test, variant("deep", "deep.so", &["-DLIBRARY", "-shared", "-fPIC"]), "gcc");
    let mut server = Server::start(&program, ["open"]);
    assert_eq!(server.line(), "ready");
    let tracing = trace_names(&server, "jump");
    assert_eq!(server.ask(&library.display().to_string()), "done");
    assert_eq!(blocks(server.pid()), 1);
    send(tracing.tracer(), libc::SIGKILL);
    assert!(!tracing.end().0.success());
    becomes_free(server.pid());
    assert_eq!(blocks(server.pid()), 0);
    assert_eq!(server.ask(&library.display().to_string()), "done");
    assert_eq!(server.end().0.code(), Some(0));
}

/// A process that may have few addresses goes without tables of its own, or with small ones.
pub(super) fn few_addresses() {
    let test = "unwinding: few addresses";
    let program = need!(test, target("deep"), "gcc");
    let scratch = Scratch::new();
    let script = format!("uprobe:{}:deep_leaf {{ printf(\"%s\\n\", ustack()); }}", program.display());
    let mut command = trace(&scratch, "auto", &script);
    command.args(["/bin/sh", "-c", "ulimit -v 409600; exec \"$0\""]).arg(&program);
    let (found, stderr) = named(&mut command, &scratch);
    assert!(found.len() > 300, "{stderr}");
    for stack in found {
        assert_eq!(stack.last().map(String::as_str), Some("_start"), "{stack:?}\n{stderr}");
    }
}
