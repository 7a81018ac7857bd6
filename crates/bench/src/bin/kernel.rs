//! Measures what hits of the kernel engine cost, beside other tracers that use the same events of
//! the kernel: uprobes, tracepoints, hardware breakpoints.
//!
//!     cargo run --release -p dprobes-bench --bin kernel -- [REPETITIONS] [--dprobes COMMAND]
//!
//! Builds the release `dprobes` (or takes the named command) and crates/bench/subject/kernel.c.
//! Each repetition runs it unprobed and under each tracer in turn; tracers that are not installed
//! are left out. Prints the median, least and most nanoseconds of a hit over the unprobed call, the
//! ratio to dprobes, and the hits that a tracer has counted or written of those that were made: a
//! tracer that loses hits is fast. Needs root.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use dprobes_bench::cleanup::{self, Started};
use dprobes_bench::{Beside, Figures, Worker, build, other, status, wait};
use nix::sys::signal::Signal;

/// How long a tracer may take to begin or to end.
const RUN_TIME_OUT: Duration = Duration::from_secs(120);

/// Measures what hits of the kernel engine cost, beside other tracers.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  kernel                                      five times
  kernel 3 --dprobes target/release/dprobes   a command that is built already
  kernel 1 --only watch                       the rows whose names have this word")]
struct Options {
    #[command(flatten)]
    beside: Beside,
}

/// What the subject does, and how it is traced.
struct Row {
    name: &'static str,
    kind: &'static str,
    threads: u64,
    /// Calls of each thread.
    times: u64,
    tracers: &'static [Tracer],
}

impl Row {
    /// The subject's arguments.
    fn words(&self) -> [String; 3] {
        [self.kind.to_owned(), self.threads.to_string(), self.times.to_string()]
    }
}

/// How a tracer's command is made, and how its hits are counted.
#[derive(Clone, Copy)]
struct Tracer {
    name: &'static str,
    program: &'static str,
    /// Its arguments. `SUBJECT`, `PID`, `ADDRESS` and `OUT` stand for what they say.
    arguments: &'static [&'static str],
    /// What it writes, to either output, once it traces.
    ready: &'static str,
    hits: Hits,
}

