//! Takes the records and messages of a script's programs, and runs what is due in dprobes itself.
//!
//! In: records and notes of the engine; timers and signals that are due. Out: what the script
//! prints; its exit status.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{Control, Lost, Note, Observer, Placed};
use printout::{Context, Next, Reader};
use process::Module;
use trace::Record;
use vm::State;

use super::flame;
use super::memory::Memory;
use super::metrics::Metrics;
use super::own;
use super::places::{Own, Places};
use super::timers::{Timers, Waker};
use super::world::World;
use super::writer::Writer;
use crate::control;
use crate::messages::tell;
use crate::output::{Announced, text};

/// How soon a handler of a signal is run.
const SIGNALS: Duration = Duration::from_millis(20);

/// A running script. Its fields are this many since each says one thing that its records, its end
/// or what is due needs.
pub(super) struct Script<'a> {
    pub(super) reader: Reader<'a>,
    /// The file for a flame graph.
    pub(super) flame: Option<&'a Path>,
    pub(super) world: World<'a>,
    pub(super) places: &'a Places,
    pub(super) timers: Timers,
    /// Wakes the reader for what is due.
    pub(super) waker: Option<Waker>,
    pub(super) writer: Writer,
    /// What a record prints.
    pub(super) printed: Vec<u8>,
    /// Ends tracing.
    pub(super) control: Arc<Control>,
    /// Says nothing about the probes.
    pub(super) quiet: bool,
    /// Whether stacks or addresses are shown as symbols: modules are read while processes live.
    pub(super) shows_symbols: bool,
    /// Whether processes are shown by their names: these are read while processes live.
    pub(super) shows_names: bool,
    /// The exit status, once the script has ended itself.
    pub(super) status: Option<u8>,
    /// Events for which there was no room.
    pub(super) lost: u64,
    pub(super) state: Box<State>,
    /// What was said last of each module.
    pub(super) announced: HashMap<PathBuf, Announced>,
    /// The metrics that are exported.
    pub(super) metrics: Option<Metrics>,
}

impl Script<'_> {
    /// How often the tracer has to be woken for what is due.
    pub(super) fn wakes(&self) -> Option<Duration> {
        let signals = (!self.places.signals.is_empty()).then_some(SIGNALS);
        self.timers.shortest().into_iter().chain(signals).min()
    }

    /// Does what is due, when there is nothing else to do.
    pub(super) fn rest(&mut self) {
        self.tick();
        self.world.records.iter_mut().for_each(|records| records.observer().idle());
        self.writer.flush();
    }

    /// Does what a log says.
    fn read(&mut self, context: Context, log: &[u8]) {
        if self.status.is_some() || log.is_empty() {
            return;
        }
        self.printed.clear();
        let next = self.reader.record(context, log, &mut self.printed, &mut self.world);
        if !self.writer.put(&self.printed) {
            self.lost += 1;
        }
        if self.world.allow_unsafe {
            // What `system` prints comes behind.
            self.writer.flush();
        }
        match next {
            Ok(Next::GoOn) => {}
            Ok(Next::Exit(status)) => self.end_with(status),
            Err(error) => tell(&format!("warning: {error}")),
        }
        if self.writer.has_failed() {
            // Nobody reads any more.
            self.end_with(0);
        }
    }

    fn end_with(&mut self, status: u8) {
        self.status.get_or_insert(status);
        self.control.stop.store(true, Ordering::Relaxed);
    }

    /// Runs a handler in dprobes itself.
    fn run(&mut self, own: Own) {
        let Some(memory) = self.world.memory.get().cloned() else { return };
        if let Some(records) = &mut self.world.records {
            records.own(self.places.own_probe(own));
        }
        let log = own::run(self.world.compiled, &memory, own, &mut self.state);
        let context =
            Context { pid: std::process::id(), tid: std::process::id(), time: memory.time(vm::Clock::Boot) };
        self.read(context, &log);
    }

    /// Runs `begin`, when there is memory for the maps.
    pub(super) fn begin(&mut self, memory: Memory) {
        let _ = self.world.memory.set(memory);
        self.places.begin.iter().for_each(|&own| self.run(own));
    }

    /// Runs what is due, and gives metrics to who asks for them.
    pub(super) fn tick(&mut self) {
        if !self.timers.is_empty() {
            self.timers.due(Instant::now()).into_iter().for_each(|own| self.run(own));
        }
        for &(signal, own) in &self.places.signals {
            (0..control::came(signal)).for_each(|_| self.run(own));
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.answer(&self.reader, &mut self.world, self.lost);
        }
    }

    /// Runs `end`, and prints all maps. Returns the exit status that the script has set.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn end(mut self) -> io::Result<Option<u8>> {
        let status = self.status.take();
        drop(self.waker.take());
        // `end` may clear the maps.
        if let Some(metrics) = self.metrics.take() {
            metrics.end(&self.reader, &mut self.world, self.lost);
        }
        self.places.end.iter().for_each(|&own| self.run(own));
        let targets = self.world.records.take().map_or(0, |mut records| records.end());
        self.lost += targets.max(self.world.untaken);
        let mut bytes = Vec::new();
        if self.lost > 0 {
            let told = self.reader.lost(self.lost, &mut bytes, &mut self.world);
            told.unwrap_or_else(|error| tell(&format!("warning: {error}")));
        }
        let printed = self.reader.end(&mut bytes, &mut self.world);
        printed.unwrap_or_else(|error| tell(&format!("warning: {error}")));
        self.writer.put(&bytes);
        let drawn = match (self.flame, self.reader.flame()) {
            (Some(path), Some(stacks)) => flame::write(path, &stacks),
            _ => Ok(()),
        };
        self.tell_full_maps();
        let result = self.writer.finish();
        result.and(drawn).map(|()| status.or(self.status))
    }

    /// Ends without anything of it: nothing could be probed.
    ///
    /// # Errors
    /// What `begin` printed cannot be written.
    pub(super) fn abandon(self) -> io::Result<Option<u8>> {
        self.writer.finish().map(|()| None)
    }

    /// Says which maps had no room.
    fn tell_full_maps(&self) {
        let Some(memory) = self.world.memory.get() else { return };
        for (index, map) in self.world.compiled.maps.iter().enumerate() {
            let (lost, evicted) = (memory.maps().lost(index), memory.maps().evicted(index));
            if evicted > 0 {
                let (name, entries) = (&map.name, map.info.entries);
                tell(&format!(
                    "note: @{name} dropped {evicted} entries that were not used for long, to stay below {entries}"
                ));
            }
            if lost > 0 {
                // A map may be called `@` alone.
                let name = match map.info.kind == maps::Kind::Stacks as u32 {
                    true => "the map of stacks".to_owned(),
                    false => format!("@{}", map.name),
                };
                tell(&format!(
                    "warning: {name} was full {lost} times; `max_map_keys` in `config` sets how many entries a map has"
                ));
            }
        }
    }
}

