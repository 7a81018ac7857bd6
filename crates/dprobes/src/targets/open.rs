//! An open target, and what it is given: records, and facts about the trace. A store gets all facts
//! that are needed to read it later, without the program.
//!
//! In: a record, a note, a fact. Out: the same to the sink; what fails is told once.

use std::io;
use std::mem;

use engine::{Counts, Lost, Placed, Report, State};
use trace::sink::{Sink, Target, View};
use trace::store::{self, Fact, Gap, Loss, Note, Probe, Program, Site, Variables};
use trace::template::Templates;
use trace::{Items, Record, Records};

use super::opening::{self, How, now};
use crate::lines::Places;
use crate::messages::count;
use crate::outfile::PendingFile;

/// An open target.
pub(crate) struct Open {
    pub(crate) target: Target,
    sink: Box<dyn Sink>,
    /// What is still to be done for its file when there is something to keep.
    unsettled: PendingFile,
    places: Places,
    /// The programs: number, number of probes, number of local variables.
    programs: Vec<(u32, usize, usize)>,
    /// The first error of writing a fact; reported at the next [`Open::idle`], or at the end.
    failure: Option<io::Error>,
    /// Whether a failure was reported.
    failed: bool,
    /// Number of records given to the target.
    given: u64,
}

/// What became of the records given to a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetCounts {
    pub(crate) name: String,
    /// Records written completely.
    pub(crate) written: u64,
    /// Records lost.
    pub(crate) lost: u64,
}

impl Open {
    /// Opens a target; returns also a warning about it, if there is one. For the probes of a
    /// session, a missing kernel log is no error: the probes may log nothing.
    ///
    /// # Errors
    /// The target cannot be opened; the message names it.
    pub(crate) fn new(target: &Target, how: How) -> Result<(Open, Option<String>), String> {
        let (sink, unsettled, failed, told) = match opening::open(target, how) {
            Ok((sink, unsettled)) => (sink, unsettled, false, opening::caveat(target)),
            Err(error) if how.is_shared && *target == Target::KernelLog(None) => {
                let (sink, told) = opening::nowhere(format!("{target}: {error}"));
                (sink, PendingFile::nothing(), true, Some(told))
            }
            Err(error) => return Err(opening::message(target, &error)),
        };
        let (places, programs) = (Places::default(), Vec::new());
        let target = target.clone();
        Ok((Open { target, sink, unsettled, places, programs, failure: None, failed, given: 0 }, told))
    }

    /// The target's name in messages.
    fn name(&self) -> String {
        match self.target {
            Target::Terminal => "standard error".to_owned(),
            _ => self.target.to_string(),
        }
    }

    /// What became of its records so far; records still waiting in it count as written.
    pub(crate) fn taken(&self) -> TargetCounts {
        let lost = self.sink.lost();
        TargetCounts { name: self.name(), written: self.given.saturating_sub(lost), lost }
    }

    /// The message about a failure; only the first failure gives one.
    fn failure(&mut self, error: &io::Error) -> Option<String> {
        if mem::replace(&mut self.failed, true) {
            return None;
        }
        let name = self.name();
        Some(match error.kind() {
            io::ErrorKind::Interrupted => {
                format!("warning: {name}: it took no more records; those that were not written are lost")
            }
            _ => format!("warning: {name}: {error}; records are lost"),
        })
    }

    /// Puts the target's file in its place, instead of an old file; it goes on growing. Returns a
    /// warning if that fails.
    pub(crate) fn settle(&mut self) -> Option<String> {
        let error = self.unsettled.commit().err()?;
        Some(format!("warning: {}: {error}", self.name()))
    }

