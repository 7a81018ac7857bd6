//! The targets of a command line, and what is given to them.

mod patient;
pub(crate) mod several;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use trace::sink::{CtfSink, Journal, KernelLog, Ltt, Queue, Serial, Sink, StoreSink, Target, View};
use trace::store::Store;
use trace::template::Templates;
use trace::{Items, Record};

use crate::Failure;
use crate::arguments::{Format, Shown};
use crate::messages::count;
use crate::outfile::{self, Unsettled};
use crate::recording::{Recording, about};
use patient::Patient;
use text::{Terminal, TextFile};

/// The targets that a command line names, each once; `usual`, if there is one, without any.
pub(crate) fn named(
    targets: &[Target],
    output: Option<&Path>,
    format: Option<Format>,
    usual: Option<Target>,
) -> Vec<Target> {
    let file = output.map(|path| match Format::of(output, format) {
        Format::Text => Target::File(path.to_owned()),
        Format::Dpt => Target::Store(path.to_owned()),
    });
    let mut all = Vec::new();
    for target in targets.iter().cloned().chain(file) {
        if !all.contains(&target) {
            all.push(target);
        }
    }
    if all.is_empty() {
        all.extend(usual);
    }
    all
}

/// Checks that what is asked to be shown has a meaning for one of the targets.
///
/// # Errors
/// It has not.
pub(crate) fn suit(targets: &[Target], shown: &Shown) -> Result<(), Failure> {
    let has_text = |target: &Target| !matches!(target, Target::Store(_) | Target::Ctf(_) | Target::Ltt(_));
    if !shown.unformatted_output || targets.iter().any(has_text) {
        return Ok(());
    }
    Err(Failure::new(match targets {
        [Target::Store(_)] => {
            "--unformatted-output is for text, and a trace store is none; give it to `dprobes show`"
                .to_owned()
        }
        _ => format!("--unformatted-output is for text, and {} is none", names(targets)),
    }))
}

/// Targets, as they are told.
fn names(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

/// The header items of records that go to these targets. Those that hold all have all items unless some are asked for, since they are
/// chosen when they are read; and always the time.
pub(crate) fn items(targets: &[Target], shown: &Shown) -> Items {
    match (targets.iter().any(Target::holds_all), shown.log.is_empty()) {
        (false, _) => shown.items(),
        (true, true) => Items::ALL,
        (true, false) => shown.items().with(Items::TSC),
    }
}

/// How the records of a program are shown.
pub(crate) fn view(shown: &Shown, templates: Option<Templates>) -> View {
    View { items: shown.items(), form: shown.form(), templates }
}

/// What is to be known of a target that is about to be used: that of the kernel's log, which loses what comes faster than it lets pass.
pub(crate) fn caveat(target: &Target) -> Option<String> {
    let Target::KernelLog(path) = target else { return None };
    KernelLog::is_limited(path.as_deref()).then(|| {
        format!(
            "{target}: the kernel takes ten lines in five seconds; records that come faster wait, 65,536 of them at most, and those that wait \
             at the end are lost and counted (as root: sysctl -w kernel.printk_devkmsg=on)"
        )
    })
}

/// How targets are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// They may be those of other programs too: files go on at their end, and stores are new.
    pub(crate) is_shared: bool,
    /// Nothing may be lost.
    pub(crate) lossless: bool,
}

/// A target that is open.
pub(crate) struct Open {
    pub(crate) recording: Recording,
    name: String,
    /// What is to be done once there is something to keep.
    unsettled: Unsettled,
    /// Whether a failure was told.
    failed: bool,
    /// Records that it was given.
    given: u64,
}

/// What a target has made of the records that it was given.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) name: String,
    /// Records that are in their place, as a whole.
    pub(crate) written: u64,
    /// Records that are not.
    pub(crate) lost: u64,
}

impl Open {
    /// Opens a target. Where probes go in that stay, a missing log is no reason to refuse them: they may log nothing. What there is to
    /// tell of it comes with the target.
    ///
    /// # Errors
    /// As [`Open::new`].
    pub(crate) fn or_nowhere(target: &Target, how: How) -> Result<(Open, Option<String>), String> {
        match (Open::new(target, how), target) {
            (Err(error), Target::KernelLog(None)) => {
                let told = format!("{error}; records are lost, unless -o or --log-target says where they go");
                let nowhere = Nowhere { error, lost: 0 };
                let recording = Recording::new(Box::new(nowhere));
                let (name, unsettled) = (target.to_string(), Unsettled::nothing());
                Ok((Open { recording, name, unsettled, failed: true, given: 0 }, Some(told)))
            }
            (opened, _) => opened.map(|open| (open, caveat(target))),
        }
    }

    /// Opens a target.
    ///
    /// # Errors
    /// It cannot be opened: the message names it.
    pub(crate) fn new(target: &Target, how: How) -> Result<Open, String> {
        match sink(target, how) {
            Ok((sink, unsettled)) => Ok(Open {
                unsettled,
                name: match target {
                    Target::Terminal => "standard error".to_owned(),
                    _ => target.to_string(),
                },
                recording: Recording::new(sink),
                failed: false,
                given: 0,
            }),
            Err(error) => Err(match target {
                // The path is the whole of their name.
                Target::File(path) | Target::Store(path) => match error.kind() {
                    io::ErrorKind::AlreadyExists => {
                        format!("{}: {error}; a trace store is begun in a new file", printable::path(path))
                    }
                    _ => format!("{}: {error}", printable::path(path)),
                },
                _ => format!("{target}: {error}"),
            }),
        }
    }

