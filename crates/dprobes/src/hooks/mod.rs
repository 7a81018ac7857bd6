//! The hooks of dprobes itself: the three of a trace daemon (Richard J. Moore, *A Universal Dynamic
//! Trace for Linux and other Operating Systems*, FREENIX 2001, "Generalised Kernel Hook
//! Interface"), and `callk`.
//!
//! In: records and messages for an observer. Out: the same without the records that an exit has
//! taken, to the observer that is wrapped ([`WithHooks`]).
//!
//! The hooks are dormant until a plugin arms an exit; `plugin` loads plugins. [`WithHooks`] wraps
//! the observer that takes records: it passes on what no exit has taken. The targets know nothing
//! of it.

mod callk;
mod plugin;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::rc::Rc;

use engine::{Lost, Note, Observer, Placed};
use hooks::plugin::Event;
use trace::{Items, Record, Records, raw};

pub(crate) use plugin::Plugins;

hooks::declare_hook! {
    /// A program is inserted. `event`: exits may store an event number there; it is 0 before.
    pub(crate) CREATE_EVENT(event: *mut u32, name: *const c_char, format: *const c_char, description: *const c_char)
}

hooks::declare_hook! {
    /// A record of an inserted program is made.
    pub(crate) LOG_EVENT<'a>(event: u32, record: &'a Event)
}

hooks::declare_hook! {
    /// A program is removed. `rc`: an exit's result; 0 is success.
    pub(crate) DESTROY_EVENT(rc: *mut c_int, event: u32)
}

hooks::declare_hook! {
    /// A handler has executed `callk`.
    pub(crate) CALLK(call: *mut hooks::plugin::Callk)
}

/// An inserted program.
#[derive(Clone, Copy, Debug)]
struct Created {
    /// The event number that exits have given it.
    event: u32,
    /// The header items of its records.
    items: Items,
}

/// The inserted programs, by number. The code that inserts and removes programs shares this with
/// the observer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Rc<RefCell<HashMap<usize, Created>>>);

impl Events {
    /// Announces a program that is about to be inserted in a module; `items` are the header items
    /// of its records.
    pub(crate) fn create(&self, program: usize, module: &str, description: &str, items: Items) {
        let mut event = 0;
        // Logged data has no format but bytes.
        let (name, format, description) = (text(module), c"HEX", text(description));
        hooks::hook!(CREATE_EVENT, &raw mut event, name.as_ptr(), format.as_ptr(), description.as_ptr());
        self.0.borrow_mut().insert(program, Created { event, items });
    }

    /// Announces that a program was removed; all its records were made.
    pub(crate) fn destroy(&self, program: usize) {
        let Some(Created { event, .. }) = self.0.borrow_mut().remove(&program) else { return };
        let mut answer: c_int = 0;
        hooks::hook!(DESTROY_EVENT, &raw mut answer, event);
        if answer != 0 {
            crate::messages::tell(&format!("warning: a plugin could not end event {event}: {answer}"));
        }
    }

    /// Announces that all programs were removed.
    pub(crate) fn destroy_all(&self) {
        let mut programs: Vec<usize> = self.0.borrow().keys().copied().collect();
        programs.sort_unstable();
        programs.into_iter().for_each(|program| self.destroy(program));
    }

    fn get(&self, program: usize) -> Created {
        let none = Created { event: 0, items: Items::DEFAULT };
        self.0.borrow().get(&program).copied().unwrap_or(none)
    }
}

/// A C string: the text up to its first NUL, if it has one.
fn text(from: &str) -> CString {
    CString::new(from.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// What the exits did with a record.
#[derive(Debug)]
enum Offered {
    /// No exit has taken it: it is passed on.
    Passed,
    /// An exit has taken it.
    Taken,
    /// An exit has taken it and reports it as lost, with this code.
    Lost(isize),
}

impl hooks::FromCode for Offered {
    fn from_code(code: isize) -> Offered {
        if code == 0 { Offered::Taken } else { Offered::Lost(code) }
    }
}

/// An observer behind the hooks.
#[derive(Debug)]
pub(crate) struct WithHooks<O> {
    /// Takes the records that no exit has taken.
    pub(crate) inner: O,
    /// The inserted programs.
    pub(crate) events: Events,
    /// Buffer for a record's bytes, for exits.
    bytes: Vec<u8>,
}

impl<O> WithHooks<O> {
    /// Puts the hooks before an observer.
    pub(crate) fn new(inner: O) -> WithHooks<O> {
        WithHooks { inner, events: Events::default(), bytes: Vec::new() }
    }

    /// Offers a record to the exits.
    #[inline]
    fn offer(&mut self, program: usize, record: &Record) -> Offered {
        // The arguments are evaluated only if an exit is armed.
        hooks::hook_ret!(LOG_EVENT, self.events.get(program).event, &self.event(program, record));
        Offered::Passed
    }

    /// A record in the form that exits get.
    #[cold]
    fn event(&mut self, program: usize, record: &Record) -> Event {
        let Created { event, items } = self.events.get(program);
        self.bytes.clear();
        raw::write(record, items, &mut self.bytes);
        let (bytes, log) = (&self.bytes, record.data.len());
        Event {
            id: event,
            size: bytes.len() as u32,
            data: bytes.as_ptr(),
            log_size: log as u32,
            word: record.word as u32,
            log: bytes[bytes.len() - log..].as_ptr(),
            major: record.major,
            minor: record.minor,
            pid: record.pid,
            tid: record.tid,
            cpu: record.cpu,
            probe: record.probe,
            time: if items.contains(Items::TSC) { record.time } else { 0 },
        }
    }
}

impl<O: Observer> Observer for WithHooks<O> {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        match self.offer(program, record) {
            Offered::Passed => self.inner.record(program, record),
            Offered::Taken => Ok(()),
            Offered::Lost(code) => Err(io::Error::other(format!("a plugin has lost the record: {code}"))),
        }
    }

    fn records(&mut self, program: usize, records: &mut Records) {
        match LOG_EVENT.is_active() {
            true => records.each(|record| self.record(program, record)),
            false => self.inner.records(program, records),
        }
    }

    fn note(&mut self, note: &Note) {
        self.inner.note(note);
    }

    fn called(&mut self, call: &mut engine::Callk<'_>) {
        let event = self.events.get(call.program).event;
        let mut bridge;
        hooks::hook!(CALLK, {
            bridge = callk::Bridge::new(call, event);
            bridge.show()
        });
    }

    fn begun(&mut self) {
        self.inner.begun();
    }

    fn mapped(&mut self, pid: i32, modules: &[process::Module]) {
        self.inner.mapped(pid, modules);
    }

    fn forked(&mut self, parent: i32, child: i32) {
        self.inner.forked(parent, child);
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.inner.placed(placed);
    }

    fn wants_placed(&self) -> bool {
        self.inner.wants_placed()
    }

    fn lost(&mut self, lost: &Lost) {
        self.inner.lost(lost);
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        self.inner.dropped(program, probe, count);
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn is_ready(&mut self) -> bool {
        self.inner.is_ready()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn wants_counts(&self) -> bool {
        self.inner.wants_counts()
    }

    fn counted(&mut self, report: &engine::Report) {
        self.inner.counted(report);
    }
}
