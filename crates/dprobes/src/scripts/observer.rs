//! Takes the records and messages of a script's programs, and runs what is due in dprobes itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engine::{Control, Note, Observer};
use printout::{Context, Next, Reader};
use process::Module;
use trace::Record;
use vm::State;

use super::memory::Memory;
use super::own;
use super::places::{Own, Places};
use super::timers::{Timers, Waker};
use super::world::World;
use super::writer::Writer;
use crate::messages::tell;
use crate::output::text;

/// A running script.
pub(super) struct Script<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) world: World<'a>,
    pub(super) places: &'a Places,
    pub(super) timers: Timers,
    /// Wakes the reader for what is due.
    pub(super) waker: Option<Waker>,
    pub(super) writer: Writer,
    /// Ends tracing.
    pub(super) control: Arc<Control>,
    /// Says nothing about the probes.
    pub(super) quiet: bool,
    /// Whether stacks or addresses are shown as symbols: modules are read while processes live.
    pub(super) shows_symbols: bool,
    /// The exit status, once the script has ended itself.
    pub(super) status: Option<u8>,
    /// Events for which there was no room.
    pub(super) lost: u64,
    pub(super) state: Box<State>,
    /// The process in which each module was last announced.
    pub(super) announced: HashMap<PathBuf, Option<i32>>,
}

impl Script<'_> {
    /// Does what a log says.
    fn read(&mut self, context: Context, log: &[u8]) {
        if self.status.is_some() || log.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        let next = self.reader.record(context, log, &mut bytes, &mut self.world);
        if !self.writer.put(bytes) {
            self.lost += 1;
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

    /// Runs what is due.
    pub(super) fn tick(&mut self) {
        if !self.timers.is_empty() {
            self.timers.due(Instant::now()).into_iter().for_each(|own| self.run(own));
        }
    }

    /// Runs `end`, and prints all maps. Returns the exit status that the script has set.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn end(mut self) -> io::Result<Option<u8>> {
        let status = self.status.take();
        drop(self.waker.take());
        self.places.end.iter().for_each(|&own| self.run(own));
        let mut bytes = Vec::new();
        if self.lost > 0 {
            let told = self.reader.lost(self.lost, &mut bytes, &mut self.world);
            told.unwrap_or_else(|error| tell(&format!("warning: {error}")));
        }
        let printed = self.reader.end(&mut bytes, &mut self.world);
        printed.unwrap_or_else(|error| tell(&format!("warning: {error}")));
        self.writer.put(bytes);
        self.tell_full_maps();
        let result = self.writer.finish();
        result.map(|()| status.or(self.status))
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
            let lost = memory.maps().lost(index);
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
    fn record(&mut self, _: usize, record: &Record) -> io::Result<()> {
        let mut script = self.0.borrow_mut();
        script.tick();
        if script.shows_symbols {
            script.world.symbols.look(record.pid);
        }
        script.read(Context { pid: record.pid, tid: record.tid, time: record.time }, &record.data);
        Ok(())
    }

    fn mapped(&mut self, pid: i32, modules: &[Module]) {
        let mut script = self.0.borrow_mut();
        if script.shows_symbols {
            script.world.symbols.learn(pid as u32, modules);
        }
    }

    fn forked(&mut self, parent: i32, child: i32) {
        let mut script = self.0.borrow_mut();
        if script.shows_symbols {
            script.world.symbols.inherit(parent as u32, child as u32);
        }
    }

    fn note(&mut self, note: &Note) {
        let mut script = self.0.borrow_mut();
        if let Note::Armed { pid, module, .. } = note {
            if let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) {
                script.world.symbols.look(pid);
            }
            if script.quiet || script.announced.insert(module.clone(), *pid) == Some(*pid) {
                return;
            }
        }
        tell(&text(note));
    }

    fn begun(&mut self) {
        // A signal interrupts the kernel while it checks programs, so it comes only now.
        let mut script = self.0.borrow_mut();
        if script.waker.is_none() {
            match script.timers.shortest().map(Waker::start).transpose() {
                Ok(waker) => script.waker = waker,
                Err(error) => tell(&format!("warning: {error}")),
            }
        }
    }

    fn wants_placed(&self) -> bool {
        false
    }

    fn dropped(&mut self, _: usize, _: usize, count: u64) {
        self.0.borrow_mut().lost += count;
    }

    fn idle(&mut self) {
        self.0.borrow_mut().tick();
    }

    fn is_ready(&mut self) -> bool {
        self.0.borrow().writer.is_ready()
    }

    fn waits(&self) -> bool {
        !self.0.borrow().timers.is_empty()
    }
}