    /// What it has made of its records so far: of those that wait in it, that they are written.
    pub(crate) fn taken(&self) -> Taken {
        let lost = self.recording.lost();
        Taken { name: self.name.clone(), written: self.given.saturating_sub(lost), lost }
    }

    /// What to tell of a failure: only the first is told.
    pub(crate) fn failure(&mut self, error: &io::Error) -> Option<String> {
        if std::mem::replace(&mut self.failed, true) {
            return None;
        }
        let name = &self.name;
        Some(match error.kind() {
            io::ErrorKind::Interrupted => {
                format!("warning: {name}: nobody took the records; those that were not written yet are lost")
            }
            _ => format!("warning: {name}: {error}; records are lost"),
        })
    }

    /// Lets a file take the place of what stood there under its name: what there is to tell. It goes on growing.
    pub(crate) fn settle(&mut self) -> Option<String> {
        let error = self.unsettled.settle().err()?;
        Some(format!("warning: {}: {error}", self.name))
    }

    /// Brings it to its end: what there is to tell.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut told = Vec::from_iter(self.settle());
        if let Err(error) = self.recording.finish() {
            told.extend(self.failure(&error));
        }
        let lost = self.recording.lost();
        if lost > 0 {
            told.push(format!("warning: {}: {} could not be written", self.name, count(lost, "record")));
        }
        told
    }
}

/// Opens a target. What `run` and `attach` write takes the place of an old file only when it is settled.
fn sink(target: &Target, how: How) -> io::Result<(Box<dyn Sink>, Unsettled)> {
    let nothing = Unsettled::nothing();
    Ok(match target {
        Target::Terminal => (Box::new(Terminal::default()), nothing),
        Target::KernelLog(path) => {
            let open = |closing| KernelLog::open(path.as_deref(), closing);
            (Box::new(Queue::before(how.lossless, open)?), nothing)
        }
        Target::Serial(path) => {
            (Box::new(Queue::before(how.lossless, |closing| Serial::open(path, closing))?), nothing)
        }
        Target::Journal(path) => {
            let open = |closing| Journal::open(path.as_deref(), closing);
            (Box::new(Queue::before(how.lossless, open)?), nothing)
        }
        Target::Ltt(path) if how.is_shared => (Box::new(Ltt::new(Patient::new(at_end(path)?))), nothing),
        Target::Ltt(path) => {
            let (file, unsettled) = outfile::begin(path)?;
            (Box::new(Ltt::new(file)), unsettled)
        }
        Target::Ctf(path) if how.is_shared => (Box::new(CtfSink::create(path, &about())?), nothing),
        Target::Ctf(path) => {
            let unsettled = outfile::begin_directory(path);
            (Box::new(CtfSink::create(path, &about())?), unsettled)
        }
        Target::File(path) if how.is_shared => (Box::new(TextFile::shared(at_end(path)?)), nothing),
        Target::File(path) => {
            let (file, unsettled) = outfile::begin(path)?;
            (Box::new(TextFile::new(file)), unsettled)
        }
        Target::Store(path) => {
            let (file, unsettled) = match how.is_shared {
                true => (File::options().write(true).create_new(true).mode(0o600).open(path)?, nothing),
                false => outfile::begin(path)?,
            };
            (Box::new(StoreSink::new(Store::new(file, &about())?)), unsettled)
        }
    })
}

/// Opens a file of a session, which goes on at its end. Neither this nor its writes wait for a reader: all programs would.
fn at_end(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            let text = "nobody reads this pipe; begin its reader before the records are to go there";
            io::Error::new(error.kind(), text)
        }
        _ => error,
    })
}

/// A log that could not be opened.
#[derive(Debug)]
struct Nowhere {
    /// Why.
    error: String,
    lost: u64,
}

impl Sink for Nowhere {
    fn record(&mut self, _program: u32, _record: &Record) -> io::Result<()> {
        self.lost += 1;
        Err(io::Error::other(self.error.clone()))
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Records that no target took, by program and probe: the engine counts them as dropped, and tells that in time.
#[derive(Debug, Default)]
pub(crate) struct Refused(HashMap<(usize, usize), u64>);

impl Refused {
    /// Notes one.
    pub(crate) fn note(&mut self, program: usize, probe: u32) {
        *self.0.entry((program, probe as usize)).or_default() += 1;
    }

    /// Of so many dropped records, those that are among them.
    pub(crate) fn take(&mut self, program: usize, probe: usize, dropped: u64) -> u64 {
        let Some(noted) = self.0.get_mut(&(program, probe)) else { return 0 };
        let taken = dropped.min(*noted);
        *noted -= taken;
        taken
    }

    /// No more records of this program will come.
    pub(crate) fn forget(&mut self, program: usize) {
        self.0.retain(|(of, _), _| *of != program);
    }
}