    /// Registers a program, and how its records are shown.
    pub(crate) fn program(
        &mut self,
        number: usize,
        name: &str,
        object: &rpn::Object,
        items: Items,
        view: &View,
    ) {
        let number = number as u32;
        self.sink.show(number, &super::view_of(view, object));
        if self.sink.keeps_facts() {
            self.templates(number, view.templates.as_ref());
        }
        self.programs.push((number, object.probes.len(), usize::from(object.vars)));
        self.fact(Program {
            number,
            name: name.to_owned(),
            module: object.module.clone(),
            major: object.major,
            id: object.id,
            word: object.word().bytes() as u32,
            items: items.with(Items::MAJOR).with(Items::MINOR),
        });
        for (probe, definition) in object.probes.iter().enumerate() {
            self.fact(Probe {
                program: number,
                number: probe as u32,
                point: definition.point.clone(),
                minor: definition.minor,
                group: definition.group.clone(),
                kind: definition.kind.clone(),
                logged: Some(super::logged(object, definition).text()),
            });
        }
    }

    /// Stores the templates of a program's records, so that they can be shown without the template
    /// directory.
    fn templates(&mut self, program: u32, templates: Option<&Templates>) {
        for (_, template) in templates.into_iter().flat_map(Templates::templates) {
            self.fact(store::Template {
                major: template.major,
                minor: template.minor,
                description: template.description.clone(),
                format: template.format.clone(),
                program: Some(program),
            });
        }
    }

    /// Whether the target keeps facts, not just records.
    pub(super) fn keeps_facts(&self) -> bool {
        self.sink.keeps_facts()
    }

    /// Stores a site at which a probe was armed.
    pub(super) fn placed(&mut self, placed: &Placed<'_>) {
        if !self.sink.keeps_facts() {
            return;
        }
        let (module, is_new) = self.places.module(placed.module);
        if is_new {
            self.fact(store::Module {
                number: module,
                path: placed.module.path.display().to_string(),
                build_id: image::hex(placed.module.image.build_id().unwrap_or_default()),
            });
        }
        let vaddr = placed.module.vaddr(placed.address);
        let offset = placed.module.image.offset_of_address(vaddr).unwrap_or(vaddr);
        self.places.note(module, vaddr, offset);
        self.fact(Site {
            time: now(),
            program: placed.program as u32,
            probe: placed.probe as u32,
            pid: placed.pid as u32,
            module,
            address: placed.address,
            offset,
            symbol: symbol(&placed.module.image, vaddr),
            engine: placed.engine.to_owned(),
            tactic: placed.tactic.unwrap_or_default().to_owned(),
        });
    }

    /// Writes a record. Passes a message about a failure to `tell`.
    ///
    /// # Errors
    /// The record is lost.
    #[inline]
    pub(super) fn record(
        &mut self,
        program: usize,
        record: &Record,
        tell: &mut impl FnMut(&str),
    ) -> io::Result<()> {
        self.given += 1;
        self.sink.record(program as u32, record).inspect_err(|error| self.tell_failure(error, tell))
    }

    /// Writes records; those are refused that are lost. Passes a message about a failure to `tell`.
    pub(super) fn records(&mut self, program: usize, records: &mut Records, tell: &mut impl FnMut(&str)) {
        self.given += records.count() as u64;
        self.sink.records(program as u32, records);
        if let Some(error) = records.take_error() {
            self.tell_failure(&error, tell);
        }
    }

    /// Reports a failure, if it is the first.
    #[cold]
    fn tell_failure(&mut self, error: &io::Error, tell: &mut impl FnMut(&str)) {
        self.failure(error).iter().for_each(|text| tell(text));
    }

    /// Stores a number of dropped records, and how many of them no target took.
    pub(super) fn dropped(&mut self, program: usize, probe: usize, dropped: u64, refused: u64) {
        let loss = Loss { time: now(), program: program as u32, probe: probe as u32, dropped };
        if let Err(error) = self.sink.loss(&loss, refused) {
            self.failure.get_or_insert(error);
        }
    }

    /// Stores when records were lost.
    pub(super) fn gap(&mut self, lost: &Lost) {
        let pid = lost.pid.unwrap_or(0) as u32;
        self.keep(Gap { from: lost.from, to: lost.to, pid, dropped: lost.count });
    }

    /// Stores a message.
    pub(super) fn note(&mut self, text: &str) {
        self.keep(Note { time: now(), text: text.to_owned() });
    }

