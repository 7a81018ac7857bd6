//! Cleanup of processes, kernel probes and directories.
//!
//! Each of them is held by a [`Guard`], which undoes it when dropped. A signal that ends the bench
//! (SIGINT, SIGTERM, SIGHUP) is passed to a thread, which undoes everything held, newest first, and
//! ends the process.

use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::family::send;

/// An action that undoes something.
#[derive(Debug)]
enum Undo {
    /// Send a signal to the process, which has not been waited for yet.
    Signal(u32, Signal),
    /// Write a line to a file.
    Write(PathBuf, String),
    /// Remove a directory of a file system whose directories are kernel objects.
    RemoveObject(PathBuf),
    /// Remove a directory and its contents.
    RemoveAll(PathBuf),
}

static HELD: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

fn held() -> std::sync::MutexGuard<'static, Vec<(u64, Undo)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Undo {
    fn run(&self) {
        match self {
            Undo::Signal(pid, signal) => {
                // The process has not been reaped, so the number is still its own.
                send(*pid, *signal);
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

/// Undoes something when dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    fn hold(undo: Undo) -> Guard {
        let mut held = held();
        let id = held.last().map_or(0, |(id, _)| id + 1);
        held.push((id, undo));
        Guard(id)
    }

    /// Writes a line to a file when dropped.
    pub fn write(file: PathBuf, line: String) -> Guard {
        Guard::hold(Undo::Write(file, line))
    }

    /// Removes a directory of tracefs when dropped.
    pub fn remove_object(directory: PathBuf) -> Guard {
        Guard::hold(Undo::RemoveObject(directory))
    }

    /// Removes a directory and its contents when dropped.
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

/// A started process. Dropping it kills the process if it has not ended.
#[derive(Debug)]
pub struct Started {
    child: Child,
    guard: Guard,
}

impl Started {
    /// Takes over the end of a process.
    pub fn new(child: Child) -> Started {
        let guard = Guard::hold(Undo::Signal(child.id(), Signal::SIGKILL));
        Started { child, guard }
    }

    /// As [`Started::new`], for a process that must end others before it ends: if a signal ends the
    /// bench, this process is asked to end.
    pub fn gently(child: Child) -> Started {
        let guard = Guard::hold(Undo::Signal(child.id(), Signal::SIGTERM));
        Started { child, guard }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // Only `ended` and `drop` reap the process; until then the number is its own.
        send(self.child.id(), signal);
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            // It is reaped: its number may belong to another process.
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

/// The pipe by which the signal handler notifies the thread.
static TELL: AtomicI32 = AtomicI32::new(-1);

extern "C" fn told(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: write is async-signal-safe; byte is one live byte.
    unsafe { libc::write(TELL.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// Makes the signals that end a process undo everything held first.
///
/// They are handled, not blocked or ignored, since started tracers would inherit that, and they
/// must end by such signals. (A shell's background jobs ignore SIGINT; this undoes that.)
///
/// # Errors
/// If no pipe can be made.
pub fn on_signals() -> io::Result<()> {
    let (mut read, write) = io::pipe()?;
    TELL.store(write.into_raw_fd(), Ordering::Relaxed);
    std::thread::spawn(move || {
        let mut signal = [0];
        while read.read_exact(&mut signal).is_err() {}
        for (_, undo) in held().iter().rev() {
            undo.run();
        }
        std::process::exit(128 + i32::from(signal[0]));
    });
    let action = SigAction::new(SigHandler::Handler(told), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler makes one async-signal-safe call.
        unsafe { sigaction(signal, &action)? };
    }
    Ok(())
}