/// Where a tracer tells how many hits it has seen.
#[derive(Clone, Copy)]
enum Hits {
    /// The member `hits` in the file OUT.json, less what was dropped.
    Stats,
    /// The line that begins so in its output.
    Line(&'static str),
    /// The lines of its output that contain this.
    Lines(&'static str),
    /// It does not tell.
    Unknown,
}

const DPROBES: &str = "dprobes";
const BPFTRACE: &str = "bpftrace";

const COUNT: &[Tracer] = &[
    Tracer {
        name: "dprobes",
        program: DPROBES,
        arguments: &["attach", "--at", "SUBJECT:called:entry", "--do", "abort", "--stats", "OUT.json"],
        ready: " armed in ",
        hits: Hits::Stats,
    },
    Tracer {
        name: "bpftrace",
        program: BPFTRACE,
        arguments: &["-e", "BEGIN { printf(\"ready\\n\"); } uprobe:SUBJECT:called { @ = count(); }"],
        ready: "ready",
        hits: Hits::Line("@: "),
    },
];

const LOG: &[Tracer] = &[
    Tracer {
        name: "dprobes",
        program: DPROBES,
        arguments: &[
            "attach",
            "--at",
            "SUBJECT:called:entry",
            "--do",
            "push arg, 0; push arg, 1; log 2",
            "-o",
            "OUT.dpt",
            "--stats",
            "OUT.json",
        ],
        ready: " armed in ",
        hits: Hits::Stats,
    },
    Tracer {
        name: "bpftrace printf",
        program: BPFTRACE,
        arguments: &[
            "-e",
            "BEGIN { printf(\"ready\\n\"); } uprobe:SUBJECT:called { printf(\"hit %d %d\\n\", arg0, arg1); }",
        ],
        ready: "ready",
        hits: Hits::Lines("hit "),
    },
];

const TRACEPOINT: &[Tracer] = &[
    Tracer {
        name: "dprobes",
        program: DPROBES,
        arguments: &["attach", "OUT.rpn", "--stats", "OUT.json"],
        ready: " armed in ",
        hits: Hits::Stats,
    },
    Tracer {
        name: "bpftrace",
        program: BPFTRACE,
        arguments: &[
            "-e",
            "BEGIN { printf(\"ready\\n\"); } tracepoint:syscalls:sys_enter_getppid { @ = count(); }",
        ],
        ready: "ready",
        hits: Hits::Line("@: "),
    },
];

/// The program for the tracepoint.
const TRACEPOINT_PROGRAM: &str =
    "name = vmlinux\nmodtype = kernel\ntracepoint = syscalls:sys_enter_getppid\n    abort\n";

const WATCH: &[Tracer] = &[
    Tracer {
        name: "dprobes",
        program: DPROBES,
        arguments: &["watch", "-p", "PID", "counter", "-o", "OUT.txt", "--stats", "OUT.json"],
        ready: "watching ",
        hits: Hits::Stats,
    },
    Tracer {
        name: "perf record",
        program: "perf",
        arguments: &["record", "-e", "mem:ADDRESS/8:w", "-c", "1", "-p", "PID", "-o", "OUT.data"],
        ready: "",
        hits: Hits::Unknown,
    },
    Tracer {
        name: "gdb",
        program: "gdb",
        arguments: &[
            "-q",
            "-batch",
            "-nx",
            "-iex",
            "set debuginfod enabled off",
            "-ex",
            "attach PID",
            "-ex",
            "watch counter",
            "-ex",
            "python gdb.events.stop.connect(lambda event: gdb.write('hit\\n'))",
            "-ex",
            "echo ready\\n",
            "-ex",
            "python\nwhile gdb.selected_thread() and gdb.selected_thread().is_valid(): gdb.execute('continue')",
        ],
        ready: "ready",
        hits: Hits::Lines("hit"),
    },
];

const ROWS: &[Row] = &[
    Row { name: "uprobe, count", kind: "call", threads: 1, times: 1_000_000, tracers: COUNT },
    Row { name: "uprobe, count, 8 threads", kind: "call", threads: 8, times: 200_000, tracers: COUNT },
    Row { name: "uprobe, log of two", kind: "call", threads: 1, times: 200_000, tracers: LOG },
    Row { name: "uprobe, log of two, 8 threads", kind: "call", threads: 8, times: 50_000, tracers: LOG },
    Row { name: "tracepoint, count", kind: "syscall", threads: 1, times: 1_000_000, tracers: TRACEPOINT },
    Row { name: "watch, 8 threads", kind: "write", threads: 8, times: 500, tracers: WATCH },
];

/// The files of a run.
struct RunFiles {
    subject: PathBuf,
    dprobes: PathBuf,
    /// The beginning of the paths of a tracer's files.
    out: PathBuf,
    /// The variable that is watched, in the subject, which is not position-independent.
    address: String,
}

impl RunFiles {
    fn file(&self, suffix: &str) -> PathBuf {
        PathBuf::from(format!("{}{suffix}", self.out.display()))
    }

    /// Runs a tracer on the subject. Returns the nanoseconds of a call, and the hits it tells of.
    fn measure(&self, row: &Row, tracer: &Tracer) -> io::Result<(f64, Option<u64>)> {
        let mut subject = Worker::start(&self.subject, &row.words())?;
        let words = tracer.arguments.iter().map(|word| {
            word.replace("SUBJECT", &self.subject.display().to_string())
                .replace("PID", &subject.pid().to_string())
                .replace("ADDRESS", &self.address)
                .replace("OUT", &self.out.display().to_string())
        });
        let program = if tracer.program == DPROBES { &self.dprobes } else { Path::new(tracer.program) };
        let said = self.file(".said");
        let file = std::fs::File::create(&said)?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut traced = Started::gently(command.spawn()?);
        self.wait_until_ready(&mut traced, tracer, &said)?;
        let nanoseconds = subject.go()?;
        traced.signal(Signal::SIGINT);
        wait(traced.child(), RUN_TIME_OUT)?;
        let told = std::fs::read_to_string(&said)?;
        let hits = match tracer.hits {
            Hits::Stats => Some(self.seen_by_stats()?),
            Hits::Line(begin) => told.lines().find_map(|line| line.strip_prefix(begin)?.trim().parse().ok()),
            Hits::Lines(what) => Some(told.lines().filter(|line| line.contains(what)).count() as u64),
            Hits::Unknown => None,
        };
        Ok((nanoseconds, hits))
    }

    fn wait_until_ready(&self, traced: &mut Started, tracer: &Tracer, said: &Path) -> io::Result<()> {
        let begin = Instant::now();
        if tracer.ready.is_empty() {
            std::thread::sleep(Duration::from_secs(1));
            return Ok(());
        }
        while !std::fs::read_to_string(said)?.contains(tracer.ready) {
            let ended = traced.child().try_wait()?.is_some();
            if ended || begin.elapsed() > RUN_TIME_OUT {
                let text = std::fs::read_to_string(said)?;
                return Err(other(format!("{} does not begin: {text}", tracer.name)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The hits of all probes less what was dropped, by the statistics.
    fn seen_by_stats(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(self.file(".json"))?;
        let stats: serde_json::Value = serde_json::from_str(&text)?;
        let probes = stats["probes"].as_array().ok_or_else(|| other("no statistics"))?;
        let sum = |member: &str| probes.iter().filter_map(|probe| probe[member].as_u64()).sum::<u64>();
        Ok(sum("runs").saturating_sub(sum("dropped")))
    }
}

fn prepare(dprobes: Option<&Path>) -> io::Result<RunFiles> {
    let dprobes = build::given(dprobes, true)?;
    let directory = build::target(!cfg!(debug_assertions))?.join("bench-kernel");
    std::fs::create_dir_all(&directory)?;
    let subject = directory.join("kernel");
    let source = build::repository().join("crates/bench/subject/kernel.c");
    build::c_program(&[source], &["-O2", "-g", "-no-pie"], &["-lpthread"], &subject)?;
    let symbols = Command::new("nm").arg(&subject).output()?;
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let counter = symbols.lines().find(|line| line.ends_with(" counter"));
    let address = counter.and_then(|line| line.split(' ').next()).map(|word| format!("0x{word}"));
    let place = RunFiles {
        subject: subject.canonicalize()?,
        dprobes,
        out: directory.join("out"),
        address: address.ok_or_else(|| other("the subject has no `counter`"))?,
    };
    std::fs::write(place.file(".rpn"), TRACEPOINT_PROGRAM)?;
    Ok(place)
}

fn bench() -> io::Result<bool> {
    let Beside { repetitions, dprobes, only } = Options::parse().beside;
    cleanup::on_signals()?;
    let place = prepare(dprobes.as_deref())?;
    let mut right = true;
    println!("nanoseconds of a hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:46} {:>9} {:>9} {:>9} {:>6} {:>20}", "", "median", "min", "max", "ratio", "seen of made");
    for row in ROWS.iter().filter(|row| row.name.contains(&only)) {
        let installed =
            |tracer: &&Tracer| tracer.program == DPROBES || testing::find_program(tracer.program).is_some();
        let tracers: Vec<&Tracer> = row.tracers.iter().filter(installed).collect();
        let mut figures = vec![Figures::default(); tracers.len()];
        let mut seen = vec![Some(0u64); tracers.len()];
        for _ in 0..repetitions {
            let unprobed = Worker::start(&place.subject, &row.words())?.go()?;
            for ((tracer, figures), seen) in tracers.iter().zip(&mut figures).zip(&mut seen) {
                let (nanoseconds, hits) = place.measure(row, tracer)?;
                figures.add(nanoseconds - unprobed);
                *seen = seen.zip(hits).map(|(before, hits)| before + hits);
            }
        }
        let made = row.threads * row.times * repetitions;
        let own = figures.first().map_or(0.0, Figures::median);
        for ((tracer, each), seen) in tracers.iter().zip(&figures).zip(&seen) {
            let name = format!("{}, {}", row.name, tracer.name);
            let told =
                seen.map_or("?".to_owned(), |seen| format!("{:.1} %", seen as f64 * 100.0 / made as f64));
            println!(
                "{name:46} {:>9.0} {:>9.0} {:>9.0} {:>6.2} {told:>20}",
                each.median(),
                each.min(),
                each.max(),
                each.median() / own
            );
            // A count loses nothing.
            right &= tracer.program != DPROBES || !row.name.contains("count") || *seen == Some(made);
        }
    }
    Ok(right)
}

fn main() -> ExitCode {
    status("kernel", bench())
}
