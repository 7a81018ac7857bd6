//! The measured process: `subject/many.c` with the generated library.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use object::{Object, ObjectSection};

use super::library;
use crate::cleanup::Started;
use crate::{build, other};

/// The library, and the program that calls its functions.
#[derive(Clone, Debug)]
pub struct Library {
    program: PathBuf,
    library: PathBuf,
    functions: u64,
    groups: u64,
}

impl Library {
    /// Builds both in a directory. The functions are in this many groups of equal size, with names
    /// that begin with `f0_`, `f1_`, and so on.
    ///
    /// # Errors
    /// If there is no gcc, or they do not build.
    pub fn build(directory: &Path, functions: u64, groups: u64) -> io::Result<Library> {
        let source = directory.join("many.s");
        std::fs::write(&source, library::source(functions, groups))?;
        let library = directory.join("libmany.so");
        let built = Command::new("gcc").args(["-shared", "-o"]).arg(&library).arg(&source).status();
        if !built.map_err(|error| other(format!("gcc: {error}")))?.success() {
            return Err(other("gcc does not build the library"));
        }
        let program = directory.join("many");
        let here = build::repository().join("crates/bench/subject/many.c");
        let flags = ["-fPIC", "-Wl,-rpath,$ORIGIN"];
        build::c_program(&[here, library.clone()], &flags, &[], &program)?;
        Ok(Library { program, library, functions, groups })
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.library
    }

    /// The number of functions in this many of its groups.
    pub fn functions(&self, groups: u64) -> u64 {
        (0..groups.min(self.groups)).map(|group| (self.functions - group).div_ceil(self.groups)).sum()
    }
}

/// The process.
#[derive(Debug)]
pub struct Subject {
    started: Started,
    stdout: BufReader<ChildStdout>,
    library: PathBuf,
}

impl Subject {
    /// Starts the process with this many calling threads.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(library: &Library, threads: u32) -> io::Result<Subject> {
        let mut command = Command::new(&library.program);
        command.arg(threads.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| other("no pipe from the subject"))?;
        let started = Started::new(child);
        let mut subject =
            Subject { started, stdout: BufReader::new(stdout), library: library.library.clone() };
        match subject.line()?.trim() {
            "ready" => Ok(subject),
            line => Err(other(format!("the subject says {line:?}"))),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.started.pid()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(other("the subject has ended")),
            _ => Ok(line),
        }
    }

    /// The number of bytes of the library's code that differ from the file's.
    ///
    /// # Errors
    /// If the process has ended, or the file has changed.
    pub fn changed(&self) -> io::Result<usize> {
        let bytes = std::fs::read(&self.library)?;
        let file = object::File::parse(&*bytes).map_err(|error| other(error.to_string()))?;
        let text = file.section_by_name(".text").ok_or_else(|| other("no code in the library"))?;
        let code = text.data().map_err(|error| other(error.to_string()))?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid()))?;
        let name = self.library.to_string_lossy();
        let first = maps.lines().find(|line| line.ends_with(&*name));
        let base = first.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        let base = base.ok_or_else(|| other("the library is not mapped"))?;
        let mut found = vec![0; code.len()];
        File::open(format!("/proc/{}/mem", self.pid()))?.read_exact_at(&mut found, base + text.address())?;
        Ok(found.iter().zip(code).filter(|(found, code)| found != code).count())
    }

    /// The longest time for which one of its threads did not run since the last call, in
    /// milliseconds.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&mut self) -> io::Result<f64> {
        let input = self.started.child().stdin.as_mut().ok_or_else(|| other("no pipe to the subject"))?;
        input.write_all(b"\n")?;
        let line = self.line()?;
        milliseconds(line.trim().strip_prefix("pause "), &line)
    }

    /// Ends the process, and returns the longest time for which one of its threads did not run
    /// since the last call of [`Subject::pause`], in milliseconds.
    ///
    /// # Errors
    /// If it fails, or a function returned a wrong result.
    pub fn end(mut self) -> io::Result<f64> {
        drop(self.started.child().stdin.take());
        let line = self.line()?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["calls", _, "wrong", "0", "pause", pause] => milliseconds(Some(pause), &line),
            _ => Err(other(format!("the subject says {line:?}"))),
        }
    }
}

/// Converts the microseconds in a line to milliseconds.
fn milliseconds(text: Option<&str>, line: &str) -> io::Result<f64> {
    let microseconds = text.and_then(|text| text.parse::<f64>().ok());
    microseconds
        .map(|microseconds| microseconds / 1e3)
        .ok_or_else(|| other(format!("the subject says {line:?}")))
}
