//! What a session keeps: the tracer, the outputs of the inserted programs, the refused processes.
//!
//! Finds new processes for the programs, and removes programs: their last records are written and
//! their outputs ended.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use engine::{Inserted, Tracer, Variables};

use super::in_kernel::{Event, KernelPrograms};
use super::metrics::Metrics;
use super::observer::Shared;
use super::refused::{self, Refused};
use super::scan::{self, Scanner};
use super::socket::Home;
use crate::control::Watch;
use crate::hooks::{Events, Plugins};

/// How long to wait for the last records of a removed program.
const COMPLETION: Duration = Duration::from_millis(300);

/// What a session keeps.
pub(super) struct Session<'a> {
    pub(super) tracer: Tracer<'a>,
    pub(super) watch: Watch,
    pub(super) sinks: Shared,
    /// The programs, as shown to the hooks.
    pub(super) events: Events,
    pub(super) plugins: Plugins,
    pub(super) scanner: Scanner,
    pub(super) refused: Refused,
    pub(super) home: Home,
    /// The programs that the kernel runs.
    pub(super) kernel: KernelPrograms,
    /// What clients ask, and what the threads of those programs say.
    pub(super) requests: Receiver<Event>,
    /// The metrics that are exported.
    pub(super) metrics: Option<Metrics>,
    pub(super) over: bool,
}

impl Session<'_> {
    /// The numbers of the programs of a module, or of all.
    pub(super) fn programs(&self, name: Option<&str>) -> Vec<usize> {
        let inserted = self.inserted().into_iter();
        inserted
            .filter(|program| name.is_none_or(|name| program.object.module == name))
            .map(|program| program.number)
            .collect()
    }

    /// The inserted programs, the latest first.
    pub(super) fn inserted(&self) -> Vec<Inserted<'_>> {
        let mut all = self.tracer.inserted();
        all.extend(self.kernel.inserted());
        all.sort_by_key(|program| Reverse(program.number));
        all
    }

    /// Takes a program out of processes.
    pub(super) fn take_out(&mut self, number: usize) {
        self.tracer.remove(number);
        // Earlier records are written before the program's targets are closed.
        let control = Arc::clone(&self.watch.control);
        self.tracer.complete(&control, COMPLETION);
        self.end_sink(number);
        self.refused.forget(number);
        self.tracer.forget(number);
    }

    /// Ends the output of a program; a store gets the counts.
    pub(super) fn end_sink(&mut self, number: usize) {
        let globals = match self.kernel.has(number) {
            true => self.kernel.global_values(),
            false => {
                let globals = self.tracer.values(Variables::Global, 0..=usize::MAX);
                globals.into_iter().map(|(_, value)| value).collect()
            }
        };
        let mut sinks = self.sinks.0.borrow_mut();
        if let Some(program) = self.kernel.program(number).or_else(|| self.tracer.program(number)) {
            let counts: Vec<_> = program.probes.iter().map(|&(_, state, counts)| (state, counts)).collect();
            sinks.targets.each_of(number, |open| open.ended(number as u32, &counts, &program.locals));
        }
        sinks.forget(number, &globals);
        drop(sinks);
        self.events.destroy(number);
    }

    /// Ends the outputs of all programs; none has a probe in a process any more.
    pub(super) fn end_sinks(&mut self) {
        for number in self.programs(None) {
            self.end_sink(number);
        }
    }

    /// Detaches from processes that have no probe left.
    pub(super) fn let_go_unprobed(&mut self) {
        let control = Arc::clone(&self.watch.control);
        self.tracer.let_go_unprobed(&control);
    }

    /// Follows the user's processes that map a probed module and are not followed yet, except those
    /// that no inserted program has a version for.
    pub(super) fn look_for_processes(&mut self) {
        if !self.tracer.serves_all() {
            return;
        }
        for pid in self.scanner.due(&self.tracer.followed()) {
            let inserted = self.tracer.inserted();
            let wanted = inserted
                .iter()
                .filter(|program| program.probes.iter().any(|(_, state, _)| !state.is_over()))
                .filter(|program| program.is_for_all && scan::maps_module(pid, &program.object.module));
            let reasons: Vec<_> =
                wanted.map(|program| (program.number, refused::reason(program.versions, pid))).collect();
            let is_wanted = reasons.iter().any(|(_, reason)| reason.is_none());
            for (number, reason) in reasons {
                if let Some(reason) = reason {
                    self.refused.note(number, pid, reason);
                }
            }
            if !is_wanted {
                continue;
            }
            match self.tracer.attach(pid) {
                Ok(()) => {}
                Err(engine::Error::Process(error)) if error.is_gone() => {}
                Err(error) => self.sinks.0.borrow_mut().tell(&format!("warning: {error}")),
            }
        }
    }
}
