//! The probes and variables of a session as metrics.

use std::io;
use std::time::Duration;

use engine::{Inserted, Variables};
use export::{Answerer, Bound, Builder, Exporters, Family, Kind, Series, Snapshot, Value};

use super::session::Session;
use crate::Failure;
use crate::arguments::Export;
use crate::messages::tell;
use crate::scripts::now;

/// The metrics of a session.
#[derive(Debug)]
pub(super) struct Metrics {
    answerer: Answerer,
    /// The most series.
    most: usize,
    /// Since when it counts: nanoseconds since 1970.
    start: u64,
    exporters: Exporters,
}

/// What a session exports to, before it begins.
#[derive(Debug)]
pub(super) struct Exports {
    bound: Bound,
    most: usize,
    every: Duration,
}

impl Exports {
    /// Binds what the command line names.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(super) fn bind(export: &Export) -> Result<Exports, Failure> {
        let bound = Bound::new(&export.export).map_err(Failure::new)?;
        Ok(Exports { bound, most: export.export_series, every: export.export_every })
    }

    /// Where each gives, or sends, what it has: a line for each.
    pub(super) fn announcements(&self) -> Vec<String> {
        self.bound.announcements()
    }

    /// Starts the exporters' threads, if there is something to export to.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(self) -> io::Result<Option<Metrics>> {
        let Exports { bound, most, every } = self;
        if bound.is_empty() {
            return Ok(None);
        }
        // The session is interrupted several times a second as it is.
        let (exporters, answerer) = bound.start(every, tell, || {})?;
        Ok(Some(Metrics { answerer, most, start: now(), exporters }))
    }
}

impl Session<'_> {
    /// Gives metrics to who asks for them.
    pub(super) fn export(&mut self) {
        // It is taken out, since the snapshot is of all else.
        let Some(mut metrics) = self.metrics.take() else { return };
        let Metrics { most, start, .. } = metrics;
        metrics.answerer.answer(|| self.snapshot(most, start));
        self.metrics = Some(metrics);
    }

    /// Sends the last values, where they are sent.
    pub(super) fn end_export(&mut self) {
        let Some(Metrics { exporters, most, start, .. }) = self.metrics.take() else { return };
        if exporters.want_last() {
            exporters.end(self.snapshot(most, start));
        }
    }

    fn snapshot(&self, most: usize, start: u64) -> Snapshot {
        let inserted = self.inserted();
        let mut builder = Builder::new(most);
        let mut gauge = |name: &str, help: &str, value: usize| {
            let series = vec![Series { labels: Vec::new(), value: Value::Number(value as i128) }];
            builder.add(Family { name: name.to_owned(), help: help.to_owned(), kind: Kind::Gauge, series });
        };
        gauge("dprobes_programs", "Programs that are inserted.", inserted.len());
        gauge("dprobes_processes", "Processes that are probed.", self.tracer.followed().len());
        probes(&inserted, &mut builder);
        let globals = self.tracer.values(Variables::Global, 0..=usize::MAX);
        let global = globals.into_iter().map(|(index, value)| variable(None, "global", index, value));
        let in_kernel = self.kernel.global_values().into_iter().enumerate();
        let in_kernel = in_kernel.map(|(index, value)| variable(None, "global in the kernel", index, value));
        let locals = inserted.iter().flat_map(|program| {
            let of = move |(index, &value): (usize, &u64)| variable(Some(program), "local", index, value);
            program.locals.iter().enumerate().map(of)
        });
        builder.add(Family {
            name: "dprobes_variable".to_owned(),
            help: "Variables of programs, and those that all share.".to_owned(),
            kind: Kind::Gauge,
            series: locals.chain(global).chain(in_kernel).collect(),
        });
        builder.finish(start, now())
    }
}

/// Which of a probe's counts a metric has.
type Count = fn(&engine::Counts) -> u64;

/// Adds the counts of all probes.
fn probes(inserted: &[Inserted<'_>], builder: &mut Builder) {
    let counts: [(&str, &str, Count); 6] = [
        ("hits", "Times that a probe was reached.", |counts| counts.hits),
        ("runs", "Times that a probe's handler ran.", |counts| counts.runs),
        ("ignored", "Hits that were passed over as the program says.", |counts| counts.ignored),
        ("missed", "Hits whose handler could not run.", |counts| counts.missed),
        ("logged", "Records that were made.", |counts| counts.logged),
        ("lost", "Records that were made and lost.", |counts| counts.dropped),
    ];
    for (name, help, count) in counts {
        let series = inserted.iter().flat_map(|program| {
            program.probes.iter().zip(&program.object.probes).map(move |((_, _, counts), probe)| {
                let mut labels = of_program(program);
                labels.push(("point".to_owned(), probe.point.clone()));
                labels.push(("major".to_owned(), program.object.major.to_string()));
                labels.push(("minor".to_owned(), probe.minor.to_string()));
                Series { labels, value: Value::Number(count(counts).into()) }
            })
        });
        let (name, help) = (format!("dprobes_probe_{name}"), help.to_owned());
        builder.add(Family { name, help, kind: Kind::Counter, series: series.collect() });
    }
}

/// The labels that say which program.
fn of_program(program: &Inserted<'_>) -> Vec<(String, String)> {
    let module = ("module".to_owned(), program.object.module.clone());
    vec![module, ("program".to_owned(), program.number.to_string())]
}

/// A local variable of a program, or a global one.
fn variable(program: Option<&Inserted<'_>>, scope: &str, index: usize, value: u64) -> Series {
    let mut labels = program.map(of_program).unwrap_or_default();
    labels.push(("scope".to_owned(), scope.to_owned()));
    labels.push(("index".to_owned(), index.to_string()));
    Series { labels, value: Value::Number(value.into()) }
}
