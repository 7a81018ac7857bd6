//! Builds the programs of `tests/programs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{Scratch, find_program, have, output, skipped};

/// Whether there are the programs, and gdb has Python; if not, the test is skipped.
pub(crate) fn have_gdb(test: &str, programs: &[&str]) -> bool {
    if !have(test, &[&["gdb"], programs].concat()) {
        return false;
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-ex", "python print(6 * 7)"]);
    let has = gdb.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("42"));
    if !has {
        skipped(test, "gdb with Python");
    }
    has
}

/// The path of a source.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Compiles or links, and returns the output.
pub(crate) fn compile(
    scratch: &Scratch,
    compiler: &str,
    inputs: &[PathBuf],
    name: &str,
    options: &[&str],
) -> PathBuf {
    let path = scratch.path().join(name);
    let compiler = find_program(compiler).expect("the test asked for it");
    output(Command::new(compiler).args(options).arg("-o").arg(&path).args(inputs));
    path
}