/// The script as the tracer's observer.
pub(super) struct SharedScript<'a>(pub(super) Rc<RefCell<Script<'a>>>);

impl Observer for SharedScript<'_> {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        let mut script = self.0.borrow_mut();
        script.tick();
        if let Some(records) = &mut script.world.records {
            records.hit(program, record);
        }
        if script.shows_symbols {
            script.world.symbols.look(record.pid);
        }
        if script.shows_names {
            script.world.names.look(record.pid);
        }
        script.read(Context { pid: record.pid, tid: record.tid, time: record.time }, &record.data);
        Ok(())
    }

    fn mapped(&mut self, pid: i32, modules: &[Module]) {
        let mut script = self.0.borrow_mut();
        if script.shows_symbols {
            script.world.symbols.learn(pid as u32, modules);
        }
        if script.shows_names {
            script.world.names.learn(pid as u32);
        }
        script.world.records.iter_mut().for_each(|records| records.mapped(pid, modules));
    }

    fn runs(&mut self, pid: i32) {
        let mut script = self.0.borrow_mut();
        if script.shows_symbols {
            script.world.symbols.look(pid as u32);
        }
    }

    fn forked(&mut self, parent: i32, child: i32) {
        let mut script = self.0.borrow_mut();
        if script.shows_symbols {
            script.world.symbols.inherit(parent as u32, child as u32);
        }
        script.world.records.iter_mut().for_each(|records| records.observer().forked(parent, child));
        if script.shows_names {
            script.world.names.learn(child as u32);
        }
    }

    fn note(&mut self, note: &Note) {
        let mut script = self.0.borrow_mut();
        if let Note::Armed { pid, module, .. } = note {
            if let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) {
                script.world.symbols.look(pid);
            }
            if script.quiet
                || script.announced.insert(module.clone(), Announced::In(*pid)) == Some(Announced::In(*pid))
            {
                return;
            }
        }
        if let Note::Waiting { module, .. } = note
            && script.announced.insert(module.into(), Announced::Waits).is_some()
        {
            // Told once for all processes.
            return;
        }
        tell(&text(note));
    }

    fn begun(&mut self) {
        // A signal interrupts the kernel while it checks programs, so it comes only now.
        let mut script = self.0.borrow_mut();
        script.metrics.iter().for_each(Metrics::begun);
        script.world.records.iter_mut().for_each(|records| records.observer().begun());
        if script.waker.is_none() {
            match script.wakes().map(Waker::start).transpose() {
                Ok(waker) => script.waker = waker,
                Err(error) => tell(&format!("warning: {error}")),
            }
        }
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.0.borrow_mut().world.records.iter_mut().for_each(|records| records.placed(placed));
    }

    fn unwatched(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0.borrow_mut().world.unwatched)
    }

    fn wants_placed(&self) -> bool {
        self.0.borrow().world.records.is_some()
    }

    fn lost(&mut self, lost: &Lost) {
        self.0.borrow_mut().world.records.iter_mut().for_each(|records| records.lost(lost));
    }

    fn dropped(&mut self, _: usize, _: usize, count: u64) {
        self.0.borrow_mut().lost += count;
    }

    fn idle(&mut self) {
        self.0.borrow_mut().rest();
    }

    fn is_ready(&mut self) -> bool {
        self.0.borrow().writer.is_ready()
    }

    fn waits(&self) -> bool {
        !self.0.borrow().timers.is_empty()
    }
}
