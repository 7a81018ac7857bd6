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
    dprobes_with(release, &[])
}

/// The named command, or else one built from these sources.
///
/// # Errors
/// If there is no such file; or as of [`dprobes`].
pub fn given(command: Option<&Path>, release: bool) -> io::Result<PathBuf> {
    command.map_or_else(|| dprobes(release), Path::canonicalize)
}

/// As [`dprobes`], with additional features.
///
/// # Errors
/// If it does not build.
pub fn dprobes_with(release: bool, features: &[&str]) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "dprobes"]).current_dir(repository());
    if release {
        command.arg("--release");
    }
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    if !command.status()?.success() {
        return Err(io::Error::other("dprobes does not build"));
    }
    Ok(target(release)?.join("dprobes"))
}

/// The build directory, of release or debug programs.
///
/// # Errors
/// If this process's program is unknown.
pub fn target(release: bool) -> io::Result<PathBuf> {
    let itself = std::env::current_exe()?;
    let target = itself.ancestors().nth(2).unwrap_or(repository());
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
