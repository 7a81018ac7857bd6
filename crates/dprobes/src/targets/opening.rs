//! Opens targets.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeValLike;
use nix::sys::utsname::{UtsName, uname};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use trace::Record;
use trace::queue::Limits;
use trace::sink::{
    CtfSink, Journal, KernelLog, Ltt, NonblockingFile, Queued, Serial, Sink, StoreSink, Target, Terminal,
    TextFile,
};
use trace::store::About;

use super::spans::Spans;
use crate::control;
use crate::outfile::{self, PendingFile};

/// A session's event stream loses data once its reader has taken nothing for this long, until it
/// reads again.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3);

/// How targets are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// The targets are a session's, which several programs may share: files are appended to, and
    /// stores must be new.
    pub(crate) is_shared: bool,
    /// Nothing may be lost.
    pub(crate) lossless: bool,
}

impl How {
    /// The buffer limits of a file.
    fn limits(self, is_on_disk: bool) -> Limits {
        match self.is_shared {
            true => Limits::shared_file(control::signals, is_on_disk),
            false => Limits::file(control::signals),
        }
    }
}

/// Opens a target. Files of `run` and `attach` replace an old file only when they are settled.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open(target: &Target, how: How) -> io::Result<(Box<dyn Sink>, PendingFile)> {
    let device = Limits::device(how.lossless);
    let (sink, unsettled): (Box<dyn Sink>, Option<PendingFile>) = match target {
        Target::Terminal => (Box::new(Terminal::default()), None),
        Target::KernelLog(path) => {
            (Box::new(Queued::before(device, |progress| KernelLog::open(path.as_deref(), progress))?), None)
        }
        Target::Serial(path) => {
            (Box::new(Queued::before(device, |progress| Serial::open(path, progress))?), None)
        }
        Target::Journal(path) => {
            (Box::new(Queued::before(device, |progress| Journal::open(path.as_deref(), progress))?), None)
        }
        Target::Ctf(path) => {
            let unsettled = (!how.is_shared).then(|| outfile::begin_directory(path));
            (Box::new(Queued::before(how.limits(true), |_| CtfSink::create(path, &about()))?), unsettled)
        }
        Target::Otlp(url) => {
            let url = url.parse().map_err(io::Error::other)?;
            (Box::new(Spans::open(&url, about(), how.limits(true))?), None)
        }
        Target::Ltt(path) | Target::File(path) | Target::Store(path) => {
            let (file, unsettled) = match (how.is_shared, target) {
                (false, _) => outfile::begin(path).map(|(file, unsettled)| (file, Some(unsettled)))?,
                (true, Target::Store(_)) => {
                    (File::options().write(true).create_new(true).mode(0o600).open(path)?, None)
                }
                (true, _) => (at_end(path)?, None),
            };
            (in_file(target, file, how)?, unsettled)
        }
    };
    Ok((sink, unsettled.unwrap_or_else(PendingFile::nothing)))
}

/// A target that is a single file.
fn in_file(target: &Target, file: File, how: How) -> io::Result<Box<dyn Sink>> {
    let limits = how.limits(file.metadata().is_ok_and(|known| known.is_file()));
    Ok(match target {
        Target::Ltt(_) => Box::new(Queued::before(limits, |progress| {
            let outlet = NonblockingFile::new(file, progress);
            Ok(Ltt::new(if how.is_shared { outlet.with_patience(STREAM_TIMEOUT) } else { outlet }))
        })?),
        Target::Store(_) => Box::new(StoreSink::begin(file, &about(), limits)?),
        _ => Box::new(TextFile::new(file, limits)),
    })
}

/// A warning about a target that is about to be used: a kernel log with a rate limit, which loses
/// faster messages.
pub(super) fn caveat(target: &Target) -> Option<String> {
    let Target::KernelLog(path) = target else { return None };
    KernelLog::is_limited(path.as_deref()).then(|| {
        format!(
            "{target}: the kernel takes ten lines in five seconds; records that come faster wait, 65,536 of them at most, and those that wait \
             at the end are lost and counted (as root: sysctl -w kernel.printk_devkmsg=on)"
        )
    })
}

/// The message for a target that cannot be opened.
pub(super) fn message(target: &Target, error: &io::Error) -> String {
    match target {
        // The path alone names them.
        Target::File(path) | Target::Store(path) => match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{}: {error}; a trace store is begun in a new file", printable::path(path))
            }
            _ => format!("{}: {error}", printable::path(path)),
        },
        _ => format!("{target}: {error}"),
    }
}

/// Opens a session's file for appending. Neither opening nor writing waits for a pipe's reader,
/// which would stop all programs.
fn at_end(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            let text = "nobody reads this pipe; start its reader first";
            io::Error::new(error.kind(), text)
        }
        _ => error,
    })
}

/// Stands for a log that could not be opened; loses all records.
#[derive(Debug)]
struct FailedTarget {
    /// Why it could not be opened.
    error: String,
    lost: u64,
}

/// A target for a log that could not be opened, and the message for the user.
pub(super) fn nowhere(error: String) -> (Box<dyn Sink>, String) {
    let told = format!("{error}; records are lost, unless -o or --log-target says where they go");
    (Box::new(FailedTarget { error, lost: 0 }), told)
}

impl Sink for FailedTarget {
    fn record(&mut self, _program: u32, _record: &Record) -> io::Result<()> {
        self.lost += 1;
        Err(io::Error::other(self.error.clone()))
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Where and how the trace is made.
fn about() -> About {
    let names = uname();
    let text = |of: fn(&UtsName) -> &OsStr| {
        names.as_ref().map(|names| of(names).to_string_lossy().into_owned()).unwrap_or_default()
    };
    let processors = sysconf(SysconfVar::_NPROCESSORS_CONF).ok().flatten().unwrap_or(0);
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| time.num_nanoseconds());
    let start = now();
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: text(UtsName::nodename),
        kernel: format!("{} {}", text(UtsName::sysname), text(UtsName::release)),
        machine: text(UtsName::machine),
        processors: u32::try_from(processors).unwrap_or(0),
        start,
        monotonic: start as i64 - monotonic,
        pid: std::process::id(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
