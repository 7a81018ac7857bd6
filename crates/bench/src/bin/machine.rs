//! Measures what hits of probes in the kernel cost, beside bpftrace, in a virtual machine.
//!
//!     cargo run --release -p dprobes-bench --bin machine -- [REPETITIONS] [--dprobes COMMAND]
//!
//! The machine is that of the tests: Debian's Linux 6.1, emulated by QEMU. It has the release
//! `dprobes` (or the named command), bpftrace, and crates/bench/subject/kernel.c. Each repetition
//! runs the subject unprobed and under each tracer in turn, for an uprobe, a kprobe, a function's
//! entry by fentry, and a tracepoint. Prints the median, least and most nanoseconds of a hit over
//! the unprobed call, the ratio to dprobes, and the hits that a tracer has counted or written of
//! those that were made. An emulated processor is some ten times slower than a real one: only the
//! ratios say something.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dprobes_bench::{Figures, build, other, status};
use testing::machine::{Command, End, Kernel, Machine, Output};

/// How long one measurement may take, by the machine's clock.
const LIMIT: Duration = Duration::from_secs(300);
/// Memory in MiB: bpftrace needs 200 MB of libraries, and the files are in memory twice.
const MEMORY: u32 = 1536;
/// Calls of a measurement.
const CALLS: u64 = 20_000;

/// Measures what hits in the kernel cost, beside bpftrace, in a virtual machine.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  machine                                      three times
  machine 5 --dprobes target/release/dprobes   a command that is built already
  machine 1 --only kprobe                      the rows whose names have this word")]
