//! Scripts that print stacks, and the names in what they print.

use std::process::Command;

use super::super::support::{Scratch, dprobes, run};

/// The names of the functions in each stack.
pub(super) fn names(printed: &str) -> Vec<Vec<String>> {
    let blocks = printed.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    let name = |line: &str| line.trim().rsplit_once('+').map_or(line.trim(), |(name, _)| name).to_owned();
    blocks.map(|block| block.lines().map(name).collect()).collect()
}

/// The names of the functions in each stack that a script prints, and what is said beside.
pub(super) fn named(trace: &mut Command, scratch: &Scratch) -> (Vec<Vec<String>>, String) {
    let printed = scratch.path().join("printed");
    let (status, _, stderr) = run(trace);
    assert!(status.success(), "{status}\n{stderr}");
    (names(&std::fs::read_to_string(printed).expect("what it has printed")), stderr)
}

/// `dprobes trace`, whose script prints into the scratch directory.
pub(super) fn trace(scratch: &Scratch, engine: &str, script: &str) -> Command {
    let mut command = dprobes();
    command.args(["trace", "--lossless", "--engine", engine, "-o"]).arg(scratch.path().join("printed"));
    command.arg(script).arg("--");
    command
}
