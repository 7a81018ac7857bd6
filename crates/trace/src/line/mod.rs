//! Writes a record as one line for people, the default form of text.
//!
//! ```text
//! 13:05:47.123456 ls[4711]     libc.so.6:open:entry "/etc/passwd" 0
//! 13:05:47.123502 ls[4711]     libc.so.6:malloc:entry 4096
//! ```
//!
//! The time is that of the hit, in UTC. The thread's number follows that of its process where the
//! two differ: `app[4711:4713]`. The probe's name is that of its program; where a probe has sites
//! in several functions, it is that of the function hit. A function may return in several places:
//! its name ends with the distance of the one that was hit, `libc:getenv:return+0xe5`. What the
//! handler logged follows, decoded by what its instructions write ([`LoggedForms`]).

mod forms;
mod value;

use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;

use crate::digits::{decimal, hexadecimal, short};
use crate::{Items, Record};
pub use forms::{LoggedForms, Piece};

/// Most columns that the name of a thread, or of a probe, is padded to.
const WIDEST: usize = 40;
/// Columns of the shortest thread.
const NARROWEST: usize = 12;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name of the file that has it.
    pub module: String,
    /// Its name.
    pub name: String,
    /// The distance of the address from its start.
    pub offset: u64,
}

/// Knows the functions at addresses of processes.
pub trait Functions: Debug + Send + Sync {
    /// The function that contains an address of a process; none if it is not known, or if there is
    /// no code.
    fn at(&self, pid: u32, address: u64) -> Option<Function>;
}

/// A probe whose records are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineProbe {
    /// The module as the program names it.
    pub module: String,
    /// The probepoint as written: `malloc:entry`.
    pub point: String,
    /// Whether it has sites in several functions, or in several places of one.
    pub is_spread: bool,
    /// Its major and minor codes.
    pub codes: (u32, u32),
    /// What its handler logs.
    pub logged: LoggedForms,
}

impl LineProbe {
    /// A probe of a program with this module and major code.
    pub fn new(module: &str, point: &str, codes: (u32, u32), logged: LoggedForms) -> LineProbe {
        let names_several = |text: &str| text.contains(['*', '?', '[']);
        let is_spread =
            names_several(module) || module.is_empty() || names_several(point) || point.starts_with(':');
        LineProbe { module: module.to_owned(), point: point.to_owned(), is_spread, codes, logged }
    }

    /// Whether its sites are where functions return.
    fn is_return(&self) -> bool {
        self.point.ends_with(":return")
    }
}

/// How the records of a program are shown as lines.
#[derive(Clone, Debug)]
pub struct LineView {
    /// The items at the head of a line.
    pub items: Items,
    /// The program's probes, in their order.
    pub probes: Arc<[LineProbe]>,
    /// The functions at addresses, if known.
    pub functions: Option<Arc<dyn Functions>>,
}

impl LineView {
    /// The items at the head of a line, unless others are asked for.
    pub const ITEMS: Items = Items::TSC.with(Items::PROCNAME).with(Items::PID);

    /// A view of a program whose probes are not known yet.
    pub fn new(items: Items, functions: Option<Arc<dyn Functions>>) -> LineView {
        LineView { items, probes: Arc::default(), functions }
    }
}

/// Whether colours are wanted on a terminal, by the convention of <https://no-color.org>.
pub fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours of a line's parts, for a terminal.
const DIM: &[u8] = b"\x1b[2m";
const BOLD: &[u8] = b"\x1b[36m";
const PLAIN: &[u8] = b"\x1b[0m";

/// Writes records as lines.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    view: LineView,
    colour: bool,
    /// Columns of the widest thread and probe so far.
    widths: (usize, usize),
}

impl Line {
    pub(crate) fn new(view: LineView) -> Line {
        Line { view, colour: false, widths: (NARROWEST, 0) }
    }

    /// Sets whether lines are coloured.
    pub(crate) fn set_colour(&mut self, colour: bool) {
        self.colour = colour;
    }

    /// Changes the program whose records follow.
    pub(crate) fn set_probes(&mut self, items: Items, probes: &Arc<[LineProbe]>) {
        self.view.items = items;
        self.view.probes = Arc::clone(probes);
    }

