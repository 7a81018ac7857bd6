//! The rows of the table: dprobes' own with their bars, the floors (hand-written trampolines), and
//! the peers.

use super::ours::{Dprobes, Task};
use super::subject::{Program, Shape};
use super::tools::{Bpftrace, Frida, Gdb, Lttng, Uftrace};
use super::tracer::Tracer;
use super::uprobe::{Counted, Logged};
use std::io;
use std::path::{Path, PathBuf};

/// The bar of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At most this wall clock time per hit, in nanoseconds.
    Wall(f64),
    /// At most this processor time per hit, in nanoseconds.
    Processor(f64),
    /// No record lost at this rate of records per second or more.
    Sustained(f64),
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The subject's function.
    pub function: &'static str,
    /// How it is called.
    pub shape: Shape,
    /// Its bar, if any.
    pub bar: Option<Bar>,
    /// The most calls per repetition and thread.
    pub calls: u64,
    /// The approximate duration of a repetition, in seconds.
    pub seconds: f64,
    /// The tracer; `None` for a floor.
    pub(super) tracer: Option<Box<dyn Tracer>>,
    /// Whether the tracer only counts, so that losses show as missing counts.
    pub counts: bool,
}

/// The environment of the measurement.
#[derive(Debug)]
pub struct Setting {
    /// The command `dprobes`.
    pub dprobes: PathBuf,
    /// The engine to use.
    pub engine: String,
    /// A directory for files.
    pub directory: PathBuf,
    /// The subject.
    pub program: Program,
    /// Why uprobes are unavailable, if they are.
    pub no_uprobes: Option<String>,
}

/// Nanoseconds between two records at two million per second.
const SUSTAINED: u64 = 500;

impl Row {
    /// Whether its tracer is dprobes.
    pub fn is_ours(&self) -> bool {
        self.tracer.as_ref().is_some_and(|tracer| tracer.is_ours())
    }

    fn new(name: &str, function: &'static str, tracer: Option<Box<dyn Tracer>>) -> Row {
        Row {
            name: name.to_owned(),
            function,
            shape: Shape::flat(1),
            bar: None,
            calls: 20_000_000,
            seconds: 0.4,
            tracer,
            counts: true,
        }
    }

    fn logs(mut self) -> Row {
        self.calls = self.calls.min(1_000_000);
        self.counts = false;
        self
    }
}

/// dprobes' rows.
fn ours(setting: &Setting) -> Vec<Row> {
    let ours = |name: &str, function, task| {
        let tracer = Dprobes { command: setting.dprobes.clone(), engine: setting.engine.clone(), task };
        Row::new(&format!("dprobes: {name}"), function, Some(Box::new(tracer)))
    };
    // Half a ring of records, then time for the reader: this measures the ring alone.
    let bursts = Shape { threads: 1, gap: 0, burst: 10_000, pause: 20_000 };
    let all = Shape::flat(8);
    let paced = Shape { threads: 1, gap: SUSTAINED, burst: 0, pause: 0 };
    let rate = 1e9 / SUSTAINED as f64;
    vec![
        Row { bar: Some(Bar::Wall(5.0)), ..ours("count", "work", Task::Count) },
        Row { bar: Some(Bar::Wall(5.0)), ..ours("count, entry of 5 bytes", "work_long", Task::Count) },
        Row {
            bar: Some(Bar::Processor(8.0)),
            shape: all,
            calls: 5_000_000,
            ..ours("count, 8 threads", "work", Task::Count)
        },
        Row { bar: Some(Bar::Wall(5.0)), ..ours("condition, false", "work", Task::Condition) },
        Row {
            bar: Some(Bar::Wall(25.0)),
            shape: bursts,
            ..ours("log two arguments", "work", Task::Log).logs()
        },
        Row {
            bar: Some(Bar::Wall(50.0)),
            shape: bursts,
            ..ours("log a string of 16 bytes", "text", Task::LogString).logs()
        },
        Row {
            bar: Some(Bar::Sustained(rate)),
            shape: paced,
            calls: 2 * rate as u64,
            seconds: 2.0,
            counts: false,
            ..ours("log two arguments, 2 million per s", "work", Task::Log)
        },
        ours("log two arguments, unpaced", "work", Task::Log).logs(),
    ]
}

