//! What a target is told: records, and what is known beside them. A store is told all that is needed to read it when the program is gone.

use std::ffi::OsStr;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Counts, Lost, Placed, Report, State};
use nix::sys::time::TimeValLike;
use nix::sys::utsname::{UtsName, uname};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use trace::sink::{Sink, View};
use trace::store::{self, About, Fact, Gap, Loss, Note, Probe, Program, Site, Variables};
use trace::template::Templates;
use trace::{Items, Record};

use crate::lines::Places;

/// A target that is being filled.
pub(crate) struct Recording {
    sink: Box<dyn Sink>,
    places: Places,
    /// The programs: number, probes, local variables.
    programs: Vec<(u32, usize, usize)>,
    /// What went wrong with a fact; it is told at the next [`Recording::idle`], or at the end.
    failure: Option<io::Error>,
}

impl Recording {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Recording {
        Recording { sink, places: Places::default(), programs: Vec::new(), failure: None }
    }

    /// The target itself.
    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        &mut *self.sink
    }

    /// Takes a program, and how its records are shown.
    pub(crate) fn program(
        &mut self,
        number: usize,
        name: &str,
        object: &rpn::Object,
        items: Items,
        view: &View,
    ) {
        let number = number as u32;
        self.sink.show(number, view);
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
            });
        }
    }

    /// Takes the templates of a program's records: they can be shown by them where the directory of these is not.
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

    /// Whether it keeps more than records.
    pub(crate) fn keeps_facts(&self) -> bool {
        self.sink.keeps_facts()
    }

    /// Takes a place where a probe was armed.
    pub(crate) fn placed(&mut self, placed: &Placed<'_>) {
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
            engine: if placed.tactic.is_some() { "jump" } else { "trap" }.to_owned(),
            tactic: placed.tactic.unwrap_or_default().to_owned(),
        });
    }

    /// Takes a record.
    ///
    /// # Errors
    /// It could not be written, nor those that were kept with it.
    pub(crate) fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        self.sink.record(program as u32, record)
    }

    /// Takes a count of dropped records, and how many of them are those that no target took.
    pub(crate) fn dropped(&mut self, program: usize, probe: usize, dropped: u64, refused: u64) {
        let loss = Loss { time: now(), program: program as u32, probe: probe as u32, dropped };
        if let Err(error) = self.sink.loss(&loss, refused) {
            self.failure.get_or_insert(error);
        }
    }

    /// Takes when records were lost.
    pub(crate) fn gap(&mut self, lost: &Lost) {
        let pid = lost.pid.unwrap_or(0) as u32;
        self.keep(Gap { from: lost.from, to: lost.to, pid, dropped: lost.count });
    }

    /// Takes a message.
    pub(crate) fn note(&mut self, text: &str) {
        self.keep(Note { time: now(), text: text.to_owned() });
    }

    /// Writes out what has waited long enough.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn idle(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)?;
        self.sink.idle()
    }

    /// Whether something is kept that is not written yet.
    pub(crate) fn waits(&self) -> bool {
        self.sink.waits()
    }

    /// Takes what was counted, of all programs.
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

    /// Takes what was counted at the probes of one program, in their order, and its variables.
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

    /// Takes the global variables.
    pub(crate) fn globals(&mut self, values: &[u64]) {
        if !values.is_empty() {
            self.keep(Variables { program: None, values: values.to_vec() });
        }
    }

    /// No more records of this program will come.
    pub(crate) fn forget(&mut self, program: usize) {
        self.programs.retain(|&(number, ..)| number != program as u32);
        if let Err(error) = self.sink.forget(program as u32) {
            self.failure.get_or_insert(error);
        }
    }

    /// Brings the target to a clean end.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        // Only now: reading a module's debug information may take long, and nobody waits any more.
        for source in std::mem::take(&mut self.places).sources() {
            self.keep(source);
        }
        let finished = self.sink.finish();
        self.failure.take().map_or(finished, Err)
    }

    /// Records that were taken and could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.sink.lost()
    }

    /// Tells a fact.
    fn fact(&mut self, fact: impl Into<Fact>) {
        if let Err(error) = self.sink.fact(&fact.into()) {
            self.failure.get_or_insert(error);
        }
    }

    /// Tells a fact to a target that keeps them.
    fn keep(&mut self, fact: impl Into<Fact>) {
        if self.sink.keeps_facts() {
            self.fact(fact);
        }
    }
}

/// The function that an address of an image is in, and how far.
fn symbol(image: &image::Image, vaddr: u64) -> String {
    let function = image.function_at(vaddr).filter(|function| function.size == 0 || function.contains(vaddr));
    match function.map(|function| (function, vaddr - function.vaddr)) {
        None => String::new(),
        Some((function, 0)) => function.name.clone(),
        Some((function, offset)) => format!("{}+{offset:#x}", function.name),
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Where and how the trace is made.
pub(crate) fn about() -> About {
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
