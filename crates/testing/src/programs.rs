//! The programs under test: built with gcc or Go on first use, from the repository's
//! `tests/targets` to `target/test-targets`. The first line of each source says how.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::directories::{program_directory, repository};
use crate::find_program;

/// How long to wait until a program just written can be started.
const BUSY_FILE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a command that must succeed, and returns its standard output.
///
/// # Panics
/// If it does not start or fails; with its error output.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Starts a program, which a test may just have written. The kernel refuses that (ETXTBSY) as long
/// as a child forked by another thread has the file open until its own exec; so retry.
///
/// # Errors
/// As of starting it.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let begin = Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begin.elapsed() < BUSY_FILE_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// The program `tests/targets/NAME.c` or `.S`, built; `None` without gcc.
///
/// # Panics
/// If gcc does not build the program.
pub fn target(name: &str) -> Option<PathBuf> {
    variant(name, name, &[])
}

/// As [`target`], built with more flags under another name.
///
/// # Panics
/// If gcc does not build the program.
pub fn variant(name: &str, program: &str, flags: &[&str]) -> Option<PathBuf> {
    let gcc = find_program("gcc")?;
    let sources = repository().join("tests/targets");
    let source = ["c", "S"].map(|suffix| sources.join(format!("{name}.{suffix}")));
    let source =
        source.into_iter().find(|path| path.exists()).expect("the target's source is in tests/targets");
    let text = std::fs::read_to_string(&source).expect("the source can be read");
    let first = text.lines().next().unwrap_or_default();
    let asked = first.split("build:").nth(1).expect("the source's first line says how to build it");
    Some(built(&source, program, |part| {
        let mut command = Command::new(&gcc);
        command.arg("-o").arg(part).arg(&source);
        command.args(asked.trim_end_matches("*/").split_whitespace()).args(flags);
        command
    }))
}

/// The program `tests/targets/NAME.go`, built; `None` without Go.
///
/// # Panics
/// If Go does not build the program.
pub fn go_target(name: &str) -> Option<PathBuf> {
    let go = find_program("go")?;
    let source = repository().join("tests/targets").join(format!("{name}.go"));
    Some(built(&source, name, |part| {
        let cache = program_directory().join("go-cache");
        let mut command = Command::new(&go);
        command.arg("build").arg("-o").arg(part).arg(&source);
        command.env("GOCACHE", cache).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        command
    }))
}

/// Builds a program under this name with a command, which is given the output path, unless it
/// exists and is newer than its source.
fn built(source: &Path, program: &str, build: impl FnOnce(&Path) -> Command) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let directory = program_directory();
    let built = directory.join(program);
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if modified(&built).is_none_or(|time| Some(time) < modified(source)) {
        let part = directory.join(format!("{program}.{}", std::process::id()));
        output(&mut build(&part));
        std::fs::rename(&part, &built).expect("the program can be put in its place");
    }
    built.canonicalize().expect("the program was built")
}
