//! The kernel log as a target or, for users that may not write it, the system log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::datagram::DaemonSocket;
use super::rate_limit::RateLimit;
use super::view::ProgramTexts;
use super::{Sink, View};
use crate::Record;
use crate::queue::Progress;

/// The kernel log.
const DEVICE: &str = "/dev/kmsg";
/// The system log: the socket of a syslog daemon, or journald's in the same protocol.
const SOCKETS: [&str; 2] = ["/dev/log", "/run/systemd/journal/dev-log"];
/// The setting that says whether the kernel limits messages.
const LIMIT: &str = "/proc/sys/kernel/printk_devkmsg";

/// The greatest length of a message, in bytes. The kernel refuses about 1000 or more, including the
/// prefix and the newline.
const MAX_MESSAGE_BYTES: usize = 960;

/// Writes records to a log. Each line is a message of priority "informational".
#[derive(Debug)]
pub struct KernelLog {
    log: Log,
    texts: ProgramTexts,
    text: Vec<u8>,
    message: Vec<u8>,
    progress: Progress,
    lost: u64,
}

#[derive(Debug)]
enum Log {
    Device(File, Option<RateLimit>),
    Daemon(DaemonSocket),
}

impl KernelLog {
    /// Opens the log at `path` (a device or a socket). Without a path, opens the kernel log or,
    /// where the user may not write it, the system log.
    ///
    /// # Errors
    /// No log can be written, or the kernel discards what is written to it.
    pub fn open(path: Option<&Path>, progress: Progress) -> io::Result<KernelLog> {
        let log = match path {
            Some(path) if path.metadata()?.file_type().is_socket() => daemon(path.to_owned(), &progress)?,
            Some(path) => device(path)?,
            None => match device(Path::new(DEVICE)) {
                Ok(log) => log,
                Err(error) => {
                    let mut daemons = SOCKETS.iter().map(|path| daemon(PathBuf::from(path), &progress));
                    daemons.find_map(Result::ok).ok_or_else(|| {
                        let text =
                            format!("{DEVICE}: {error}; no log daemon listens at {}", SOCKETS.join(" or "));
                        io::Error::new(error.kind(), text)
                    })?
                }
            },
        };
        Ok(KernelLog {
            log,
            texts: ProgramTexts::default(),
            text: Vec::new(),
            message: Vec::new(),
            progress,
            lost: 0,
        })
    }

    /// Whether `open` would open the kernel log and the kernel limits what it takes.
    pub fn is_limited(path: Option<&Path>) -> bool {
        matches!(device(path.unwrap_or(Path::new(DEVICE))), Ok(Log::Device(_, Some(_))))
    }

    /// Sends a line as one message.
    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.message.clear();
        match &mut self.log {
            Log::Device(file, pace) => {
                while let Some(end) = pace.as_ref().and_then(|pace| pace.next(Instant::now())) {
                    self.progress.wait_until(end).map_err(|error| {
                        let text = format!(
                            "the kernel accepts ten lines in five seconds, unless {LIMIT} is `on` (as root: sysctl -w \
                             kernel.printk_devkmsg=on)"
                        );
                        io::Error::new(error.kind(), text)
                    })?;
                }
                // <6>: priority informational. The kernel takes one message per write.
                self.message.extend_from_slice(b"<6>");
                self.message.extend_from_slice(line);
                self.message.push(b'\n');
                let written = file.write_all(&self.message);
                pace.iter_mut().for_each(|pace| pace.wrote(Instant::now()));
                written
            }
            Log::Daemon(datagrams) => {
                // 14: facility user, priority informational.
                write!(self.message, "<14>dprobes[{}]: ", std::process::id())?;
                self.message.extend_from_slice(line);
                datagrams.send(&self.message)
            }
        }
    }
}

fn device(path: &Path) -> io::Result<Log> {
    let file = OpenOptions::new().write(true).open(path)?;
    let metadata = file.metadata()?;
    // The device number of the kernel log, whatever its path.
    let is_kernels = metadata.file_type().is_char_device() && metadata.rdev() == libc::makedev(1, 11);
    if !is_kernels {
        return Ok(Log::Device(file, None));
    }
    let pace = pace(std::fs::read_to_string(LIMIT))?;
    Ok(Log::Device(file, pace))
}

/// The rate limit of the kernel according to its setting; the kernel's default if the setting
/// cannot be read.
///
/// # Errors
/// The kernel discards all messages.
fn pace(setting: io::Result<String>) -> io::Result<Option<RateLimit>> {
    match setting.as_deref().map(str::trim) {
        Ok("on") => Ok(None),
        Ok("off") => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the kernel discards what is written to it: {LIMIT} is `off` (as root: sysctl -w \
                 kernel.printk_devkmsg=on)"
            ),
        )),
        Ok(_) | Err(_) => Ok(Some(RateLimit::default())),
    }
}

fn daemon(path: PathBuf, progress: &Progress) -> io::Result<Log> {
    DaemonSocket::connect(path, progress.clone()).map(Log::Daemon)
}

impl Sink for KernelLog {
    fn show(&mut self, program: u32, view: &View) {
        self.texts.show(program, view);
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.texts.forget(program);
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        self.texts.of(program).append(record, &mut text);
        let sent = messages(&text).try_for_each(|line| self.send(line));
        self.text = text;
        sent.inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.refresh(tell);
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// The non-empty lines of a text. Lines longer than a message are split between characters.
fn messages(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').flat_map(|mut line| {
        std::iter::from_fn(move || {
            // In UTF-8, all bytes of a character but the first begin with the bits 10.
            let goes_on = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
            let most = MAX_MESSAGE_BYTES.min(line.len());
            let end = (most.saturating_sub(3)..=most).rev().find(|&at| !goes_on(at)).unwrap_or(most);
            let (message, rest) = line.split_at(end);
            line = rest;
            Some(message).filter(|message| !message.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_default_holds_where_its_setting_is_not_known() {
        let paced = |text: &str| pace(Ok(text.to_owned())).map(|pace| pace.is_some());
        assert!(paced("ratelimit\n").is_ok_and(|paced| paced));
        assert!(paced("on\n").is_ok_and(|paced| !paced));
        assert!(paced("").is_ok_and(|paced| paced));
        assert!(pace(Err(io::ErrorKind::PermissionDenied.into())).is_ok_and(|pace| pace.is_some()));
        assert_eq!(paced("off\n").map_err(|error| error.kind()), Err(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_long_line_is_several_messages() {
        let text =
            format!("one\n\n{}\n{}x\nend", "a".repeat(2 * MAX_MESSAGE_BYTES), "é".repeat(MAX_MESSAGE_BYTES));
        let parts: Vec<&[u8]> = messages(text.as_bytes()).collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(
            lengths,
            [3, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, 1, 3]
        );
        assert!(parts.iter().all(|part| std::str::from_utf8(part).is_ok()));
        assert_eq!(parts.concat(), text.replace('\n', "").as_bytes());
        let odd = format!("a{}", "é".repeat(MAX_MESSAGE_BYTES));
        assert!(
            messages(odd.as_bytes())
                .all(|part| part.len() <= MAX_MESSAGE_BYTES && std::str::from_utf8(part).is_ok())
        );
        // Bytes that are not UTF-8 are split too, and none is lost.
        let bytes = [0x80u8; 2 * MAX_MESSAGE_BYTES];
        assert_eq!(messages(&bytes).map(<[u8]>::len).sum::<usize>(), 2 * MAX_MESSAGE_BYTES);
        assert!(messages(&[0x80]).eq([&[0x80u8][..]]));
    }
}
