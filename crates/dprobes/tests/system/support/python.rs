//! Python, which reads what dprobes writes by means of others' libraries.

use super::{Scratch, find_program, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python with this module, if there is one: `DPROBES_PYTHON`, or this machine's.
pub(crate) fn python(module: &str) -> Option<PathBuf> {
    let named = std::env::var_os("DPROBES_PYTHON").map(PathBuf::from);
    let python = named.or_else(|| find_program("python3"))?;
    let mut command = Command::new(&python);
    let (status, _, _) = run(command.args(["-c", &format!("import {module}")]));
    status.success().then_some(python)
}

/// Runs a script; gives what it prints.
#[track_caller]
pub(crate) fn script(python: &Path, scratch: &Scratch, text: &str) -> String {
    let mut command = Command::new(python);
    let (status, stdout, stderr) = run(command.args(["-c", text]).current_dir(scratch.path()));
    assert!(status.success(), "{stderr}");
    stdout
}
