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
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dprobes_bench::{Beside, Figures, build, other, status};
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
  machine                                      five times
  machine 5 --dprobes target/release/dprobes   a command that is built already
  machine 1 --only kprobe                      the rows whose names have this word")]
struct Options {
    #[command(flatten)]
    beside: Beside,
}

/// What is probed, and what is done at each hit.
struct Row {
    name: &'static str,
    /// What the subject does.
    kind: &'static str,
    /// The probe in the words of dprobes, and of bpftrace. For a record, dprobes gets the lines
    /// of a program that say where it is.
    own: &'static str,
    other: &'static str,
    action: Action,
}

#[derive(Clone, Copy)]
enum Action {
    /// It is counted, by the same script.
    Count,
    /// Two words are recorded, or printed.
    Record,
}

/// A way to trace the subject.
struct Tracer {
    name: &'static str,
    /// A line for the shell.
    command: String,
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

const PRIORITY: &str = "kprobe:__x64_sys_sched_get_priority_max";
const CALLED: &str = "uprobe:/bin/kernel:called";
const ENTERED: &str = "tracepoint:syscalls:sys_enter_sched_get_priority_max";

const ROWS: &[Row] = &[
    Row { name: "uprobe, count", kind: "call", own: CALLED, other: CALLED, action: Action::Count },
    Row { name: "kprobe, count", kind: "priority", own: PRIORITY, other: PRIORITY, action: Action::Count },
    Row {
        name: "fentry, count",
        kind: "priority",
        own: "fentry:__x64_sys_sched_get_priority_max",
        other: "kfunc:__x64_sys_sched_get_priority_max",
        action: Action::Count,
    },
    Row { name: "tracepoint, count", kind: "priority", own: ENTERED, other: ENTERED, action: Action::Count },
    Row {
        name: "uprobe, log of two",
        kind: "call",
        own: "name = \"/bin/kernel\"\\nmodtype = user\\noffset = called",
        other: CALLED,
        action: Action::Record,
    },
    Row {
        name: "kprobe, log of two",
        kind: "priority",
        own: "name = vmlinux\\nmodtype = kernel\\noffset = __x64_sys_sched_get_priority_max",
        other: PRIORITY,
        action: Action::Record,
    },
];

impl Row {
    fn tracers(&self) -> [Tracer; 2] {
        let script = |name, command: &str, begin, probe, action: &str, hits| Tracer {
            name,
            command: format!("{command} '{begin} {{ printf(\"ready\\n\"); }} {probe} {{ {action} }}'"),
            ready: "^ready",
            hits,
        };
        let bpftrace = |name, action, hits| script(name, "bpftrace -e", "BEGIN", self.other, action, hits);
        match self.action {
            Action::Count => {
                let (count, hits) = ("@ = count();", Hits::Line("@: "));
                let own = script("dprobes", "dprobes trace", "begin", self.own, count, hits);
                [own, bpftrace("bpftrace", count, hits)]
            }
            Action::Record => {
                let printf = "printf(\"hit %d %d\\n\", arg0, arg1);";
                [self.recorder(), bpftrace("bpftrace printf", printf, Hits::Lines("hit "))]
            }
        }
    }

    /// dprobes, which records two words into a store.
    fn recorder(&self) -> Tracer {
        Tracer {
            name: "dprobes",
            command: format!(
                "{{ printf '{}\\npush r, rdi push r, rsi log 2\\nexit\\n' > /tmp/log.rpn; rm -f /tmp/log.dpt
                 dprobes attach /tmp/log.rpn -o /tmp/log.dpt --stats /tmp/log.json
                 grep -o '\"logged\": *[0-9]*' /tmp/log.json | head -n 1; }}",
                self.own
            ),
            ready: " armed in ",
            hits: Hits::Line("\"logged\":"),
        }
    }
}

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

/// Unprobed, and with each tracer.
fn ways(tracers: &[Tracer; 2]) -> [Option<&Tracer>; 3] {
    let [own, other] = tracers;
    [None, Some(own), Some(other)]
}

fn bench() -> io::Result<bool> {
    let Beside { repetitions, dprobes, only } = Options::parse().beside;
    let kernel = Kernel::available().map_err(|missing| other(format!("no virtual machine: {missing:?}")))?;
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let machine = machine(&kernel, &dprobes)?;
    let rows: Vec<(&Row, [Tracer; 2])> =
        ROWS.iter().filter(|row| row.name.contains(&only)).map(|row| (row, row.tracers())).collect();
    let turns: Vec<(&Row, Option<&Tracer>)> = (0..repetitions)
        .flat_map(|_| rows.iter().flat_map(|(row, tracers)| ways(tracers).map(|way| (*row, way))))
        .collect();
    let commands: Vec<Command> = turns.iter().map(|(row, way)| measurement(row, *way)).collect();
    let outputs = machine.run(&commands);

    println!("nanoseconds of a hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:46} {:>9} {:>9} {:>9} {:>6} {:>20}", "", "median", "min", "max", "ratio", "seen of made");
    let measured: Vec<_> = turns.iter().zip(&outputs).collect();
    let mut right = true;
    for (row, tracers) in &rows {
        let mut own = None;
        for tracer in tracers {
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
