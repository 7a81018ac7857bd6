//! Names of threads, and the values that probes have logged.

use trace::Record;
use trace::line::LoggedForms;
use trace::store::Info;

use crate::event::Event;
use crate::map::Map;

/// Columns of the thread: at least, and at most.
const WIDTHS: (usize, usize) = (8, 32);

/// How threads and values are shown.
#[derive(Debug)]
pub(super) struct Names {
    width: usize,
    /// What each probe logs, by program and number.
    logged: Map<(u32, u32), LoggedForms>,
}

impl Names {
    pub(super) fn new(info: &Info) -> Names {
        let widths =
            info.threads.iter().map(|thread| named(&thread.name, thread.pid, thread.tid).chars().count());
        let logged = info.probes.iter().filter_map(|probe| {
            Some(((probe.program, probe.number), LoggedForms::parse(probe.logged.as_deref()?)))
        });
        Names { width: widths.max().unwrap_or(0).clamp(WIDTHS.0, WIDTHS.1), logged: logged.collect() }
    }

    /// Columns of the thread.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// A record's thread, in its column.
    pub(super) fn thread(&self, record: &Record) -> String {
        format!("{:1$}", named(&record.name, record.pid, record.tid), self.width)
    }

    /// The values of a record, each after a blank.
    pub(super) fn values(&self, event: &Event<'_>) -> String {
        if event.record.data.is_empty() {
            return String::new();
        }
        let logged = self.logged.get(&(event.place.program, event.place.probe));
        let values = logged.unwrap_or(&LoggedForms::UNKNOWN).values(event.record, None);
        String::from_utf8_lossy(&values).into_owned()
    }
}

/// The name of a thread with its numbers, as in the text of records.
fn named(name: &str, pid: u32, tid: u32) -> String {
    let name = printable::text(name);
    match tid == pid || tid == 0 {
        true => format!("{name}[{pid}]"),
        false => format!("{name}[{pid}:{tid}]"),
    }
}
