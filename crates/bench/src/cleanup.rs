//! What must not stay behind: processes that were started, probes in the kernel, directories.
//!
//! Everything of that kind is held by a [`Guard`], which undoes it when dropped. A signal that ends the bench (SIGINT,
//! SIGTERM, SIGHUP) is waited for by a thread, which undoes all that is held, the newest first, and ends the process.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

/// What undoes something.
#[derive(Debug)]
enum Undo {
    /// Kill the process, which nobody has waited for yet.
    Kill(u32),
    /// Write a line to a file.
    Write(PathBuf, String),
    /// Remove a directory of a file system whose directories are objects of the kernel's.
    RemoveObject(PathBuf),
    /// Remove a directory and what is in it.
    RemoveAll(PathBuf),
}

static HELD: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

fn held() -> std::sync::MutexGuard<'static, Vec<(u64, Undo)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Undo {
    fn run(&self) {
        match self {
            Undo::Kill(pid) => {
                // SAFETY: kill takes no pointers. The process has not been reaped, so the number is still its own.
                unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
            }
            Undo::Write(file, line) => {
                let _ = std::fs::OpenOptions::new()
                    .append(true)
                    .open(file)
                    .and_then(|mut file| io::Write::write_all(&mut file, line.as_bytes()));
            }
            Undo::RemoveObject(directory) => {
                let _ = std::fs::remove_dir(directory);
            }
            Undo::RemoveAll(directory) => {
                let _ = std::fs::remove_dir_all(directory);
            }
        }
    }
}

/// Something that is undone when this is dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    fn hold(undo: Undo) -> Guard {
        let mut held = held();
        let id = held.last().map_or(0, |(id, _)| id + 1);
        held.push((id, undo));
        Guard(id)
    }

    /// Writes a line to a file in the end.
    pub fn write(file: PathBuf, line: String) -> Guard {
        Guard::hold(Undo::Write(file, line))
    }

    /// Removes a directory of tracefs in the end.
    pub fn remove_object(directory: PathBuf) -> Guard {
        Guard::hold(Undo::RemoveObject(directory))
    }

    /// Removes a directory and what is in it in the end.
    pub fn remove_all(directory: PathBuf) -> Guard {
        Guard::hold(Undo::RemoveAll(directory))
    }

    fn take(&self) -> Option<Undo> {
        let mut held = held();
        let place = held.iter().position(|(id, _)| *id == self.0)?;
        Some(held.remove(place).1)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(undo) = self.take() {
            undo.run();
        }
    }
}

/// A process that was started. It is killed when this is dropped, if it has not ended by then.
#[derive(Debug)]
pub struct Started {
    child: Child,
    guard: Guard,
}

impl Started {
    /// Sees to the end of a process.
    pub fn new(child: Child) -> Started {
        let guard = Guard::hold(Undo::Kill(child.id()));
        Started { child, guard }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process as the library has it, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers. The process is reaped by `ended` and `drop` only, which end its life here.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            // It is reaped: its number may be another's.
            drop(self.guard.take());
        }
        Ok(status)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            drop(self.guard.take());
        }
    }
}

/// Lets the signals that end a process undo what is held first. To be called before the first thread is started.
pub fn on_signals() {
    // SAFETY: an all-zero sigset_t is a valid argument of sigemptyset, which initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: set is a live sigset_t in all of these calls; the last pointer of pthread_sigmask may be null.
    unsafe {
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
            // A shell's background jobs ignore SIGINT, and so would the tracers that are started here.
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: set is an initialised sigset_t and signal a live i32, which is what sigwait reads and writes.
        while unsafe { libc::sigwait(&set, &mut signal) } != 0 {}
        for (_, undo) in held().iter().rev() {
            undo.run();
        }
        std::process::exit(128 + signal);
    });
}