    /// Appends a record as a line.
    pub(crate) fn append(&mut self, record: &Record, out: &mut Vec<u8>) {
        let items = self.view.items;
        if items.contains(Items::TSC) {
            self.paint(DIM, out);
            time(record.time, out);
            self.paint(PLAIN, out);
            out.push(b' ');
        }
        if items.contains(Items::PID) || items.contains(Items::PROCNAME) {
            let start = out.len();
            thread(record, items, out);
            self.widths.0 = pad(start, self.widths.0, out);
            out.push(b' ');
        }
        if items.contains(Items::CPU) {
            out.extend_from_slice(b"cpu=");
            decimal(record.cpu, out);
            out.push(b' ');
        }
        if items.contains(Items::UID) {
            out.extend_from_slice(b"uid=");
            decimal(record.uid, out);
            out.push(b' ');
        }
        self.paint(BOLD, out);
        let start = out.len();
        let probe = self.view.probes.get(record.probe as usize);
        self.name(probe, record, out);
        let width = pad(start, if record.data.is_empty() { 0 } else { self.widths.1 }, out);
        self.widths.1 = self.widths.1.max(width);
        self.paint(PLAIN, out);
        if items.contains(Items::CSEIP) {
            out.extend_from_slice(b" cs=");
            short(record.cs.into(), out);
            out.extend_from_slice(b" eip=");
            hexadecimal(record.eip, record.word, out);
        }
        if items.contains(Items::SSESP) {
            out.extend_from_slice(b" ss=");
            short(record.ss.into(), out);
            out.extend_from_slice(b" esp=");
            hexadecimal(record.esp, record.word, out);
        }
        let functions = self.view.functions.as_deref();
        let unknown = LoggedForms::UNKNOWN;
        let logged = probe.map_or(&unknown, |probe| &probe.logged);
        value::append(&logged.decode(&record.data, record.word), record, functions, out);
        while out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }

    fn paint(&self, colour: &[u8], out: &mut Vec<u8>) {
        if self.colour {
            out.extend_from_slice(colour);
        }
    }

    /// Appends the name of the probe that was hit.
    fn name(&self, probe: Option<&LineProbe>, record: &Record, out: &mut Vec<u8>) {
        let codes = (record.major, record.minor);
        match probe {
            None => code(codes, out),
            Some(probe) => {
                let is_asked = probe.is_spread || probe.is_return();
                let functions = self.view.functions.as_ref().filter(|_| is_asked);
                match functions.and_then(|functions| functions.at(record.pid, record.eip)) {
                    Some(function) if probe.is_spread => spread(probe, &function, out),
                    hit => named(probe, hit.as_ref(), out),
                }
                // A handler may set other codes, which then say what the record is.
                if probe.codes != codes {
                    code(codes, out);
                }
            }
        }
    }
}

/// Appends codes.
fn code((major, minor): (u32, u32), out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "({major},{minor})");
}

/// Appends the name of a probe as its program writes it; of one at returns with the place that
/// was hit. That is not in the function's own bytes if it is in a part that the compiler has put
/// elsewhere, or in an end shared with another function; or the function has another name, too.
fn named(probe: &LineProbe, hit: Option<&Function>, out: &mut Vec<u8>) {
    let function = probe.point.strip_suffix(":return").unwrap_or(&probe.point).trim_matches('"');
    // Names of C++ may be given without their parameters.
    let is_own = |name: &str| name == function || name.split('(').next() == Some(function);
    let place = match hit {
        None => String::new(),
        Some(hit) if is_own(&hit.name) => format!("+{:#x}", hit.offset),
        Some(hit) => format!(" <{}+{:#x}>", hit.name, hit.offset),
    };
    let name = format!("{}:{}{place}", probe.module, probe.point);
    out.extend_from_slice(printable::text(&name).as_bytes());
}

/// Appends the name of a probe with several sites: with the function that was hit.
fn spread(probe: &LineProbe, function: &Function, out: &mut Vec<u8>) {
    let module = match probe.module.contains(['*', '?', '[']) || probe.module.is_empty() {
        true => &function.module,
        false => &probe.module,
    };
    let point = match probe.point.rsplit_once(':') {
        Some((_, "entry")) => ":entry".to_owned(),
        Some((_, "return")) => format!(":return+{:#x}", function.offset),
        _ if function.offset == 0 => String::new(),
        _ => format!("+{:#x}", function.offset),
    };
    let name = format!("{module}:{}{point}", function.name);
    out.extend_from_slice(printable::text(&name).as_bytes());
}

/// Appends the name and the numbers of a thread.
fn thread(record: &Record, items: Items, out: &mut Vec<u8>) {
    if items.contains(Items::PROCNAME) {
        out.extend_from_slice(printable::text(&record.name).as_bytes());
    }
    if items.contains(Items::PID) {
        out.push(b'[');
        decimal(record.pid, out);
        // A record of an old trace may have no thread.
        if record.tid != record.pid && record.tid != 0 {
            out.push(b':');
            decimal(record.tid, out);
        }
        out.push(b']');
    }
}

/// Pads what was appended since `start` to a width, and returns the greater of the two, up to
/// [`WIDEST`].
fn pad(start: usize, width: usize, out: &mut Vec<u8>) -> usize {
    let columns = String::from_utf8_lossy(&out[start..]).chars().count();
    out.resize(out.len() + width.saturating_sub(columns), b' ');
    width.max(columns.min(WIDEST))
}

/// Appends a time since 1970, in nanoseconds, as a time of day in UTC.
fn time(time: u64, out: &mut Vec<u8>) {
    let day = time / 1_000_000_000 % 86_400;
    let micros = time % 1_000_000_000 / 1000;
    let mut text = *b"00:00:00.000000";
    let mut put = |at: usize, digits: usize, mut value: u64| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0, 2, day / 3600);
    put(3, 2, day / 60 % 60);
    put(6, 2, day % 60);
    put(9, 6, micros);
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests;
