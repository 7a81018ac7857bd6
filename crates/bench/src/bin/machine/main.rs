//! Measures what hits of probes in the kernel cost, beside bpftrace, in a virtual machine.
//!
//!     cargo run --release -p dprobes-bench --bin machine -- [REPETITIONS] [--instructions] [--dprobes COMMAND]
//!
//! The machine is that of the tests: Debian's Linux 6.1, emulated by QEMU. It has the release
//! `dprobes` (or the named command), bpftrace, and crates/bench/subject/bursts.c. Each repetition
//! runs the subject unprobed and under each tracer in turn, for an uprobe, a kprobe, a function's
//! entry by fentry, and a tracepoint.
//!
//! A hit that is lost costs less than one that is delivered. So the calls of the rows `log` come in
//! bursts that fit into bpftrace's rings, with pauses in which both readers follow, and every
//! tracer's records are counted: one that lacks any makes the run fail. The rows `at once` have all
//! calls in one burst, and show what is lost.
//!
//! Printed are nanoseconds of a hit over the unprobed call, as median, least and most of the
//! repetitions: by the clock, in the median burst of a repetition; and the processor time of the
//! subject and the tracer together, with reading and writing what was recorded. What the tracer
//! uses when nothing is hit is not in it; it is printed as a share of a processor.
//!
//! An emulated processor is some ten times slower than a real one: only the ratios say something.
//! With `--instructions` the machine has one processor and its clock counts instructions, one as a
//! nanosecond: less true to a real processor, but the same on a busy machine.

mod rows;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dprobes_bench::{Beside, Figures, build, other, status};
use rows::{Row, Tracer, rows};
use testing::machine::{Command, End, Kernel, Machine, Output};

/// How long one measurement may take, by the machine's clock.
const LIMIT: Duration = Duration::from_secs(300);
/// Memory in MiB: bpftrace needs 200 MB of libraries, and the files are in memory twice.
const MEMORY: u32 = 1536;

/// Measures what hits in the kernel cost, beside bpftrace, in a virtual machine.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  machine                                      five times
  machine 5 --dprobes target/release/dprobes   a command that is built already
  machine 1 --only kprobe                      the rows whose names have this word
  machine 2 --instructions                     instructions, for a busy machine")]
struct Options {
    #[command(flatten)]
    beside: Beside,
    /// Count instructions instead of nanoseconds
    #[arg(long)]
    instructions: bool,
}

/// What one run of the subject has shown.
struct Measured {
    /// Nanoseconds of a call by the clock, and of processor time.
    call: f64,
    processor: f64,
    /// Of processor time, in a second without hits.
    idle: f64,
    seen: u64,
}

/// The lines of a measurement: what the subject prints, then the hits that the tracer has seen.
fn measurement(row: &Row, tracer: Option<&Tracer>) -> Command {
    let pace = row.pace;
    let run = format!("bursts {} {} {} {}", row.kind, pace.bursts, pace.calls, pace.pause);
    let lines = match tracer {
        None => format!("{run}\necho 0"),
        Some(Tracer { program, command, ready, seen, .. }) => format!(
            "{command} > /tmp/said 2>&1 &
             for turn in $(seq 1200); do if grep -q '{ready}' /tmp/said; then break; fi; sleep 0.1; done
             sleep 1
             {run} $(pidof {program})
             kill -TERM $(pidof {program})
             wait
             {seen}"
        ),
    };
    Command::shell(&lines).limit(LIMIT)
}

/// What a measurement has printed.
fn measured(output: &Output) -> io::Result<Measured> {
    let numbers: Option<Vec<f64>> =
        output.stdout.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    match (&output.end, numbers.as_deref()) {
        (End::Exited(0), Some(&[call, processor, idle, seen])) => {
            Ok(Measured { call, processor, idle, seen: seen as u64 })
        }
        _ => Err(other(format!("in the machine: {output:#?}"))),
    }
}

/// The machine, with the tracers and the subject.
fn machine(kernel: &Kernel, dprobes: &Path) -> io::Result<Machine> {
    let directory = build::target(!cfg!(debug_assertions))?.join("bench-machine");
    std::fs::create_dir_all(&directory)?;
    let subject = directory.join("bursts");
    let source = build::repository().join("crates/bench/subject/bursts.c");
    build::c_program(&[source], &["-O2", "-g", "-no-pie"], &[], &subject)?;
    let bpftrace = testing::find_program("bpftrace").ok_or_else(|| other("bpftrace is not installed"))?;
    let mut machine = Machine::new(kernel);
    machine.memory(MEMORY);
    for program in [dprobes, &bpftrace, &subject] {
        machine.program(program);
    }
    Ok(machine)
}

