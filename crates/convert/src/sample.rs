//! A small trace for tests: functions `main`, `f` and `g`, and an instruction within `f`.

use trace::store::{Info, Probe, Program, Site};
use trace::{Items, Record};

use crate::event::{Event, Form};
use crate::facts::TraceFacts;

/// The probes.
pub(crate) const MAIN: u32 = 0;
pub(crate) const F: u32 = 2;
pub(crate) const G: u32 = 4;
pub(crate) const POINT: u32 = 6;
/// What is added to a function's probe for its returns.
pub(crate) const END: u32 = 1;

/// What the trace says about its probes.
pub(crate) fn info() -> Info {
    let mut info = Info::default();
    info.programs.push(Program { module: "a.out".to_owned(), items: Items::ALL, ..Program::default() });
    let points = ["main", "main:return", "f:entry", "f:return", "g", "\"g\":return", "f+0x4"];
    let symbols = ["main", "main+0x9", "f", "f+0x8", "g", "g+0x7", "f+0x4"];
    for ((number, point), symbol) in (0..).zip(points).zip(symbols) {
        let point = point.to_owned();
        info.probes.push(Probe { number, point, logged: Some("1|2".to_owned()), ..Probe::default() });
        let symbol = symbol.to_owned();
        info.sites.push(Site { probe: number, address: number.into(), symbol, ..Site::default() });
    }
    info
}

/// A hit: thread, probe, time, stack pointer, and the words that were logged.
pub(crate) type Hit<'a> = (u32, u32, u64, u64, &'a [u64]);

/// Passes hits to a form, and ends it. Gives its remarks.
pub(crate) fn play(form: &mut dyn Form, known: &mut TraceFacts, hits: &[Hit<'_>]) -> Vec<String> {
    for (number, &(tid, probe, time, esp, words)) in (0..).zip(hits) {
        let record = Record {
            pid: 1,
            tid,
            name: "app".to_owned(),
            probe,
            time,
            esp,
            eip: probe.into(),
            word: 8,
            data: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            ..Record::default()
        };
        let place = known.site(0, probe, record.eip);
        form.record(&Event { number, record: &record, place, template: None }).expect("it is written");
    }
    form.finish().expect("it is written")
}
