//! Scripts that change what they probe: arguments by their names, and memory through pointers.

use super::support::{Scratch, dprobes, run};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for engine in ["jump", "trap"] {
        for option in ["-O0", "-O2"] {
            let name = format!("changed: arguments by name and memory, {option} ({engine})");
            trials.add(name, move || with_gcc(|scratch| changed(scratch, engine, option)));
        }
        trials.add(format!("changed: what cannot be written ends the action ({engine})"), move || {
            with_gcc(|scratch| not_written(scratch, engine));
        });
    }
    trials.add("changed: what is in no single register is refused", || with_gcc(refused));
    for engine in ["auto", "trap"] {
        let name = format!("changed: the core of a process is dumped ({engine})");
        trials.add(name, move || with_gcc(|scratch| dumped(scratch, engine)));
    }
}

fn with_gcc(test: impl FnOnce(&Scratch)) {
    if testing::find_program("gcc").is_none() {
        return testing::skipped("trace: changed", "gcc");
    }
    test(&Scratch::new());
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdbool.h>
struct db { int id; const char *name; };
struct client { int fd; struct db *db; unsigned a : 3, b : 5; char name[8]; long counts[4]; };
struct pair { int x, y; };
#define KEEP __attribute__((noipa))
KEEP void serve(struct client *c, int n, const char *s, unsigned char b, bool yes, struct pair p, double d, long last) {
    printf("%d %s %d %d %ld\n", n, s, b, yes, last);
    printf("%d %d %s %d %d %s %ld %d\n", c->fd, c->db->id, c->db->name, c->a, c->b, c->name, c->counts[2], p.x + (int)d); }
KEEP int answer(int n) { return n; }
int main(void) {
    struct db db = { 7, "seven" };
    struct client c = { 3, &db, 5, 17, "hello", { 1, 2, 3, 4 } };
    setvbuf(stdout, 0, _IONBF, 0);
    serve(&c, -4, "text", 200, 0, (struct pair){ 1, 2 }, 2.5, 66);
    printf("%d %d\n", c.fd, answer(4));
    return 0;
}
"#;

fn compile(scratch: &Scratch, option: &str) -> std::path::PathBuf {
    let source = scratch.file("changed.c", PROGRAM);
    let program = scratch.path().join("changed");
    testing::output(Command::new("gcc").args(["-g", option, "-o"]).arg(&program).arg(source));
    program
}

fn traced(scratch: &Scratch, engine: &str, option: &str, script: &str) -> (Option<i32>, String, String) {
    let program = compile(scratch, option);
    let script = script.replace("PROGRAM", &program.to_string_lossy());
    let mut command = dprobes();
    command.current_dir(scratch.path());
    command.args(["trace", "--engine", engine, "--unsafe", "-q", "-e", &script, "--"]).arg(&program);
    let (status, stdout, stderr) = run(&mut command);
    (status.code(), stdout, stderr)
}

fn changed(scratch: &Scratch, engine: &str, option: &str) {
    let script = r#"
uprobe:PROGRAM:serve {
    args.n = args.n - 1;
    args.s += 1;
    args.b = 7;
    args.yes = true;
    args.last = -5;
    args.c->fd += 1000;
    args.c->db->id = 70;
    args.c->b = 9;
    args.c->name[0] = 74;
    args.c->counts[args.n + 7] = 33;
    *(int8 *)(arg0 + offsetof(struct client, name) + 1) = 69;
}
uprobe:PROGRAM:answer { args.n = 40; }
uretprobe:PROGRAM:answer { retval += 2; }
"#;
    let (status, stdout, stderr) = traced(scratch, engine, option, script);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout.trim_end(), "-5 ext 7 1 -5\n1003 70 seven 5 9 JEllo 33 3\n1003 42");
}

fn not_written(scratch: &Scratch, engine: &str) {
    let script = r#"
uprobe:PROGRAM:serve { printf("before\n"); *(uint32 *)16 = 1; printf("behind\n"); args.n = 1; }
uprobe:PROGRAM:answer { args.n = 5; *(uint32 *)-8 = 1; args.n = 6; }
"#;
    let (status, stdout, stderr) = traced(scratch, engine, "-O1", script);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let mut lines: Vec<&str> = stdout.lines().filter(|line| !line.is_empty()).collect();
    // When dprobes prints, and when the program does, is not ordered.
    lines.sort_unstable();
    assert_eq!(lines, ["-4 text 200 0 66", "3 5", "3 7 seven 5 17 hello 3 3", "before"]);
}

/// The action ends where it asks for the dump; the program goes on.
fn dumped(scratch: &Scratch, engine: &str) {
    let script = r#"
uprobe:PROGRAM:answer { if (args.n == 4) { printf("before\n"); core(); } printf("behind\n"); }
"#;
    let (status, stdout, _) = traced(scratch, engine, "-O1", script);
    assert_eq!(status, Some(0));
    let mut lines: Vec<&str> = stdout.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["-4 text 200 0 66", "3 4", "3 7 seven 5 17 hello 3 3", "before"]);
    let files = std::fs::read_dir(scratch.path())
        .expect("it is there")
        .map(|file| file.expect("it can be read").path());
    let is_core = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"core."))
    };
    let cores: Vec<_> = files.filter(is_core).collect();
    assert_eq!(cores.len(), 1, "{cores:?}");
    assert!(std::fs::read(&cores[0]).expect("it is ours").starts_with(b"\x7fELF"));
}

fn refused(scratch: &Scratch) {
    let program = compile(scratch, "-O1");
    for (statement, reason) in [
        ("args.d = 1;", "cannot be set"),
        ("args.p.x = 1;", "in registers"),
        ("args.c = \"text\";", "expected an integer or a pointer"),
        ("args.nothing = 1;", "nothing"),
    ] {
        let script = format!("uprobe:{}:serve {{ {statement} }}", program.display());
        let (status, _, stderr) = run(dprobes().args(["trace", "-d", "--unsafe", "-e", &script]));
        assert_eq!(status.code(), Some(1), "{statement}: {stderr}");
        assert!(stderr.contains(reason), "{statement}: {stderr}");
    }
}