/// What was measured of one tracer in one row, over the unprobed call.
#[derive(Default)]
struct Line {
    call: Figures,
    processor: Figures,
    idle: Figures,
    seen: u64,
}

/// The lines of a row's tracers, from its measurements: repetition by repetition the unprobed one,
/// then those of the tracers.
fn lines(row: &Row, outputs: &[&Output]) -> io::Result<Vec<Line>> {
    let mut lines: Vec<Line> = row.tracers.iter().map(|_| Line::default()).collect();
    for turn in outputs.chunks(1 + lines.len()) {
        let (unprobed, probed) = turn.split_first().expect("a chunk is not empty");
        let unprobed = measured(unprobed)?;
        for (line, output) in lines.iter_mut().zip(probed) {
            let measured = measured(output)?;
            line.call.add(measured.call - unprobed.call);
            line.processor.add(measured.processor - unprobed.processor);
            line.idle.add(measured.idle);
            line.seen += measured.seen;
        }
    }
    Ok(lines)
}

/// Median, least and most, and the median's ratio to that of the first tracer.
fn columns(figures: &Figures, first: &Figures) -> String {
    let (median, ratio) = (figures.median(), figures.median() / first.median());
    format!("{median:>8.0} {:>7.0} {:>7.0} {ratio:>6.2}", figures.min(), figures.max())
}

/// Prints a row; whether no hit is missing that must not be.
fn print(row: &Row, lines: &[Line], repetitions: u64) -> bool {
    let made = row.pace.hits() * repetitions;
    let mut right = true;
    for (tracer, line) in row.tracers.iter().zip(lines) {
        // Other processes may make the same call: more may be seen.
        let lost = made.saturating_sub(line.seen);
        let wrong = lost > 0 && (row.pace.all || tracer.is_own());
        right &= !wrong;
        println!(
            "{:36} {} |{} {:>5.1} %  {}",
            format!("{}, {}", row.name, tracer.name),
            columns(&line.call, &lines[0].call),
            columns(&line.processor, &lines[0].processor),
            line.idle.median() / 1e7,
            match (lost, wrong) {
                (0, _) => format!("all of {made}"),
                (_, false) => format!("lost {:.1} %", lost as f64 * 100.0 / made as f64),
                (_, true) => format!("lost {lost} of {made}: no comparison"),
            }
        );
    }
    right
}

fn bench() -> io::Result<bool> {
    let Options { beside: Beside { repetitions, dprobes, only }, instructions } = Options::parse();
    let kernel = Kernel::available().map_err(|missing| other(format!("no virtual machine: {missing:?}")))?;
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let mut machine = machine(&kernel, &dprobes)?;
    if instructions {
        machine.count_instructions();
    }
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains(&only)).collect();
    let turns = rows.iter().flat_map(|row| {
        let ways = std::iter::once(None).chain(row.tracers.iter().map(Some));
        ways.map(move |way| (row, way))
    });
    let once: Vec<(&Row, Command)> = turns.map(|(row, way)| (row, measurement(row, way))).collect();
    let turns = once.iter().cycle().take(once.len() * repetitions as usize);
    let turns: Vec<&(&Row, Command)> = turns.collect();
    let commands: Vec<Command> = turns.iter().map(|(_, command)| command.clone()).collect();
    let outputs = machine.run(&commands);

    let unit = if instructions { "instructions" } else { "nanoseconds" };
    println!("{unit} of a hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:36} {:>31} |{:>31}", "", "by the clock, in bursts", "processor time, with the reader");
    let titles = format!("{:>8} {:>7} {:>7} {:>6}", "median", "min", "max", "ratio");
    println!("{:36} {titles} |{titles} {:>7}  seen", "", "idle");
    let mut right = true;
    for row in &rows {
        let own = turns.iter().zip(&outputs).filter(|((of, _), _)| of.name == row.name);
        let own: Vec<&Output> = own.map(|(_, output)| output).collect();
        right &= print(row, &lines(row, &own)?, repetitions);
    }
    Ok(right)
}

fn main() -> ExitCode {
    status("machine", bench())
}
