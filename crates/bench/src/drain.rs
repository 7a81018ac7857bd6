//! Measures how fast records get from a process to a file.
//!
//! A process repeatedly calls a function whose probe logs two arguments; `dprobes attach` writes
//! the records, with process, time and processor, to a file, as text or to a trace store. In the
//! end the file is read back: it must have every record that the tracer reports, in order.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cleanup::Started;
use crate::jump::{self, Program, Shape};
use crate::machine::processor_time;

/// The probed function.
const FUNCTION: &str = "work";

/// One way to run.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Nanoseconds from one call to the next; 0: as fast as possible.
    pub gap: u64,
    /// The number of calling threads.
    pub threads: u32,
    /// The number of calls of all threads.
    pub calls: u64,
    /// Whether to write to a trace store instead of text.
    pub store: bool,
    /// Options of dprobes.
    pub options: Vec<String>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drained {
    /// Hits, as the probe counted them.
    pub hits: u64,
    /// Records in the file.
    pub records: u64,
    /// Records that dprobes reports as dropped, and hits as missed.
    pub lost: u64,
    /// Records per second, while the calls were made.
    pub rate: f64,
    /// Processor time of dprobes per record, in nanoseconds.
    pub reader: f64,
    /// Wall clock time of a call, in nanoseconds.
    pub call: f64,
    /// File size per record, in bytes.
    pub bytes: f64,
}

/// Runs a task.
///
/// # Errors
/// If a process fails, or its report differs from the file.
pub fn drained(dprobes: &Path, directory: &Path, program: &Program, task: &Task) -> io::Result<Drained> {
    let files = Files::new(directory, task.store);
    files.remove()?;
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\nmaxhits = 0xffffffffffffffff\noffset = {FUNCTION}\nminor = 5\n\
         push r, rsi\npush r, rdi\nlog 2\nexit\n",
        program.path().display()
    );
    std::fs::write(&files.program, text)?;
    let mut subject = program.start()?;
    let before = subject.bytes(FUNCTION)?;
    let mut command = Command::new(dprobes);
    command.args(["attach", "--log", "PID,TSC", "-p", &subject.pid().to_string()]);
    command
        .arg("--stats")
        .arg(&files.stats)
        .arg("--log-format=klog")
        .arg("-o")
        .arg(&files.records)
        .args(&task.options);
    command.arg(&files.program).stdin(Stdio::null()).stderr(Stdio::null());
    let used = processor_time();
    let mut started = Started::new(command.spawn()?);
    let began = Instant::now();
    while subject.bytes(FUNCTION)? == before {
        if started.ended()?.is_some() || began.elapsed() > Duration::from_secs(30) {
            return Err(io::Error::other("dprobes does not attach"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The threads continue briefly after the last byte is written.
    std::thread::sleep(Duration::from_millis(50));
    let shape = Shape { threads: task.threads, gap: task.gap, burst: 0, pause: 0 };
    let round = subject.round(FUNCTION, task.calls / u64::from(task.threads), shape)?;
    started.signal(Signal::SIGINT);
    let ending = Instant::now();
    while started.ended()?.is_none() {
        if ending.elapsed() > Duration::from_secs(120) {
            return Err(io::Error::other("dprobes does not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let used = processor_time() - used;
    subject.end()?;
    let stats: Value = serde_json::from_reader(BufReader::new(File::open(&files.stats)?))?;
    let number = |name: &str| stats["probes"][0][name].as_u64().unwrap_or(0);
    let bytes = std::fs::metadata(&files.records)?.len();
    let found = if task.store {
        let mut show = Command::new(dprobes);
        show.args(["show", "--log", "PID,TSC"])
            .arg(&files.records)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut started = Started::new(show.spawn()?);
        let text = started.child().stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        jump::records_of(BufReader::with_capacity(1 << 20, text))?
    } else {
        jump::records_of(BufReader::with_capacity(1 << 20, File::open(&files.records)?))?
    };
    files.remove()?;
    let (hits, logged, lost) = (number("hits"), number("logged"), number("dropped") + number("missed"));
    if hits != round.calls || logged + lost != hits || found.records != logged {
        return Err(io::Error::other(format!(
            "{} calls, {hits} hits, {logged} logged, {lost} lost, {} records in the file",
            round.calls, found.records
        )));
    }
    if task.threads == 1 && found.breaks > lost {
        return Err(io::Error::other(format!("{} records are out of order", found.breaks)));
    }
    let records = found.records.max(1) as f64;
    Ok(Drained {
        hits,
        records: found.records,
        lost,
        rate: found.records as f64 * 1e9 / round.wall.max(1) as f64,
        reader: used.as_nanos() as f64 / records,
        call: round.wall as f64 * f64::from(task.threads) / round.calls.max(1) as f64,
        bytes: bytes as f64 / records,
    })
}

/// The files of a run.
struct Files {
    program: PathBuf,
    stats: PathBuf,
    records: PathBuf,
}

impl Files {
    fn new(directory: &Path, store: bool) -> Files {
        let records = if store { "drain.dpt" } else { "drain.records" };
        let [program, stats, records] =
            ["drain.rpn", "drain.stats", records].map(|name| directory.join(name));
        Files { program, stats, records }
    }

    /// Removes files of an earlier run.
    fn remove(&self) -> io::Result<()> {
        for file in [&self.program, &self.stats, &self.records] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
