//! Measures what an exec costs when the session knows the module: `subject/again.c` executes
//! itself.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::subject::Library;
use crate::{build, other};

/// How often it executes itself.
const TIMES: usize = 3;

/// Durations of execs, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Execs {
    /// For each, the time from the call to the first instruction of `main`.
    pub wall: Vec<f64>,
    /// The tracer's processor time meanwhile.
    pub processor: Vec<f64>,
}

/// Builds the program that executes itself.
///
/// # Errors
/// If there is no gcc, or it does not build.
pub fn again(library: &Library, directory: &Path) -> io::Result<PathBuf> {
    let program = directory.join("again");
    let here = build::repository().join("crates/bench/subject/again.c");
    build::c_program(&[here, library.path().to_owned()], &["-Wl,-rpath,$ORIGIN"], &[], &program)?;
    Ok(program)
}

/// Runs the program, unprobed or with the probes of a program.
///
/// # Errors
/// If it fails, or one of its functions returned a wrong result.
pub fn execs(program: &Path, probes: Option<(&Path, &Path)>) -> io::Result<Execs> {
    let mut command = match probes {
        Some((dprobes, text)) => {
            let mut command = Command::new(dprobes);
            command.arg("run").args(["-o", "/dev/null"]).arg(text).arg("--").arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg(TIMES.to_string()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found = Execs::default();
    for line in text.lines() {
        let ["exec", wall, processor, "wrong", "0"] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let number = |text: &str| text.parse::<f64>().map(|microseconds| microseconds / 1e3);
        found.wall.extend(number(wall));
        found.processor.extend(number(processor));
    }
    match output.status.success() && (found.wall.len(), found.processor.len()) == (TIMES, TIMES) {
        true => Ok(found),
        false => Err(other(format!("the program that executes itself printed {text:?} ({})", output.status))),
    }
}
