//! Builds the programs to measure.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use testing::repository;

/// Builds the command `dprobes`, as a release or not, and returns its path.
///
/// # Errors
/// If it does not build.
pub fn dprobes(release: bool) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "dprobes"]).current_dir(repository());
    if release {
        command.arg("--release");
    }
    if !command.status()?.success() {
        return Err(io::Error::other("dprobes does not build"));
    }
    Ok(target(release)?.join("dprobes"))
}

/// The named command, or else one built from these sources.
///
/// # Errors
/// If there is no such file; or as of [`dprobes`].
pub fn given(command: Option<&Path>, release: bool) -> io::Result<PathBuf> {
    command.map_or_else(|| dprobes(release), Path::canonicalize)
}

/// The command as it was built for the tests, if that is newer than all sources; else as of
/// [`dprobes`]. A build for this alone has other features of some libraries, and takes a minute.
///
/// # Errors
/// As of [`dprobes`].
pub fn tested_dprobes() -> io::Result<PathBuf> {
    let built = target(false)?.join("dprobes");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified());
    let is_current = changed(&built).is_ok_and(|time| {
        let sources = walk(&repository().join("crates"));
        sources.iter().all(|source| changed(source).is_ok_and(|changed| changed < time))
    });
    if is_current { Ok(built) } else { dprobes(false) }
}

/// The sources of all crates: Rust files in directories named `src`, at any depth.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries
        .map(|entry| entry.path())
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] });
    paths.filter(|path| path.components().any(|part| part.as_os_str() == "src")).collect()
}

/// The build directory, of release or debug programs.
///
/// # Errors
/// If this process's program is unknown.
pub fn target(release: bool) -> io::Result<PathBuf> {
    let itself = std::env::current_exe()?;
    // Tests are in the directory `deps` beside the commands.
    let commands = itself.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    let target = commands.and_then(Path::parent).unwrap_or(repository());
    Ok(target.join(if release { "release" } else { "debug" }))
}

/// Whether this version of the command has an engine.
///
/// # Errors
/// If it cannot be started.
pub fn knows_engine(dprobes: &Path, engine: &str) -> io::Result<bool> {
    let said = Command::new(dprobes).args(["run", "--help"]).output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let after = text.split_once("--engine").map_or("", |(_, after)| after);
    // After the option, the engines are listed as `- NAME: what it is`, or as
    // `[possible values: ...]`.
    let mut words = after.split(|c: char| !c.is_ascii_alphanumeric()).take(200);
    Ok(words.any(|word| word == engine))
}

/// Builds a C program with gcc.
///
/// # Errors
/// If there is no gcc, or the program does not build.
pub fn c_program(sources: &[PathBuf], flags: &[&str], libraries: &[&str], program: &Path) -> io::Result<()> {
    let mut command = Command::new("gcc");
    command.args(["-O2", "-g", "-pthread", "-o"]).arg(program).args(flags).args(sources).args(libraries);
    let status = command.status().map_err(|error| io::Error::other(format!("gcc: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("gcc does not build {}", program.display()))),
    }
}
