//! Where the records of each program go, and the session's own messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;

use engine::{Lost, Note, Observer, Placed};
use trace::Record;
use trace::sink::Target;

use crate::recording::Recording;
use crate::targets::{How, Open, Refused, Taken, several};

/// A target, which several programs may have.
struct Filled {
    target: Target,
    open: Open,
    /// Whether a program is about to have it: then it does not end with the last one that has it.
    expected: bool,
}

/// A target of a program that is about to be inserted.
pub(crate) struct Opened {
    place: usize,
    target: Target,
    /// Whether it was opened for this program.
    is_new: bool,
}

/// Where the records of a program go.
struct Directed {
    places: Vec<usize>,
    /// Whether none of them may be lost.
    lossless: bool,
}

/// The session's observer.
pub(crate) struct Sinks {
    /// The targets; none where one has come to its end.
    targets: Vec<Option<Filled>>,
    /// Those of each program, by its number.
    programs: HashMap<usize, Directed>,
    refused: Refused,
    /// What was told since it was last asked for: the warnings of an insert that settles.
    heard: Heard,
    log: File,
}

/// Warnings, the first of them word for word.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    more: usize,
}

/// Warnings that are kept for who inserts.
const MOST_HEARD: usize = 16;

impl Sinks {
    pub(crate) fn new(log: File) -> Sinks {
        Sinks {
            targets: Vec::new(),
            programs: HashMap::new(),
            refused: Refused::default(),
            heard: Heard::default(),
            log,
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

    /// Opens the targets of a program that is about to be inserted, but for those that are open already; with what else there is to
    /// tell of them.
    ///
    /// # Errors
    /// One cannot be opened, or there is a file that is none of this session's stores.
    pub(crate) fn begin(
        &mut self,
        targets: &[Target],
        lossless: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Opened>, String> {
        let mut opened = Vec::new();
        for target in targets {
            let is_it =
                |filled: &Option<Filled>| filled.as_ref().is_some_and(|filled| filled.target == *target);
            let (place, is_new) = match self.targets.iter().position(is_it) {
                Some(place) => (place, false),
                None => match Open::or_nowhere(target, How { is_shared: true, lossless }) {
                    Ok((open, warning)) => {
                        warnings.extend(warning);
                        (self.add(Filled { target: target.clone(), open, expected: true }), true)
                    }
                    Err(error) => {
                        self.abandon(&opened);
                        return Err(error);
                    }
                },
            };
            if let Some(filled) = &mut self.targets[place] {
                filled.expected = true;
            }
            opened.push(Opened { place, target: target.clone(), is_new });
        }
        Ok(opened)
    }

    fn add(&mut self, filled: Filled) -> usize {
        let place = self.targets.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.targets.push(None);
            self.targets.len() - 1
        });
        self.targets[place] = Some(filled);
        place
    }

    /// Closes targets that were opened in vain.
    fn abandon(&mut self, opened: &[Opened]) {
        for Opened { place, is_new, .. } in opened {
            match &mut self.targets[*place] {
                Some(filled) if !*is_new => filled.expected = false,
                filled => *filled = None,
            }
        }
        Sinks::remove_files(opened);
    }

    /// Removes the files of targets that were opened in vain, and closed: they would be in the way of the next attempt.
    pub(crate) fn remove_files(opened: &[Opened]) {
        for Opened { target, .. } in opened.iter().filter(|opened| opened.is_new) {
            let _ = match target {
                Target::Store(path) => std::fs::remove_file(path),
                // Only if nothing was logged: then there is but this file in it.
                Target::Ctf(path) => {
                    std::fs::remove_file(path.join("metadata")).and_then(|()| std::fs::remove_dir(path))
                }
                _ => Ok(()),
            };
        }
    }

    /// Says where the records of a program go, and whether none of them may be lost.
    pub(crate) fn direct(&mut self, program: usize, opened: &[Opened], lossless: bool) {
        let places = opened.iter().map(|opened| opened.place).collect::<Vec<_>>();
        for &place in &places {
            if let Some(filled) = &mut self.targets[place] {
                filled.expected = false;
            }
        }
        self.programs.insert(program, Directed { places, lossless });
        self.wait_where_asked();
    }

    /// A target waits where it is slow as long as one of its programs may lose nothing.
    fn wait_where_asked(&mut self) {
        for (place, filled) in self.targets.iter_mut().enumerate() {
            let Some(filled) = filled else { continue };
            let mut programs = self.programs.values();
            let lossless = programs.any(|program| program.lossless && program.places.contains(&place));
            filled.open.recording.sink().set_lossless(lossless);
        }
    }

    /// The targets of a program.
    fn places(&self, program: usize) -> Vec<usize> {
        self.programs.get(&program).map(|program| program.places.clone()).unwrap_or_default()
    }

    /// What the targets of a program have made of their records so far, of all programs that have them.
    pub(crate) fn taken(&self, program: usize) -> Vec<Taken> {
        let places = self.programs.get(&program).map_or(&[][..], |program| &program.places);
        places.iter().filter_map(|&place| Some(self.targets[place].as_ref()?.open.taken())).collect()
    }

    /// Does something with each target of a program.
    pub(crate) fn each_of(&mut self, program: usize, mut with: impl FnMut(&mut Recording)) {
        for place in self.places(program) {
            if let Some(filled) = &mut self.targets[place] {
                with(&mut filled.open.recording);
            }
        }
    }

    /// All targets.
    fn all(&mut self) -> impl Iterator<Item = &mut Open> {
        self.targets.iter_mut().flatten().map(|filled| &mut filled.open)
    }

    /// Lets what is kept be written.
    fn idle(&mut self) {
        let mut told = Vec::new();
        several::idle(self.all(), |text| told.push(text.to_owned()));
        told.iter().for_each(|text| self.tell(text));
    }

    /// Forgets a program, whose records are all there. A target that no other program has is brought to its end; the global
    /// variables are the last that it is told.
    pub(crate) fn forget(&mut self, program: usize, globals: &[u64]) {
        let places = self.places(program);
        self.programs.remove(&program);
        self.refused.forget(program);
        for place in places {
            let is_shared = self.programs.values().any(|program| program.places.contains(&place));
            let Some(filled) = &mut self.targets[place] else { continue };
            filled.open.recording.forget(program);
            let told = if is_shared || filled.expected {
                let idle = filled.open.recording.idle();
                idle.err().and_then(|error| filled.open.failure(&error)).into_iter().collect()
            } else {
                filled.open.recording.globals(globals);
                let told = filled.open.finish();
                self.targets[place] = None;
                told
            };
            told.iter().for_each(|text: &String| self.tell(text));
        }
        self.wait_where_asked();
    }

    /// Writes a line to the session's own log.
    pub(crate) fn tell(&mut self, text: &str) {
        // There is nobody to tell that it failed.
        let _ = writeln!(self.log, "{}", printable::lines(text));
    }
}

/// The sinks, shared by the tracer, which fills them, and the session, which directs them.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Sinks>>);

impl Observer for Shared {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        let mut sinks = self.0.borrow_mut();
        let sinks = &mut *sinks;
        let places = sinks.programs.get(&program).map_or(&[][..], |program| &program.places);
        let own = sinks.targets.iter_mut().enumerate().filter(|(place, _)| places.contains(place));
        let own = own.filter_map(|(_, filled)| filled.as_mut()).map(|filled| &mut filled.open);
        let mut told = Vec::new();
        let result = several::record(own, program, record, |text| told.push(text.to_owned()));
        told.iter().for_each(|text| sinks.tell(text));
        result.inspect_err(|_| sinks.refused.note(program, record.probe))
    }