struct Options {
    /// How often each way is measured
    #[arg(default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// The dprobes to measure, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    dprobes: Option<PathBuf>,
    /// Only the rows whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// What is probed, and by which commands.
struct Row {
    name: &'static str,
    /// What the subject does.
    kind: &'static str,
    tracers: [Tracer; 2],
}

struct Tracer {
    name: &'static str,
    /// A line for the shell.
    command: &'static str,
    /// What it writes once it traces.
    ready: &'static str,
    hits: Hits,
}

/// Where a tracer tells how many hits it has seen.
#[derive(Clone, Copy)]
enum Hits {
    /// The line that begins so.
    Line(&'static str),
    /// How many lines contain this.
    Lines(&'static str),
}

/// A count by each, with the same script: `count!(NAME, KIND, of dprobes, of bpftrace)`.
macro_rules! count {
    ($name:literal, $kind:literal, $own:literal, $other:literal) => {
        Row {
            name: $name,
            kind: $kind,
            tracers: [
                Tracer {
                    name: "dprobes",
                    command: concat!(
                        "dprobes trace 'begin { printf(\"ready\\n\"); } ",
                        $own,
                        " { @ = count(); }'"
                    ),
                    ready: "^ready",
                    hits: Hits::Line("@: "),
                },
                Tracer {
                    name: "bpftrace",
                    command: concat!(
                        "bpftrace -e 'BEGIN { printf(\"ready\\n\"); } ",
                        $other,
                        " { @ = count(); }'"
                    ),
                    ready: "^ready",
                    hits: Hits::Line("@: "),
                },
            ],
        }
    };
}

/// A record of two words by each: `log!(NAME, KIND, program of dprobes, probe of bpftrace)`.
macro_rules! log {
    ($name:literal, $kind:literal, $program:literal, $other:literal) => {
        Row {
            name: $name,
            kind: $kind,
            tracers: [
                Tracer {
                    name: "dprobes",
                    command: concat!(
                        "{ printf '",
                        $program,
                        "' > /tmp/log.rpn; rm -f /tmp/log.dpt; dprobes attach /tmp/log.rpn -o /tmp/log.dpt --stats /tmp/log.json; grep -o '\"logged\": *[0-9]*' /tmp/log.json | head -n 1; }"
                    ),
                    ready: " armed in ",
                    hits: Hits::Line("\"logged\":"),
                },
                Tracer {
                    name: "bpftrace printf",
                    command: concat!(
                        "bpftrace -e 'BEGIN { printf(\"ready\\n\"); } ",
                        $other,
                        " { printf(\"hit %d %d\\n\", arg0, arg1); }'"
                    ),
                    ready: "^ready",
                    hits: Hits::Lines("hit "),
                },
            ],
        }
    };
}

const ROWS: &[Row] = &[
    count!("uprobe, count", "call", "uprobe:/bin/kernel:called", "uprobe:/bin/kernel:called"),
    count!(
        "kprobe, count",
        "priority",
        "kprobe:__x64_sys_sched_get_priority_max",
        "kprobe:__x64_sys_sched_get_priority_max"
    ),
    count!(
        "fentry, count",
        "priority",
        "fentry:__x64_sys_sched_get_priority_max",
        "kfunc:__x64_sys_sched_get_priority_max"
    ),
    count!(
        "tracepoint, count",
        "priority",
        "tracepoint:syscalls:sys_enter_sched_get_priority_max",
        "tracepoint:syscalls:sys_enter_sched_get_priority_max"
    ),
    log!(
        "uprobe, log of two",
        "call",
        "name = \"/bin/kernel\"\\nmodtype = user\\noffset = called\\npush r, rdi push r, rsi log 2\\nexit\\n",
        "uprobe:/bin/kernel:called"
    ),
    log!(
        "kprobe, log of two",
        "priority",
        "name = vmlinux\\nmodtype = kernel\\noffset = __x64_sys_sched_get_priority_max\\npush r, rdi push r, rsi log 2\\nexit\\n",
        "kprobe:__x64_sys_sched_get_priority_max"
    ),
];

/// The lines of a measurement: the nanoseconds of a call, then what the tracer has said.
fn measurement(row: &Row, tracer: Option<&Tracer>) -> Command {
    let run = format!("echo | kernel {} 1 {CALLS} | tail -n 1", row.kind);
    let lines = match tracer {
        None => run,
        Some(Tracer { command, ready, .. }) => format!(
            "{command} > /tmp/said 2>&1 &
             for turn in $(seq 1200); do if grep -q '{ready}' /tmp/said; then break; fi; sleep 0.1; done
             sleep 1
             {run}
             kill -TERM $(pidof dprobes || pidof bpftrace)
             wait
             cat /tmp/said"
        ),
    };
    Command::shell(&lines).limit(LIMIT)
}

/// The nanoseconds of a call, and the hits that were told.
fn figures(output: &Output, hits: Option<Hits>) -> io::Result<(f64, u64)> {
    let failed = || other(format!("in the machine: {output:#?}"));
    if output.end != End::Exited(0) {
        return Err(failed());
    }
    let (first, told) = output.stdout.split_once('\n').unwrap_or_default();
    let nanoseconds = first.trim().parse().map_err(|_| failed())?;
    let seen = match hits {
        None => Some(0),
        Some(Hits::Line(begin)) => {
            told.lines().find_map(|line| line.strip_prefix(begin)?.trim().parse().ok())
        }
        Some(Hits::Lines(what)) => Some(told.lines().filter(|line| line.contains(what)).count() as u64),
    };
    Ok((nanoseconds, seen.ok_or_else(failed)?))
}

/// The machine, with the tracers and the subject.
fn machine(kernel: &Kernel, dprobes: &Path) -> io::Result<Machine> {
    let directory = build::target(!cfg!(debug_assertions))?.join("bench-machine");
    std::fs::create_dir_all(&directory)?;
    let subject = directory.join("kernel");
    let source = build::repository().join("crates/bench/subject/kernel.c");
    build::c_program(&[source], &["-O2", "-g", "-no-pie"], &["-lpthread"], &subject)?;
    let bpftrace = testing::find_program("bpftrace").ok_or_else(|| other("bpftrace is not installed"))?;
    let mut machine = Machine::new(kernel);
    machine.memory(MEMORY);
    for program in [dprobes, &bpftrace, &subject] {
        machine.program(program);
    }
    Ok(machine)
}

fn bench() -> io::Result<bool> {
    let Options { repetitions, dprobes, only } = Options::parse();
    let kernel = Kernel::available().map_err(|missing| other(format!("no virtual machine: {missing:?}")))?;
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let machine = machine(&kernel, &dprobes)?;
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(&only)).collect();
    let ways = |row: &'static Row| std::iter::once(None).chain(row.tracers.iter().map(Some));
    let turns =
        || (0..repetitions).flat_map(|_| rows.iter().flat_map(|row| ways(row).map(move |way| (*row, way))));
    let commands: Vec<Command> = turns().map(|(row, way)| measurement(row, way)).collect();
    let outputs = machine.run(&commands);

    println!("nanoseconds of a hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:46} {:>9} {:>9} {:>9} {:>6} {:>20}", "", "median", "min", "max", "ratio", "seen of made");
    let measured: Vec<_> = turns().zip(&outputs).collect();
    let mut right = true;
    for row in &rows {
        let mut own = None;
        for tracer in &row.tracers {
            let (mut figures_of, mut seen, mut unprobed) = (Figures::default(), 0, 0.0);
            for ((_, way), output) in measured.iter().filter(|((of, _), _)| of.name == row.name) {
                let (nanoseconds, hits) = figures(output, way.map(|way| way.hits))?;
                match way {
                    None => unprobed = nanoseconds,
                    Some(way) if way.name == tracer.name => {
                        figures_of.add(nanoseconds - unprobed);
                        seen += hits;
                    }
                    Some(_) => {}
                }
            }
            let own = *own.get_or_insert(figures_of.median());
            let share = seen as f64 * 100.0 / (CALLS * repetitions) as f64;
            // Other processes may make the same call.
            right &= tracer.name != "dprobes" || seen >= CALLS * repetitions;
            println!(
                "{:46} {:>9.0} {:>9.0} {:>9.0} {:>6.2} {:>20}",
                format!("{}, {}", row.name, tracer.name),
                figures_of.median(),
                figures_of.min(),
                figures_of.max(),
                figures_of.median() / own,
                format!("{share:.1} %")
            );
        }
    }
    Ok(right)
}

fn main() -> ExitCode {
    status("machine", bench())
}
