//! `help` and its pages, the examples that it writes, and the version.

use std::process::Command;

use crate::support::{Scratch, dprobes, find_program, need, run};

#[test]
fn examples_are_written_once_and_are_right() {
    let scratch = Scratch::new();
    let write = || run(dprobes().args(["help", "examples", "-o", "."]).current_dir(scratch.path()));
    let (status, out, err) = write();
    assert!(status.success() && out.is_empty() && err.is_empty(), "{out}{err}");
    let folder = scratch.path().join("examples");
    for name in ["malloc.rpn", "string.rpn", "proc.rpn"] {
        let (status, _, err) = run(dprobes().arg("check").arg(folder.join(name)));
        assert!(status.success(), "{err}");
    }
    let (status, _, err) = run(dprobes().args(["templates", "check"]).arg(folder.join("templates")));
    assert!(status.success(), "{err}");
    // What somebody changed meanwhile stays.
    let changed = folder.join("malloc.rpn");
    std::fs::write(&changed, "mine").expect("our own");
    let (status, _, err) = write();
    assert!(status.code() == Some(1) && err.contains("examples: File exists"), "{err}");
    assert_eq!(std::fs::read_to_string(&changed).expect("our own"), "mine");
}

#[test]
fn a_plugin_is_built_of_the_examples_alone() {
    let compiler = need!("help: plugin", find_program("gcc"), "gcc");
    let scratch = Scratch::new();
    let (status, _, err) = run(dprobes().args(["help", "examples", "-o"]).arg(scratch.path()));
    assert!(status.success(), "{err}");
    let folder = scratch.path().join("examples/plugins");
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o", "events.so", "events.c"]);
    let (status, _, err) = run(command.current_dir(folder));
    assert!(status.success(), "{err}");
}

#[test]
fn what_is_a_command_and_a_page_shows_both() {
    let said = |words: &[&str]| {
        let (status, out, err) = run(dprobes().arg("help").args(words));
        assert!(status.success() && err.is_empty(), "{words:?}: {err}");
        out
    };
    let session = said(&["session"]);
    assert!(session.contains("Usage: dprobes session") && session.contains("\nTHE BACKGROUND SESSION\n"));
    assert!(said(&["session", "stop"]).contains("Usage: dprobes session stop"));
    assert!(said(&["glossary"]).starts_with("GLOSSARY\n"));
    assert!(said(&["count"]).contains("Usage: dprobes count") && !said(&["count"]).contains('\x1b'));
    let all = said(&[]);
    assert!(all.contains("Usage: dprobes <COMMAND>") && all.contains("  cookbook "), "{all}");
    let example = std::fs::read_to_string(testing::repository().join("examples/malloc.rpn"));
    assert_eq!(said(&["examples/malloc.rpn"]), example.expect("it is there"));
}

#[test]
fn a_terminal_gets_the_pager_and_without_one_the_text() {
    let script = need!("help: pager", find_program("script"), "script");
    let line = format!("'{}' help glossary", env!("CARGO_BIN_EXE_dprobes"));
    let shown = |pager: &str| {
        let mut command = Command::new(&script);
        let (status, out, err) = run(command.args(["-qec", &line, "/dev/null"]).env("PAGER", pager));
        assert!(status.success(), "{out}{err}");
        out
    };
    let paged = shown("sed 's/^/paged: /'");
    assert!(paged.lines().count() > 10 && paged.lines().all(|line| line.starts_with("paged: ")), "{paged}");
    // A pager that is left early, and none.
    assert!(shown("true").is_empty());
    for none in ["", "no-such-pager 2>/dev/null"] {
        assert!(shown(none).contains("GLOSSARY"), "{none}");
    }
}

#[test]
fn the_version_is_that_of_the_package_and_a_commit() {
    let (status, out, _) = run(dprobes().arg("--version"));
    let rest = out.strip_prefix(concat!("dprobes ", env!("CARGO_PKG_VERSION"))).expect("the version");
    let commit = rest.trim_end().strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    let is_commit = |commit: &str| commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(status.success() && (rest == "\n" || commit.is_some_and(is_commit)), "{out}");
}
