//! The session's observer: passes the records of each program to its targets, and messages to the
//! session's log.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;

use engine::{Lost, Note, Observer, Placed};
use trace::sink::Target;
use trace::{Record, Records};

use crate::addresses::SharedAddresses;
use crate::targets::{How, Open, Targets};

/// A target of a program that is about to be inserted.
pub(crate) struct Opened {
    place: usize,
    target: Target,
    /// Whether it was opened for this program.
    is_new: bool,
}

/// The session's observer.
pub(crate) struct SessionOutput {
    pub(crate) targets: Targets,
    /// The positions of targets for a program that is about to be inserted: they stay open even if
    /// the last program that uses them ends.
    expected: Vec<usize>,
    /// Warnings since the last call of `SessionOutput::heard`: those of an insert in progress.
    heard: Heard,
    log: File,
    /// The modules of processes, for the functions in lines.
    pub(crate) addresses: SharedAddresses,
}

/// Warnings, the first of them word for word.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    more: usize,
}

/// Most warnings kept for the client that inserts.
const MAX_HEARD: usize = 16;

impl SessionOutput {
    pub(crate) fn new(log: File) -> SessionOutput {
        SessionOutput {
            targets: Targets::default(),
            expected: Vec::new(),
            heard: Heard::default(),
            log,
            addresses: SharedAddresses::default(),
        }
    }

    /// The warnings since this was last called.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        let Heard { mut lines, more } = std::mem::take(&mut self.heard);
        if more > 0 {
            lines.push(format!("{more} more, in the log of the session"));
        }
        lines
    }

    /// Opens the targets of a program that is about to be inserted, unless they are open already.
    /// Adds warnings about them.
    ///
    /// # Errors
    /// A target cannot be opened, or its file exists and is not one of this session's stores.
    pub(crate) fn begin(
        &mut self,
        targets: &[Target],
        lossless: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Opened>, String> {
        let mut opened = Vec::new();
        for target in targets {
            let (place, is_new) = match self.targets.position(|open| open.target == *target) {
                Some(place) => (place, false),
                None => match Open::new(target, How { is_shared: true, lossless }) {
                    Ok((open, warning)) => {
                        warnings.extend(warning);
                        (self.targets.add(open), true)
                    }
                    Err(error) => {
                        self.abandon(&opened);
                        return Err(error);
                    }
                },
            };
            self.expected.push(place);
            opened.push(Opened { place, target: target.clone(), is_new });
        }
        Ok(opened)
    }

    /// Closes targets that were opened in vain.
    fn abandon(&mut self, opened: &[Opened]) {
        self.expected.clear();
        opened.iter().filter(|opened| opened.is_new).for_each(|opened| self.targets.abandon(opened.place));
        SessionOutput::remove_files(opened);
    }

    /// Removes the files of targets that were opened in vain and are closed; they would block the
    /// next attempt.
    pub(crate) fn remove_files(opened: &[Opened]) {
        for Opened { target, .. } in opened.iter().filter(|opened| opened.is_new) {
            let _ = match target {
                Target::Store(path) => std::fs::remove_file(path),
                // Only if nothing was logged: then the directory has no other file.
                Target::Ctf(path) => {
                    std::fs::remove_file(path.join("metadata")).and_then(|()| std::fs::remove_dir(path))
                }
                // Nothing new was made.
                Target::Terminal
                | Target::KernelLog(_)
                | Target::Serial(_)
                | Target::Ltt(_)
                | Target::Journal(_)
                | Target::File(_)
                | Target::Otlp(_) => Ok(()),
            };
        }
    }

    /// Like [`SessionOutput::remove_files`], without those that another program uses by now.
    pub(crate) fn remove_unused_files(&self, mut opened: Vec<Opened>) {
        opened.retain(|it| self.targets.position(|open| open.target == it.target).is_none());
        SessionOutput::remove_files(&opened);
    }

    /// Sets the targets of a program, and whether none of its records may be lost.
    pub(crate) fn direct(&mut self, program: usize, opened: &[Opened], lossless: bool) {
        self.expected.clear();
        self.targets.set_targets(program, opened.iter().map(|opened| opened.place).collect(), lossless);
    }

    /// Forgets a program whose records are all written; its targets get the global variables last.
    pub(crate) fn forget(&mut self, program: usize, globals: &[u64]) {
        let SessionOutput { targets, expected, log, .. } = self;
        targets.forget(program, globals, expected, |text| write(log, text));
    }

    /// Writes a line to the session's log.
    pub(crate) fn tell(&mut self, text: &str) {
        write(&mut self.log, text);
    }
}

