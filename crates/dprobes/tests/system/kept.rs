//! A command that fails leaves its output files unchanged; one that succeeds replaces them as a
//! whole.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, dprobes, need, run, start_server, target};

/// A file of each kind exists already.
const FILES: [&str; 4] = ["keep.dpt", "keep.txt", "keep.ltt", "keep.json"];
const OLD: &str = "what an earlier command has written";

fn fill(scratch: &Scratch) {
    for file in FILES {
        fs::write(scratch.path().join(file), OLD).expect("room");
    }
    fs::create_dir(scratch.path().join("keep.ctf")).expect("room");
}

/// All names in the directory, except programs and scripts.
fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.ends_with(".rpn"));
    names.sort();
    names
}

#[track_caller]
fn all_is_kept(scratch: &Scratch, what: &str) {
    for file in FILES {
        let text = fs::read_to_string(scratch.path().join(file)).expect("it is there");
        assert_eq!(text, OLD, "{file}: {what}");
    }
    let files = fs::read_dir(scratch.path().join("keep.ctf")).expect("it is there").count();
    assert_eq!(files, 0, "{what}");
    assert_eq!(names(scratch), ["keep.ctf", "keep.dpt", "keep.json", "keep.ltt", "keep.txt"], "{what}");
}

/// A command with all outputs.
fn tracing(word: &str, scratch: &Scratch) -> Command {
    let mut command = dprobes();
    command.arg(word).args([
        "--log-format=klog",
        "-o",
        "keep.dpt",
        "--log-target",
        "file:keep.txt,ltt:keep.ltt,ctf:keep.ctf",
    ]);
    command.args(["--stats", "keep.json"]).current_dir(scratch.path());
    command
}

#[test]
fn a_command_that_fails_replaces_nothing() {
    let scratch = Scratch::new();
    fill(&scratch);
    let at = ["--at", "sh:main:entry", "--do", "log 0"];
    let wrong = scratch.file("wrong.rpn", "name = \"sh\"\nmodtype = user\nnonsense\n");
    // No such process; no such command; no such function; a program with a mistake; a process that
    // must not be traced.
    let mut absent = tracing("attach", &scratch);
    absent.args(["-p", "4194303"]).args(at);
    let mut unknown = tracing("run", &scratch);
    unknown.args(at).args(["--", "./there-is-no-such-command"]);
    let mut mistaken = tracing("run", &scratch);
    mistaken.arg(wrong).args(["--", "true"]);
    let mut nowhere = tracing("run", &scratch);
    let program = "name = \"/bin/sh\"\nmodtype = user\noffset = there_is_no_such_function\nexit\n";
    nowhere.arg(scratch.file("nowhere.rpn", program)).args(["--", "/bin/sh", "-c", "true"]);
    let mut own = tracing("attach", &scratch);
    own.args(["-p", &std::process::id().to_string()]).args(at).args(["--plugin", "./none.so"]);
    for mut command in [absent, unknown, mistaken, nowhere, own] {
        let (status, _, stderr) = run(&mut command);
        assert!(!status.success(), "{command:?}: {stderr}");
        all_is_kept(&scratch, &format!("{command:?}: {stderr}"));
    }
    // A trace that is none, in other forms.
    for words in [
        &["convert", "keep.dpt", "--to", "json", "-o", "keep.json"][..],
        &["convert", "keep.dpt", "--to", "csv", "-o", "keep.txt"],
        &["convert", "keep.dpt", "--to", "perfetto", "-o", "keep.ltt"],
        &["convert", "keep.dpt", "--to", "ctf", "-o", "keep.ctf"],
        &["report", "keep.dpt", "--html", "keep.txt"],
        &["build-ppdf", "wrong.rpn", "-o", "keep.txt"],
    ] {
        let (status, _, stderr) = run(dprobes().args(words).current_dir(scratch.path()));
        assert!(!status.success(), "{words:?}: {stderr}");
        all_is_kept(&scratch, &format!("{words:?}: {stderr}"));
    }
}

/// While it is written, a trace is already in its place and can be read.
#[test]
fn a_trace_is_in_its_place_as_soon_as_the_probes_are_in() {
    let module = need!("kept", target("server"), "gcc");
    let scratch = Scratch::new();
    fill(&scratch);
    let mut server = start_server(&module);
    let at = format!("{}:server_work:entry", module.display());
    let mut command = tracing("attach", &scratch);
    command.args(["-p", &server.pid().to_string(), "--at", &at, "--do", "push r, rdi; log 1"]);
    let mut attached = command.stderr(Stdio::null()).spawn().expect("dprobes starts");
    let start = Instant::now();
    let records = |file: &str| match file {
        "keep.dpt" => run(dprobes().args(["show", "--log-format=klog", file]).current_dir(scratch.path())).1,
        _ => fs::read_to_string(scratch.path().join(file)).unwrap_or_default(),
    };
    while !["keep.dpt", "keep.txt"].iter().all(|file| records(file).contains("DProbes(")) {
        assert_eq!(server.ask("call 10"), "done 10");
        assert!(start.elapsed() < Duration::from_secs(100), "{:?}", names(&scratch));
        std::thread::sleep(Duration::from_millis(100));
    }
    // SAFETY: kill takes no pointers; the child has not been waited for.
    unsafe { libc::kill(attached.id() as i32, libc::SIGINT) };
    attached.wait().expect("a child can be waited for");
    let stats = fs::read_to_string(scratch.path().join("keep.json")).expect("it is there");
    assert!(stats.contains("\"probes\""), "{stats}");
    assert!(fs::read(scratch.path().join("keep.ltt")).expect("it is there") != OLD.as_bytes());
    assert_eq!(names(&scratch), ["keep.ctf", "keep.dpt", "keep.json", "keep.ltt", "keep.txt"]);
}