    fn note(&mut self, note: &Note) {
        let text = crate::output::text(note);
        let mut sinks = self.0.borrow_mut();
        sinks.targets.iter_mut().flatten().for_each(|filled| filled.open.recording.note(&text));
        sinks.tell(&text);
        if let Some(warning) = text.strip_prefix(crate::messages::WARNING) {
            match sinks.heard.lines.len() < MOST_HEARD {
                true => sinks.heard.lines.push(warning.to_owned()),
                false => sinks.heard.more += 1,
            }
        }
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.0.borrow_mut().each_of(placed.program, |recording| recording.placed(placed));
    }

    fn wants_placed(&self) -> bool {
        let mut sinks = self.0.borrow_mut();
        let mut filled = sinks.targets.iter_mut().flatten();
        filled.any(|filled| filled.open.recording.keeps_facts())
    }

    fn lost(&mut self, lost: &Lost) {
        let mut sinks = self.0.borrow_mut();
        sinks.targets.iter_mut().flatten().for_each(|filled| filled.open.recording.gap(lost));
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        let mut sinks = self.0.borrow_mut();
        let refused = sinks.refused.take(program, probe, count);
        sinks.each_of(program, |recording| recording.dropped(program, probe, count, refused));
    }

    fn is_ready(&mut self) -> bool {
        several::are_ready(self.0.borrow_mut().all())
    }

    fn idle(&mut self) {
        self.0.borrow_mut().idle();
    }

    fn waits(&self) -> bool {
        let sinks = self.0.borrow();
        sinks.targets.iter().flatten().any(|filled| filled.open.recording.waits())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A session's targets, and what its log has.
    fn sinks() -> (Sinks, tempfile::TempDir, impl Fn() -> String) {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("log");
        let log = File::create(&path).expect("room");
        (Sinks::new(log), home, move || std::fs::read_to_string(&path).expect("text"))
    }

    fn begin(sinks: &mut Sinks, targets: &[Target], lossless: bool) -> Vec<Opened> {
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
        let refused = (0..10_000).filter(|_| shared.record(0, &Record::default()).is_err()).count() as u64;
        assert!(refused > 0);
        shared.0.borrow_mut().forget(0, &[]);
        for target in targets {
            let told =
                format!("warning: {target}: No space left on device (os error 28); records are lost\n");
            assert_eq!(log().matches(&told).count(), 1, "{}", log());
            assert!(
                log().contains(&format!("warning: {target}: 10000 records could not be written\n")),
                "{}",
                log()
            );
        }
    }

    /// A target that is open waits, too, for a program that comes later and may lose nothing; and no longer than for it.
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
        assert!(shared.record(0, &Record::default()).is_err());
        // One that comes in vain changes nothing.
        let opened = begin(&mut shared.0.borrow_mut(), &targets, true);
        assert!(shared.is_ready());
        shared.0.borrow_mut().abandon(&opened);
    }
}
