//! What `printf` says as records of targets: a trace store, the journal, and others.
//!
//! In: the hit of a record, then what each `printf` in its log says. Out: records of the codes
//! `1, N`, where N is the number of the `printf` in the script, with a template for each.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Lost, Observer, Placed, Report};
use process::Module;
use rpn::Object;
use trace::sink::Target;
use trace::template::{Template, Templates};
use trace::{Items, Record};

use super::places::Places;
use crate::Failure;
use crate::addresses::SharedAddresses;
use crate::arguments::Shown;
use crate::output::{Output, Told};
use crate::targets;

/// The major code of what scripts print.
const MAJOR: u32 = 1;

/// A `printf` of a script.
pub(super) struct Message {
    /// Its number among the script's events.
    pub(super) number: usize,
    /// Where it is: `sizes.bt:12`.
    pub(super) place: String,
    /// How its bytes are shown.
    pub(super) format: String,
}

/// The targets, and the hit whose log is read.
pub(super) struct Records {
    output: Output,
    /// The number of the program that dprobes itself runs.
    own: usize,
    program: usize,
    hit: Record,
}

/// The header items of records for targets.
pub(super) fn items(all: &[Target]) -> Items {
    targets::items(all, &Shown::default()).with(Items::PID).with(Items::TSC)
}

impl Records {
    /// Opens targets for what a script prints.
    ///
    /// # Errors
    /// One cannot be opened.
    pub(super) fn open(all: &[Target], messages: &[Message], places: &Places) -> Result<Records, Failure> {
        let template = |message: &Message| {
            let what = format!("printf, {}", message.place);
            Template::compile(MAJOR, code(message.number), &what, Some(&message.format)).map_err(|wrong| {
                // Each part of a format is escaped, so this tells of a mistake of ours.
                Failure::new(format!("{}: its format cannot be kept: {wrong:?}", message.place))
            })
        };
        let templates = messages.iter().map(template).collect::<Result<Vec<_>, _>>()?;
        let addresses = SharedAddresses::default();
        let view = targets::view(&Shown::default(), Some(Templates::of(templates)), &addresses);
        let mut output = Output::open(all, view, addresses, false, Told::Warnings)?;
        for (number, object) in places.objects.iter().enumerate() {
            output.program(number, "script", &described(object), items(all));
        }
        let own = places.objects.len();
        output.program(own, "script", &places.own_program(), items(all));
        Ok(Records { output, own, program: 0, hit: Record::default() })
    }

    /// The log of this record is read next.
    pub(super) fn hit(&mut self, program: usize, record: &Record) {
        self.program = program;
        self.hit = Record { data: Vec::new(), major: MAJOR, ..record.clone() };
    }

    /// The log of a handler that dprobes itself runs is read next.
    pub(super) fn own(&mut self, probe: u32) {
        self.program = self.own;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let pid = std::process::id();
        let time = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let name = "dprobes".to_owned();
        self.hit = Record { major: MAJOR, probe, pid, tid: pid, time, name, word: 8, ..Record::default() };
    }

    /// Writes what a `printf` says.
    ///
    /// # Errors
    /// No target has taken it.
    pub(super) fn message(&mut self, number: usize, data: Vec<u8>) -> io::Result<()> {
        self.hit.minor = code(number);
        self.hit.data = data;
        self.output.record(self.program, &self.hit)
    }

    /// What else the targets are told.
    pub(super) fn observer(&mut self) -> &mut dyn Observer {
        &mut self.output
    }

    /// Passes on a site at which a probe was armed.
    pub(super) fn placed(&mut self, placed: &Placed<'_>) {
        self.output.placed(placed);
    }

    /// Passes on the modules of a process.
    pub(super) fn mapped(&mut self, pid: i32, modules: &[Module]) {
        self.output.mapped(pid, modules);
    }

    /// Passes on when records were lost.
    pub(super) fn lost(&mut self, lost: &Lost) {
        self.output.lost(lost);
    }

    /// Writes what waits; returns how many records the targets have lost.
    pub(super) fn end(&mut self) -> u64 {
        self.output.end(&Report::default()).iter().map(|target| target.lost).sum()
    }
}

/// The minor code of a `printf`.
fn code(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1)
}

/// The probes of a module without their code: what they log is not what records have.
fn described(object: &Object) -> Object {
    let probes = object.probes.iter().map(|probe| rpn::Probe { entry: 0, end: 0, ..probe.clone() });
    Object { probes: probes.collect(), code: Vec::new(), lines: Vec::new(), major: MAJOR, ..object.clone() }
}
