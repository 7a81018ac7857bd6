//! What is refused, and what is said.

use crate::support::{Scratch, copy, counting, dprobes, need, needs_kernel, run, start, target};
use std::os::unix::process::CommandExt;

/// Runs `dprobes attach` with these words; it must fail. Returns its one message.
#[track_caller]
fn refused(words: &[&str]) -> String {
    let (status, _, said) = run(dprobes().arg("attach").args(words));
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

const ANY: &str = "libc.so.6:no such function:entry";

#[test]
fn options_that_mean_nothing_here_are_refused_with_a_reason() {
    for (words, reason) in [
        (&["--lossless", "--at", ANY][..], "--lossless: the kernel engine does not make programs wait"),
        (&["--share-variables", "--at", ANY], "--share-variables: with the kernel engine all processes"),
        (&["--engine", "jump", "--at", ANY], "--engine jump probes processes: name them with -p"),
        (&["--engine", "trap", "--at", ANY], "--engine trap probes processes: name them with -p"),
        (&["--at", "a.out:main:entry"], "`a.out` is the program of a process: name the process with -p"),
        (&["--at", "pid1:libc:malloc:entry"], "`pid1:` names a process, and none is given with -p"),
    ] {
        let said = refused(words);
        assert!(said.starts_with("dprobes: error: ") && said.contains(reason), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_kernel_engine_is_not_for_commands() {
    let words = ["run", "--engine", "kernel", "--at", ANY, "--", "true"];
    let (status, _, said) = run(dprobes().args(words));
    assert!(!status.success() && said.contains("invalid value 'kernel'"), "{said}");
}

#[test]
fn without_rights_it_says_in_one_line_what_is_needed() {
    needs_kernel!("messages");
    let command = dprobes().get_program().to_owned();
    let mut other = std::process::Command::new(command);
    other.args(["attach", "--at", "libc.so.6:malloc:entry"]).uid(65534).gid(65534);
    let Ok(output) = other.output() else {
        return testing::skipped("bpf: messages: users", "a build directory that others can enter");
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("needs root, or CAP_BPF and CAP_PERFMON (this process lacks CAP_BPF and CAP_PERFMON)"),
        "{said}"
    );
}

#[test]
fn what_is_not_there_is_refused_with_a_hint() {
    needs_kernel!("messages");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: messages", target("server"), "gcc"), "server");
    let name = program.display().to_string();
    let file = scratch.file("p.rpn", &counting(&name, &["server_wrok"]));
    let said = refused(&[file.to_str().expect("a plain path")]);
    assert!(said.contains("no symbol `server_wrok`; did you mean `server_work`?"), "{said}");
    let said = refused(&["--at", &format!("{name}:nowhere*:entry")]);
    assert!(said.contains("no function matches `nowhere*`"), "{said}");
    let said = refused(&["--engine", "kernel", "-p", "2147483646", "--at", ANY]);
    assert!(said.contains("process 2147483646: "), "{said}");
}

#[test]
fn an_opcode_is_compared_with_the_files_bytes() {
    needs_kernel!("messages");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: messages", target("server"), "gcc"), "server");
    let text =
        format!("name = \"{}\"\noffset = server_work\nopcode = 0x90\nminor = 1\nexit\n", program.display());
    let file = scratch.file("p.rpn", &text);
    let said = refused(&[file.to_str().expect("a plain path")]);
    assert!(said.contains("opcode 0x90 expected, 0x"), "{said}");
    let mut session = start(&text, &["--dont-verify-opcodes"]);
    session.armed();
    let leaf = std::process::Command::new(&program).args(["leaf", "3"]).output().expect("it starts");
    assert_eq!(leaf.status.code(), Some(5));
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 3);
}

#[test]
fn a_handler_that_the_kernel_cannot_run_is_refused_with_its_line() {
    needs_kernel!("messages");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: messages", target("server"), "gcc"), "server");
    let text =
        format!("name = \"{}\"\noffset = server_work\npush 1\npush r, cpuid\nexit\n", program.display());
    let file = scratch.file("p.rpn", &text);
    let said = refused(&[file.to_str().expect("a plain path")]);
    assert!(said.contains("the kernel engine cannot run this handler: "), "{said}");
    assert!(said.contains("p.rpn:4:") && said.contains("push r, cpuid"), "{said}");
}

#[test]
fn instructions_that_uprobes_do_not_take_are_refused_by_name() {
    needs_kernel!("messages");
    let scratch = Scratch::new();
    let source = "int x;\nint main(void) { __asm__ volatile(\".globl call_it\\ncall_it: lock incl x(%%rip)\" ::: \"memory\"); return x - 1; }\n";
    let program = need!("bpf: messages", crate::support::build(&scratch, source, "calls", &["-O1"]), "gcc");
    let file = scratch.file("p.rpn", &format!("name = \"{}\"\noffset = call_it\nexit\n", program.display()));
    // No process runs it: it is refused all the same.
    let said = refused(&[file.to_str().expect("a plain path")]);
    assert!(said.contains("the kernel's uprobes do not take this instruction"), "{said}");
}
