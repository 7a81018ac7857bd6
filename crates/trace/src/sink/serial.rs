//! A serial line as a target, as the original's COM1 and COM2: another machine receives the
//! records, which survive if this one crashes.
//!
//! A record is its raw header ([`raw`]), the logged bytes, CR and LF. Nothing says how many bytes
//! were logged; the reader must know the program. If text is asked for (`--unformatted-output`,
//! templates), the output is the lines of the kernel log, each ended by CR and LF. That is what the
//! paper, section 5, describes.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::view::ProgramText;
use super::{Sink, View};
use crate::queue::Progress;
use crate::{Items, Record, raw};

/// The end of a record or line.
const END: &[u8] = b"\r\n";

/// A serial line. While it is open, it is in raw mode; afterwards its settings are restored. Its
/// speed is not changed.
#[derive(Debug)]
pub struct Serial {
    file: File,
    /// The settings to restore.
    before: libc::termios,
    shows: Vec<(u32, Shows)>,
    bytes: Vec<u8>,
    progress: Progress,
    lost: u64,
}

/// How the records of a program are written.
#[derive(Debug)]
enum Shows {
    Raw(Items),
    Text(ProgramText),
}

impl Serial {
    /// Opens a line.
    ///
    /// # Errors
    /// It cannot be opened, or is no terminal.
    pub fn open(path: &Path, progress: Progress) -> io::Result<Serial> {
        // Does not wait for a carrier, and does not make the line the controlling terminal.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        if !file.is_terminal() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a terminal"));
        }
        let before = attributes(&file)?;
        let mut raw = before;
        // SAFETY: `raw` is a valid structure.
        unsafe { libc::cfmakeraw(&raw mut raw) };
        raw.c_cflag |= libc::CLOCAL;
        set_attributes(&file, &raw)?;
        Ok(Serial { file, before, shows: Vec::new(), bytes: Vec::new(), progress, lost: 0 })
    }

    fn write(&mut self) -> io::Result<()> {
        let mut left = self.bytes.as_slice();
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = &left[written..];
                    self.progress.step();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.progress.wait_for(self.file.as_fd(), Duration::MAX)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The number of bytes that the kernel has not sent yet.
    fn left(&self) -> i32 {
        let mut left = 0;
        // SAFETY: the call writes one number.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) } {
            0 => left,
            _ => 0,
        }
    }
}

// libc is used because nix drops flags that it has no name for, and they could not be restored.
fn attributes(file: &File) -> io::Result<libc::termios> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the call fills the structure if it succeeds.
    unsafe {
        match libc::tcgetattr(file.as_raw_fd(), attributes.as_mut_ptr()) {
            0 => Ok(attributes.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set_attributes(file: &File, attributes: &libc::termios) -> io::Result<()> {
    // SAFETY: `attributes` is a valid structure.
    match unsafe { libc::tcsetattr(file.as_raw_fd(), libc::TCSANOW, attributes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Sink for Serial {
    fn show(&mut self, program: u32, view: &View) {
        self.shows.retain(|(other, _)| *other != program);
        let shows =
            if view.is_text() { Shows::Text(ProgramText::new(view.clone())) } else { Shows::Raw(view.items) };
        self.shows.push((program, shows));
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.shows.retain(|(other, _)| *other != program);
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.bytes.clear();
        match self.shows.iter_mut().find(|(other, _)| *other == program) {
            Some((_, Shows::Text(live))) => {
                let mut text = Vec::new();
                live.append(record, &mut text);
                for line in text.split_inclusive(|&byte| byte == b'\n') {
                    self.bytes.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
                    self.bytes.extend_from_slice(END);
                }
            }
            other => {
                let items = match other {
                    Some((_, Shows::Raw(items))) => *items,
                    _ => Items::DEFAULT,
                };
                raw::write(record, items, &mut self.bytes);
                self.bytes.extend_from_slice(END);
            }
        }
        self.write().inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        for (_, shows) in &mut self.shows {
            if let Shows::Text(live) = shows {
                live.refresh(tell);
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        // Restored only after the last bytes are sent, since it would affect them.
        let mut left = self.left();
        while left > 0 && !self.progress.is_given_up() {
            std::thread::sleep(Duration::from_millis(10));
            let before = std::mem::replace(&mut left, self.left());
            if before != left {
                self.progress.step();
            }
        }
        // Ignored: a line that is gone has no settings, and no record is lost.
        let _ = set_attributes(&self.file, &self.before);
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
