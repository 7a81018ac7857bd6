//! A machine: which files it has, how it is booted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::cpio::Archive;
use super::{Command, End, Kernel, Output, boot};
use crate::{Scratch, find_program, output};

/// A virtual machine that can be booted.
#[derive(Clone, Debug)]
pub struct Machine {
    kernel: Kernel,
    /// By name in the machine, without the first `/`.
    files: BTreeMap<String, Source>,
    parameters: String,
    /// In MiB.
    memory: u32,
    /// Whether its clock counts instructions.
    counts: bool,
}

/// Where a file's contents come from.
#[derive(Clone, Debug)]
enum Source {
    Path(PathBuf),
    /// A program: as `Path`, but without what only a debugger reads.
    Program(PathBuf),
    Bytes(Vec<u8>),
    Link(String),
}

impl Machine {
    /// With a shell, its commands, and no more.
    pub fn new(kernel: &Kernel) -> Machine {
        let mut machine = Machine {
            kernel: kernel.clone(),
            files: BTreeMap::new(),
            parameters: String::new(),
            memory: boot::MEMORY,
            counts: false,
        };
        machine.put("/init", Source::Path(kernel.init().to_path_buf()));
        machine.put("/bin/busybox", Source::Path(kernel.busybox()));
        for command in output(std::process::Command::new(kernel.busybox()).arg("--list")).lines() {
            if command != "busybox" {
                machine.put(&format!("/bin/{command}"), Source::Link("busybox".to_string()));
            }
        }
        machine
    }

    /// Adds a program of this machine as `/bin/NAME`, and the libraries that it needs.
    ///
    /// # Panics
    /// If `ldd` finds none of them.
    pub fn program(&mut self, path: &Path) {
        let name = path.file_name().expect("a program has a name").to_string_lossy();
        self.put(&format!("/bin/{name}"), Source::Program(path.to_path_buf()));
        for library in libraries(path) {
            let name = library.to_string_lossy().into_owned();
            self.put(&name, Source::Path(library));
        }
    }

    /// Adds a module of the kernel's package as `/modules/NAME.ko`. It is not loaded.
    ///
    /// # Panics
    /// If the package has no such module.
    pub fn module(&mut self, name: &str) {
        self.put(&format!("/modules/{name}.ko"), Source::Path(self.kernel.module(name)));
    }

    /// Adds a file. `name` begins with `/`.
    pub fn file(&mut self, name: &str, contents: impl Into<Vec<u8>>) {
        self.put(name, Source::Bytes(contents.into()));
    }

    /// Adds a word to the kernel's command line, such as `nokaslr`.
    pub fn parameter(&mut self, word: &str) {
        self.parameters.push(' ');
        self.parameters.push_str(word);
    }

    /// Gives it another amount of memory, in MiB.
    pub fn memory(&mut self, mebibytes: u32) {
        self.memory = mebibytes;
    }

    /// Has its clocks count instructions of one processor, a nanosecond each: times are then the
    /// same on a busy machine. It is slower.
    pub fn count_instructions(&mut self) {
        self.counts = true;
    }

    /// Boots the machine and runs the commands one after another; again from the next one if the
    /// machine ends before all have run. What a command leaves behind (files, loaded modules) is
    /// there for those after it, unless the machine was booted anew.
    ///
    /// # Panics
    /// If the machine does not boot; with its console.
    pub fn run(&self, commands: &[Command]) -> Vec<Output> {
        let scratch = Scratch::new();
        let initramfs = scratch.path().join("initramfs");
        let mut outputs = Vec::new();
        while outputs.len() < commands.len() {
            let rest = &commands[outputs.len()..];
            self.write_initramfs(&initramfs, rest).expect("the machine's files can be read and packed");
            let (memory, counts) = (self.memory, self.counts);
            let hardware = boot::Hardware { kernel: &self.kernel, initramfs: &initramfs, memory, counts };
            let seen = boot::boot(&hardware, &self.parameters, rest, scratch.path());
            let before = seen.outputs.len();
            outputs.extend(seen.outputs);
            let all_done = before == rest.len();
            assert!(before > 0, "the machine does not boot; its console:\n{}", seen.console);
            let lost = |output: &Output| matches!(output.end, End::Panicked(_) | End::Lost);
            assert!(
                all_done || outputs.last().is_some_and(lost),
                "the machine ended early:\n{}",
                seen.console
            );
        }
        outputs
    }

    fn put(&mut self, name: &str, source: Source) {
        let name = name.strip_prefix('/').expect("a name in a machine begins with /");
        self.files.insert(name.to_string(), source);
    }

    /// Packs the files and the list of commands.
    fn write_initramfs(&self, path: &Path, commands: &[Command]) -> io::Result<()> {
        let mut archive = Archive::new(BufWriter::new(File::create(path)?));
        let names = self.files.keys().map(String::as_str).chain([COMMANDS]);
        let directories: BTreeSet<&Path> =
            names.flat_map(|name| Path::new(name).ancestors().skip(1)).collect();
        for directory in directories {
            let name = directory.to_string_lossy();
            archive.directory(if name.is_empty() { "." } else { &name })?;
        }
        for (name, source) in &self.files {
            match source {
                Source::Path(path) => archive.file(name, 0o755, &std::fs::read(path)?)?,
                Source::Program(path) => archive.file(name, 0o755, &stripped(path)?)?,
                Source::Bytes(bytes) => archive.file(name, 0o644, bytes)?,
                Source::Link(to) => archive.link(name, to)?,
            }
        }
        archive.file(COMMANDS, 0o644, &list(commands))?;
        archive.finish()
    }
}

/// The file from which the first process takes the commands.
const COMMANDS: &str = "machine/commands";

/// The commands, as the first process reads them.
fn list(commands: &[Command]) -> Vec<u8> {
    let mut text = String::new();
    for Command { words, limit } in commands {
        text.push_str(&format!("{}\0{}\0", limit.as_secs(), words.len()));
        for word in words {
            assert!(!word.contains('\0'), "a word cannot hold a zero byte");
            text.push_str(word);
            text.push('\0');
        }
    }
    text.into_bytes()
}

/// The libraries that a program needs, as `ldd` lists them; none for a static program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = std::process::Command::new("ldd").arg(program).output().expect("ldd is there with libc");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!text.contains("not found"), "{}: {text}", program.display());
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

/// A program without what only a debugger reads: most of a build for tests.
fn stripped(program: &Path) -> io::Result<Vec<u8>> {
    let Some(strip) = find_program("strip") else { return std::fs::read(program) };
    let scratch = Scratch::new();
    let path = scratch.path().join("stripped");
    output(std::process::Command::new(strip).arg("--strip-debug").arg("-o").arg(&path).arg(program));
    std::fs::read(path)
}