    /// Writes buffered data that has waited long enough. Passes messages to `tell`.
    pub(super) fn idle(&mut self, tell: &mut impl FnMut(&str)) {
        self.sink.refresh(tell);
        if let Err(error) = self.failure.take().map_or(Ok(()), Err).and_then(|()| self.sink.idle()) {
            self.tell_failure(&error, tell);
        }
    }

    /// Whether it has data that is not written yet.
    pub(super) fn waits(&self) -> bool {
        self.sink.waits()
    }

    /// Whether it can take a record now.
    pub(super) fn is_ready(&mut self) -> bool {
        self.sink.is_ready()
    }

    /// Sets whether to wait for room instead of losing records.
    pub(super) fn set_lossless(&mut self, lossless: bool) {
        self.sink.set_lossless(lossless);
    }

    /// Stores the counts and variables of all programs.
    pub(crate) fn report(&mut self, report: &Report) {
        let (mut probes, mut locals) = (report.probes.iter(), report.locals.as_slice());
        for (number, count, variables) in self.programs.clone() {
            let counts: Vec<(State, Counts)> =
                probes.by_ref().take(count).map(|probe| (probe.state, probe.counts)).collect();
            let (own, rest) = locals.split_at(variables.min(locals.len()));
            locals = rest;
            self.ended(number, &counts, own);
        }
        self.globals(&report.globals);
    }

    /// Stores the counts of one program's probes, in their order, and its variables.
    pub(crate) fn ended(&mut self, program: u32, counts: &[(State, Counts)], locals: &[u64]) {
        for (probe, (state, counts)) in counts.iter().enumerate() {
            self.keep(store::Counts {
                program,
                probe: probe as u32,
                hits: counts.hits,
                runs: counts.runs,
                ignored: counts.ignored,
                missed: counts.missed,
                logged: counts.logged,
                dropped: counts.dropped,
                state: state.name().to_owned(),
            });
        }
        if !locals.is_empty() {
            self.keep(Variables { program: Some(program), values: locals.to_vec() });
        }
    }

    /// Stores the global variables.
    pub(super) fn globals(&mut self, values: &[u64]) {
        if !values.is_empty() {
            self.keep(Variables { program: None, values: values.to_vec() });
        }
    }

    /// No more records of this program will come.
    pub(super) fn forget(&mut self, program: usize) {
        self.programs.retain(|&(number, ..)| number != program as u32);
        if let Err(error) = self.sink.forget(program as u32) {
            self.failure.get_or_insert(error);
        }
    }

    /// Ends the target and returns the messages for the user.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut told = Vec::from_iter(self.settle());
        // At the end: reading a module's debug information may take long, and no process waits any
        // more.
        for source in mem::take(&mut self.places).sources() {
            self.keep(source);
        }
        let finished = self.sink.finish();
        if let Err(error) = self.failure.take().map_or(finished, Err) {
            told.extend(self.failure(&error));
        }
        self.sink.refresh(&mut |text| told.push(text.to_owned()));
        let lost = self.sink.lost();
        if lost > 0 {
            told.push(format!("warning: {}: {} could not be written", self.name(), count(lost, "record")));
        }
        told
    }

    /// Writes a fact.
    fn fact(&mut self, fact: impl Into<Fact>) {
        if let Err(error) = self.sink.fact(&fact.into()) {
            self.failure.get_or_insert(error);
        }
    }

    /// Writes a fact if the target keeps facts.
    fn keep(&mut self, fact: impl Into<Fact>) {
        if self.sink.keeps_facts() {
            self.fact(fact);
        }
    }
}

/// The function at an address of an image, with the offset in it.
fn symbol(image: &image::Image, vaddr: u64) -> String {
    let function = image.function_at(vaddr).filter(|function| function.size == 0 || function.contains(vaddr));
    match function.map(|function| (function, vaddr - function.vaddr)) {
        None => String::new(),
        Some((function, 0)) => function.name.clone(),
        Some((function, offset)) => format!("{}+{offset:#x}", function.name),
    }
}