fn write(log: &mut File, text: &str) {
    // A failure cannot be reported anywhere.
    let _ = writeln!(log, "{}", printable::lines(text));
}

/// The sinks, shared by the tracer, which fills them, and the session, which sets each program's
/// targets.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<SessionOutput>>);

impl Observer for Shared {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        let SessionOutput { targets, log, .. } = &mut *self.0.borrow_mut();
        targets.record(program, record, |text| write(log, text))
    }

    fn records(&mut self, program: usize, records: &mut Records) {
        let SessionOutput { targets, log, .. } = &mut *self.0.borrow_mut();
        targets.records(program, records, |text| write(log, text));
    }

    fn note(&mut self, note: &Note) {
        let text = crate::output::text(note);
        let mut sinks = self.0.borrow_mut();
        sinks.targets.note(&text);
        sinks.tell(&text);
        if let Some(warning) = text.strip_prefix(crate::messages::WARNING) {
            match sinks.heard.lines.len() < MAX_HEARD {
                true => sinks.heard.lines.push(warning.to_owned()),
                false => sinks.heard.more += 1,
            }
        }
    }

    fn mapped(&mut self, pid: i32, modules: &[process::Module]) {
        self.0.borrow().addresses.with(|addresses| addresses.learn(pid as u32, modules));
    }

    fn forked(&mut self, parent: i32, child: i32) {
        self.0.borrow().addresses.with(|addresses| addresses.inherit(parent as u32, child as u32));
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.0.borrow_mut().targets.placed(placed);
    }

    fn wants_placed(&self) -> bool {
        self.0.borrow().targets.wants_placed()
    }

    fn lost(&mut self, lost: &Lost) {
        self.0.borrow_mut().targets.gap(lost);
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        self.0.borrow_mut().targets.dropped(program, probe, count);
    }

    fn is_ready(&mut self) -> bool {
        self.0.borrow_mut().targets.are_ready()
    }

    fn idle(&mut self) {
        let SessionOutput { targets, log, .. } = &mut *self.0.borrow_mut();
        targets.idle(|text| write(log, text));
    }

    fn waits(&self) -> bool {
        self.0.borrow().targets.wait()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A session's sinks, and its log's contents.
    fn sinks() -> (SessionOutput, tempfile::TempDir, impl Fn() -> String) {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("log");
        let log = File::create(&path).expect("room");
        (SessionOutput::new(log), home, move || std::fs::read_to_string(&path).expect("text"))
    }

    fn begin(sinks: &mut SessionOutput, targets: &[Target], lossless: bool) -> Vec<Opened> {
        sinks.begin(targets, lossless, &mut Vec::new()).expect("they are opened")
    }

    #[test]
    fn who_inserts_hears_the_first_warnings_and_how_many_more_there_are() {
        let (sinks, _home, log) = sinks();
        let mut shared = Shared(Rc::new(RefCell::new(sinks)));
        shared.note(&Note::Exit("no warning".to_owned()));
        (0..20).for_each(|number| shared.note(&Note::Other(format!("refused {number}"))));
        let heard = shared.0.borrow_mut().heard();
        assert_eq!((heard.len(), &*heard[0], &*heard[15]), (17, "refused 0", "refused 15"));
        assert_eq!(heard[16], "4 more, in the log of the session");
        assert_eq!(shared.0.borrow_mut().heard(), [""; 0]);
        assert_eq!(log().lines().count(), 21);
    }

    #[test]
    fn all_targets_that_fail_at_the_same_record_are_told_of() {
        let (mut sinks, home, log) = sinks();
        let other = home.path().join("full");
        std::os::unix::fs::symlink("/dev/full", &other).expect("room");
        let targets = ["/dev/full".into(), other].map(Target::Ltt);
        let opened = begin(&mut sinks, &targets, false);
        sinks.direct(0, &opened, false);
        let mut shared = Shared(Rc::new(RefCell::new(sinks)));
        // The target's queue takes some records before the failure is known.
        let taken = (0..10_000_000u64).find(|_| shared.record(0, &Record::default()).is_err());
        let given = taken.expect("none is taken any more") + 1;
        shared.0.borrow_mut().forget(0, &[]);
        for target in targets {
            let told =
                format!("warning: {target}: No space left on device (os error 28); records are lost\n");
            assert_eq!(log().matches(&told).count(), 1, "{}", log());
            assert!(
                log().contains(&format!("warning: {target}: {given} records could not be written\n")),
                "{}",
                log()
            );
        }
    }

    #[test]
    fn a_group_that_no_target_takes_is_refused_and_told_of() {
        for count in [1, 2] {
            let (mut sinks, home, log) = sinks();
            let other = home.path().join("full");
            std::os::unix::fs::symlink("/dev/full", &other).expect("room");
            let targets: Vec<Target> = ["/dev/full".into(), other].map(Target::Ltt).into();
            let targets = &targets[..count];
            let opened = begin(&mut sinks, targets, false);
            sinks.direct(0, &opened, false);
            let mut shared = Shared(Rc::new(RefCell::new(sinks)));
            let mut group = trace::Records::default();
            let head = group.add_head(Record::default(), true);
            // The target's queue takes some records before the failure is known.
            let mut given = 0;
            while group.refused().next().is_none() {
                assert!(given < 10_000_000, "all are taken");
                group.clear();
                for time in 0..100 {
                    group.push(head, (time, 0, 0), 0);
                }
                shared.records(0, &mut group);
                given += 100;
            }
            shared.0.borrow_mut().forget(0, &[]);
            for target in targets {
                let failed = format!("warning: {target}: No space left on device (os error 28)");
                assert_eq!(log().matches(&failed).count(), 1, "{}", log());
                let lost = format!("warning: {target}: {given} records could not be written\n");
                assert!(log().contains(&lost), "{}", log());
            }
        }
    }

    /// An open target also waits for a later program that may lose nothing, and only as long as
    /// that program is there.
    #[test]
    fn an_open_target_loses_nothing_of_a_program_that_may_lose_nothing() {
        let (mut sinks, home, _log) = sinks();
        let path = home.path().join("socket");
        let _never_read = UnixDatagram::bind(&path).expect("a socket");
        let targets = [Target::KernelLog(Some(path))];
        let opened = begin(&mut sinks, &targets, false);
        sinks.direct(0, &opened, false);
        let opened = begin(&mut sinks, &targets, true);
        sinks.direct(1, &opened, true);
        let mut shared = Shared(Rc::new(RefCell::new(sinks)));
        let mut put = 0;
        while shared.is_ready() {
            shared.record(1, &Record::default()).expect("there is room");
            put += 1;
            assert!(put < 200_000, "it is never full");
        }
        shared.0.borrow_mut().forget(1, &[]);
        assert!(shared.is_ready(), "the other program's records may be dropped");
        let dropped = (0..200_000).any(|_| shared.record(0, &Record::default()).is_err());
        assert!(dropped, "what was left of the room is taken first");
        // A failed insert changes nothing.
        let opened = begin(&mut shared.0.borrow_mut(), &targets, true);
        assert!(shared.is_ready());
        shared.0.borrow_mut().abandon(&opened);
    }
}
