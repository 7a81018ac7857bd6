//! Building what is measured.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use testing::repository;

/// Builds the command `dprobes`, as a release or not, and gives its path.
///
/// # Errors
/// It does not build.
pub fn dprobes(release: bool) -> io::Result<PathBuf> {
    dprobes_with(release, &[])
}

/// The command that was named, or else the one that is built from these sources.
///
/// # Errors
/// There is no such file; or as of [`dprobes`].
pub fn given(command: Option<&Path>, release: bool) -> io::Result<PathBuf> {
    command.map_or_else(|| dprobes(release), Path::canonicalize)
}

/// The same, with features that it does not have by itself.
///
/// # Errors
/// It does not build.
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

/// The directory in which programs are built, as a release or not.
///
/// # Errors
/// This process has no program.
pub fn target(release: bool) -> io::Result<PathBuf> {
    let itself = std::env::current_exe()?;
    let target = itself.ancestors().nth(2).unwrap_or(repository());
    Ok(target.join(if release { "release" } else { "debug" }))
}

/// Whether this version of the command knows an engine.
///
/// # Errors
/// It cannot be started.
pub fn knows_engine(dprobes: &Path, engine: &str) -> io::Result<bool> {
    let said = Command::new(dprobes).args(["run", "--help"]).output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let after = text.split_once("--engine").map_or("", |(_, after)| after);
    // The engines are a list of `- NAME: what it is`, or `[possible values: ...]`, after the option.
    let mut words = after.split(|c: char| !c.is_ascii_alphanumeric()).take(200);
    Ok(words.any(|word| word == engine))
}

/// Builds a C program with gcc.
///
/// # Errors
/// There is no gcc, or the program does not build.
pub fn c_program(sources: &[PathBuf], flags: &[&str], libraries: &[&str], program: &Path) -> io::Result<()> {
    let mut command = Command::new("gcc");
    command.args(["-O2", "-g", "-pthread", "-o"]).arg(program).args(flags).args(sources).args(libraries);
    let status = command.status().map_err(|error| io::Error::other(format!("gcc: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("gcc does not build {}", program.display()))),
    }
}
