//! Which engine runs a program for all processes that is inserted without `--engine`.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::support::{Background, Server, build, counting, dprobes, is_traced, need, needs_kernel, run};

/// A program of the test's own, and two processes that run it.
fn servers(session: &Background) -> Option<(String, Server, Server)> {
    std::fs::set_permissions(session.scratch().path(), PermissionsExt::from_mode(0o755)).expect("our own");
    session.servers()
}

/// A user who is not root.
const NOBODY: u32 = 65534;

const CHEAPER: &str = "with -p PID, or --engine tracer for your own processes, probes are jumps";

#[test]
fn the_kernel_runs_it_for_the_processes_of_all_users() {
    needs_kernel!("chosen");
    let session = Background::new();
    let (path, mut server, other) = need!("bpf: chosen", servers(&session), "gcc");
    let said = session.insert(&counting(&path, &["server_work"]), &[]);
    assert!(said.starts_with(&format!("1 probe inserted in `{path}`, by the kernel engine\n")), "{said}");
    assert!(said.contains(CHEAPER), "{said}");
    server.ask("call 30");
    let mut others = Command::new(&path);
    others.uid(NOBODY).gid(NOBODY).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut others = others.spawn().expect("anybody may execute it");
    let asked = others.stdin.take().expect("a pipe").write_all(b"call 12\nexit 0\n");
    assert!(asked.is_ok() && others.wait().expect("our child").success());
    let shown = session.done(&["query", "--all"]);
    assert!(shown.contains("hits 42 runs 42 ") && shown.contains("run by the kernel: "), "{shown}");
    assert!(!is_traced(server.pid()));
    // What is added to it stays with the kernel; what the kernel cannot run is refused beside it.
    let more = session.program("more.rpn", &counting(&path, &["main"]));
    assert!(session.done(&["insert", "--merge", &more]).contains("by the kernel engine"));
    let refused = session.fails(&["insert", "--merge", "--lossless", &more]);
    assert!(refused.contains("are run by another engine"), "{refused}");
    session.done(&["remove", "--all"]);
    assert!(other.end().0.success());
}

#[test]
fn the_tracer_runs_what_the_kernel_cannot() {
    needs_kernel!("chosen");
    let session = Background::new();
    let (path, mut server, other) = need!("bpf: chosen", servers(&session), "gcc");
    let text = counting(&path, &["server_work"]);
    let file = session.program("tracer.rpn", &text);
    let by_tracer = format!("1 probe inserted in `{path}`, which 2 processes map now\n");
    let fpu = session.program("fpu.rpn", &text.replace("exit\n", "push u, mxcsr pop r, rax exit\n"));
    let cases: [&[&str]; 4] =
        [&["--engine", "tracer", &file], &["--lossless", &file], &["--share-variables", &file], &[&fpu]];
    for words in cases {
        let said = session.done(&[&["insert"], words].concat());
        assert!(said.starts_with(&by_tracer) && !said.contains(CHEAPER), "{words:?}: {said}");
        assert!(is_traced(server.pid()) && is_traced(other.pid()), "{words:?}");
        session.done(&["remove", "--all"]);
    }
    // Beside jumps in the same file.
    session.done(&["insert", "--engine", "tracer", &file]);
    let more = session.program("more.rpn", &counting(&path, &["main"]));
    assert!(session.done(&["insert", "--merge", &more]).starts_with(&by_tracer));
    server.ask("call 7");
    assert!(session.done(&["query", "--all"]).contains("hits 7 runs 7 "));
    server.end();
    other.end();
}

/// Calls a function for each line. The kernel puts no uprobe on an instruction with a lock prefix.
const LOCKED: &str = r#"
#include <stdio.h>
static int number;
__attribute__((noinline)) void bump(int *at) {
    __asm__ volatile(".globl locked\n.type locked, @function\nlocked: lock incl (%0)" : : "r"(at) : "memory");
}
int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        bump(&number);
        printf("%d\n", number);
        fflush(stdout);
    }
}
"#;

#[test]
fn what_the_kernel_refuses_to_probe_goes_to_the_tracer() {
    needs_kernel!("chosen");
    let session = Background::new();
    let program = need!("bpf: chosen", build(session.scratch(), LOCKED, "locked", &[]), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let path = program.display().to_string();
    let file = session.program("locked.rpn", &counting(&path, &["locked"]));
    let refused = session.fails(&["insert", "--engine", "kernel", &file]);
    assert!(refused.contains("locked"), "{refused}");
    let said = session.done(&["insert", &file]);
    assert!(said.starts_with(&format!("1 probe inserted in `{path}`, which 1 process maps now\n")), "{said}");
    assert!(said.contains("not probed: the kernel engine refuses the program ("), "{said}");
    assert_eq!((server.ask(""), server.ask("")), ("1".into(), "2".into()));
    assert!(session.done(&["query", "--all"]).contains("hits 2 runs 2 "));
    session.done(&["remove", "--all"]);
    // What was opened for the kernel is not in the tracer's way, and nothing is written twice.
    let store = session.scratch().path().join("new.dpt").display().to_string();
    let text = std::fs::read_to_string(&file).expect("it was written").replace("logmax = 0\n", "");
    let logging = session.program("logging.rpn", &text.replace("inc lv, 0", "push r, rdi log 1"));
    session.done(&["insert", "-o", &store, &logging]);
    server.ask("");
    session.done(&["remove", "--all"]);
    assert_eq!(session.done(&["show", &store]).lines().count(), 1);
    // What neither can probe: once, in the tracer's words or the kernel's.
    let none = session.program("none.rpn", &counting(&path, &["nothing_of_this_name"]));
    let refused = session.fails(&["insert", &none]);
    assert_eq!(refused.matches("error: ").count(), 1, "{refused}");
    assert_eq!((session.attached(), session.done(&["query", "--all"])), (0, String::new()));
    server.end();
}

#[test]
fn an_ordinary_user_is_told_whose_processes_are_not_probed() {
    needs_kernel!("chosen");
    let session = Background::new();
    let (path, server, other) = need!("bpf: chosen", servers(&session), "gcc");
    let home = session.scratch().path().join("others");
    std::fs::create_dir(&home).expect("a fresh directory");
    chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).expect("root may");
    let file = session.program("count.rpn", &counting(&path, &["server_work"]));
    let ordinary = |words: &[&str]| {
        let mut command = dprobes();
        command.env("DPROBES_SESSION_DIR", &home).args(words).uid(NOBODY).gid(NOBODY);
        command
    };
    if ordinary(&["--version"]).output().is_err() {
        return testing::skipped("bpf: chosen: users", "a build directory that others can enter");
    }
    let (status, said, error) = run(&mut ordinary(&["insert", &file]));
    run(&mut ordinary(&["session", "stop"]));
    assert_eq!((status.code(), error.as_str()), (Some(0), ""), "{said}");
    assert!(
        said.starts_with(&format!("1 probe inserted in `{path}`, which no process maps now\n")),
        "{said}"
    );
    assert!(
        said.contains(
            "processes of other users are not probed: that takes root, or CAP_BPF and CAP_PERFMON\n"
        ),
        "{said}"
    );
    server.end();
    other.end();
}