/// The rows of hand-written trampolines.
fn floors() -> Vec<Row> {
    let floor = |name: &str, function| Row::new(&format!("floor: {name}"), function, None);
    let threads = |row: Row| Row {
        name: format!("{}, 8 threads", row.name),
        shape: Shape::flat(8),
        calls: 5_000_000,
        ..row
    };
    let (lock, rseq) = ("count by lock inc", "count per processor (rseq)");
    vec![
        floor("a jump and back", "floor_none"),
        floor("count by plain inc", "floor_plain"),
        floor(lock, "floor_lock"),
        threads(floor(lock, "floor_lock")),
        floor(rseq, "floor_rseq"),
        threads(floor(rseq, "floor_rseq")),
        floor("log two arguments, no reader", "floor_log"),
    ]
}

/// The rows of other installed tracers, and why others are missing.
fn peers(setting: &Setting, wanted: impl Fn(&str) -> bool) -> io::Result<(Vec<Row>, Vec<String>)> {
    let count = |name: &str, tracer: Box<dyn Tracer>| Row::new(name, "work", Some(tracer));
    let log = |name: &str, tracer: Box<dyn Tracer>| Row::new(name, "work", Some(tracer)).logs();
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    let uprobes = setting.no_uprobes.is_none();
    if let Some(why) = &setting.no_uprobes {
        missing.push(format!("tracefs uprobe ({why})"));
    }
    if uprobes {
        rows.push(count("uprobe, perf event: count", Box::new(Counted)));
        let threads =
            Row { shape: Shape::flat(8), ..count("uprobe, perf event: count, 8 threads", Box::new(Counted)) };
        rows.push(threads);
        rows.push(log("uprobe, tracefs: log, read out", Box::new(Logged)));
    }
    match testing::find_program("bpftrace") {
        Some(_) if uprobes => {
            rows.push(count("bpftrace: count", Box::new(Bpftrace { logs: false })));
            rows.push(log("bpftrace: log", Box::new(Bpftrace { logs: true })));
        }
        _ => missing.push("bpftrace (not installed, or no uprobes)".to_owned()),
    }
    match Frida::python() {
        Some(python) => {
            rows.push(count("Frida: count", Box::new(Frida { python: python.clone(), logs: false })));
            rows.push(log("Frida: log, no reader", Box::new(Frida { python, logs: true })));
        }
        None => missing
            .push("Frida (python3 has no module `frida`; FRIDA_PYTHON names another python)".to_owned()),
    }
    match testing::find_program("uftrace") {
        Some(_) => {
            let tracer = Uftrace { program: setting.program.clone(), directory: setting.directory.clone() };
            rows.push(log("uftrace: log, entry and exit", Box::new(tracer)));
        }
        None => missing.push("uftrace (not installed)".to_owned()),
    }
    let lttng = "LTTng-UST: log, static tracepoint";
    // It needs a daemon, which is started only if wanted.
    match if wanted(lttng) { Lttng::new(&setting.directory)? } else { None } {
        Some(tracer) => rows.push(log(lttng, Box::new(tracer))),
        None if !wanted(lttng) => {}
        None => {
            missing.push("LTTng-UST (lttng-tools, liblttng-ust-dev or babeltrace2 not installed)".to_owned())
        }
    }
    match testing::find_program("gdb") {
        Some(_) => rows.push(count("gdb: ignored breakpoint", Box::new(Gdb))),
        None => missing.push("gdb (not installed)".to_owned()),
    }
    Ok((rows, missing))
}

/// All rows whose names contain `only`, and what this machine lacks.
///
/// # Errors
/// If a variant of the subject does not build.
pub fn rows(setting: &Setting, only: &[String]) -> io::Result<(Vec<Row>, Vec<String>)> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|each| name.contains(&**each));
    let (peers, missing) = peers(setting, wanted)?;
    let mut rows = ours(setting);
    rows.extend(floors());
    rows.extend(peers);
    rows.retain(|row| wanted(&row.name));
    Ok((rows, missing))
}

/// Creates a directory for the bench's files.
///
/// # Errors
/// If it cannot be created.
pub fn directory(dprobes: &Path) -> io::Result<PathBuf> {
    let directory = dprobes.parent().unwrap_or(Path::new(".")).join("bench-jump");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}
