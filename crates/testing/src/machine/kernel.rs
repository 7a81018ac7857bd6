//! The kernel of the machine: Debian's, fetched once into the directory where cargo builds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::directories::machine_directory;
use crate::{find_program, repository, target};

/// The program that emulates the machine.
const QEMU: &str = "qemu-system-x86_64";

/// A kernel that can be booted, and what goes with it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What `uname -r` says.
    version: String,
    directory: PathBuf,
    qemu: PathBuf,
    init: PathBuf,
}

impl Kernel {
    /// The kernel, fetched from Debian with `tests/machine/fetch.sh` if it is not there yet.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn available() -> Result<Kernel, Missing> {
        let qemu = find_program(QEMU).ok_or(Missing::Program(QEMU))?;
        let init = target("machine").ok_or(Missing::Program("gcc"))?;
        let directory = machine_directory();
        fetch(&directory)?;
        let version = std::fs::read_to_string(directory.join("version"))
            .map_err(|error| Missing::Kernel(error.to_string()))?;
        Ok(Kernel { version: version.trim_end().to_string(), directory, qemu, init })
    }

    /// Its release, as `uname -r` prints it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file of a module of its package.
    ///
    /// # Panics
    /// If the package has no such module.
    pub fn module(&self, name: &str) -> PathBuf {
        let file = format!("{name}.ko");
        let found = find(&self.directory.join("modules"), &file);
        found.unwrap_or_else(|| panic!("Linux {} has no module {name}", self.version))
    }

    /// The image that a boot loader loads.
    pub(super) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// A shell and its commands, in one static file.
    pub(super) fn busybox(&self) -> PathBuf {
        self.directory.join("busybox")
    }

    /// The program that is process 1: `tests/targets/machine.c`.
    pub(super) fn init(&self) -> &Path {
        &self.init
    }

    /// QEMU.
    pub(super) fn qemu(&self) -> &Path {
        &self.qemu
    }
}

/// Fetches the kernel into a directory, unless it is there.
fn fetch(directory: &Path) -> Result<(), Missing> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if !directory.join("version").exists() && find_program(program).is_none() {
            return Err(Missing::Program(program));
        }
    }
    let script = repository().join("tests/machine/fetch.sh");
    let done = Command::new("sh").arg(script).arg(directory).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(Missing::Kernel(String::from_utf8_lossy(&done.stderr).trim_end().to_string())),
        Err(error) => Err(Missing::Kernel(format!("sh: {error}"))),
    }
}

/// Finds a file by name below a directory.
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().is_some_and(|found| found == name) {
                return Some(path);
            }
        }
    }
    None
}

/// Why there is no machine here. Its text ends the sentence "the test needs".
#[derive(Clone, Debug)]
pub enum Missing {
    /// A program is not installed.
    Program(&'static str),
    /// The kernel could not be fetched: the message.
    Kernel(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Program(name) => formatter.write_str(name),
            Missing::Kernel(message) => write!(formatter, "Debian's kernel: {message}"),
        }
    }
}
