//! Measures what hits of scripts cost, beside bpftrace with the same scripts.
//!
//!     cargo run --release -p dprobes-bench --bin script -- [REPETITIONS] [--dprobes COMMAND]
//!
//! Builds the release `dprobes` (or takes the named command) and crates/bench/subject/script.c.
//! Each repetition runs it unprobed and under each tracer in turn, with each script. Prints the
//! median, least and most nanoseconds of a hit over the unprobed call, the ratio to dprobes, and
//! the hits in the script's map of those that were made. bpftrace is left out if it is not
//! installed, or cannot trace here.

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

/// Measures what hits of scripts cost, beside bpftrace.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  script                                      five times
  script 3 --dprobes target/release/dprobes   a command that is built already
  script 1 --only hist                        the scripts that contain this")]
struct Options {
    #[command(flatten)]
    beside: Beside,
}

/// A script on the subject's function: what it does at the call and, if anything, at the return.
struct Row {
    action: &'static str,
    at_return: &'static str,
    /// The calls of all threads together.
    times: u64,
    deep: bool,
    /// The rounds of calls, of which the last is timed. Records need more than one: the ring of a
    /// processor has room for 350,000 of them, and to write to memory for the first time takes as
    /// long as to make some records.
    rounds: u64,
}

const fn row(action: &'static str, times: u64) -> Row {
    Row { action, at_return: "", times, deep: false, rounds: 1 }
}

const ROWS: &[Row] = &[
    row("@ = count();", 2_000_000),
    row("@ = sum(arg0);", 2_000_000),
    row("@ = hist(arg0);", 2_000_000),
    row("if (arg0 > 1000) { @ = count(); }", 2_000_000),
    row("@[arg0] = count();", 500_000),
    row("@[str(arg1)] = count();", 500_000),
    Row {
        action: "@t[tid] = nsecs;",
        at_return: "/@t[tid]/ { @ = hist(nsecs - @t[tid]); delete(@t[tid]); }",
        times: 300_000,
        deep: false,
        rounds: 1,
    },
    Row { action: "@[ustack(10)] = count();", at_return: "", times: 300_000, deep: true, rounds: 1 },
    Row {
        action: "printf(\"%d %d\\n\", arg0, arg1);",
        at_return: "",
        times: 200_000,
        deep: false,
        rounds: 3,
    },
];

/// The numbers of threads.
const THREADS: [u64; 2] = [1, 8];

const TRACERS: [&str; 2] = ["dprobes", "bpftrace"];

impl Row {
    /// The calls of each thread.
    fn calls(&self, threads: u64) -> u64 {
        self.times / threads
    }

    fn words(&self, threads: u64) -> [String; 4] {
        let deep = u8::from(self.deep).to_string();
        [threads.to_string(), self.calls(threads).to_string(), deep, self.rounds.to_string()]
    }

    /// The script for a tracer. What dprobes prints when it begins is no sign that the probes are
    /// in, so it is not asked to print.
    fn script(&self, tracer: &str, subject: &Path) -> String {
        let subject = subject.display();
        let begin = if tracer == "dprobes" { "" } else { "BEGIN { printf(\"ready\\n\"); } " };
        let at_return = match self.at_return {
            "" => String::new(),
            at_return => format!(" uretprobe:{subject}:called {at_return}"),
        };
        // 0.17 has delete(@map[key]) only, and both have that.
        format!("{begin}uprobe:{subject}:called {{ {} }}{at_return}", self.action)
    }
}

/// The files of a run.
struct RunFiles {
    subject: PathBuf,
    dprobes: PathBuf,
    said: PathBuf,
}

impl RunFiles {
    /// Runs a tracer on the subject. Returns the nanoseconds of a call, and the hits in what it
    /// prints.
    fn measure(&self, row: &Row, tracer: &str, threads: u64) -> io::Result<(f64, u64)> {
        let mut subject = Worker::start(&self.subject, &row.words(threads))?;
        let script = row.script(tracer, &self.subject);
        let file = std::fs::File::create(&self.said)?;
        let (mut command, ready) = match tracer {
            "dprobes" => {
                let mut command = Command::new(&self.dprobes);
                command.args(["trace", "-p", &subject.pid().to_string(), "-e", &script]);
                (command, " armed in ")
            }
            tracer => {
                let mut command = Command::new(tracer);
                command.args(["-e", &script]);
                (command, "ready")
            }
        };
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut traced = Started::gently(command.spawn()?);
        let begin = Instant::now();
        while !std::fs::read_to_string(&self.said)?.contains(ready) {
            if traced.child().try_wait()?.is_some() || begin.elapsed() > RUN_TIME_OUT {
                let text = std::fs::read_to_string(&self.said)?;
                return Err(other(format!("{tracer} does not begin: {text}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The subject may have ended before bpftrace has printed what it has.
        let nanoseconds = subject.go()?;
        traced.signal(Signal::SIGINT);
        wait(traced.child(), RUN_TIME_OUT)?;
        Ok((nanoseconds, seen(row, &String::from_utf8_lossy(&std::fs::read(&self.said)?))))
    }
}

/// The hits in what a tracer has printed: all numbers of the map, or the lines of printf.
fn seen(row: &Row, text: &str) -> u64 {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let lines = text.lines();
    if row.action.contains("printf") {
        let two = |line: &&str| line.split(' ').filter_map(number).count() == 2;
        return lines.filter(two).count() as u64;
    }
    let counts = lines.filter_map(|line| match line.split_once(" |") {
        // A row of a histogram: `[4, 8)   42 |@@@`.
        Some((row, _)) => row.rsplit(' ').find_map(number),
        None => number(line.rsplit_once(": ")?.1),
    });
    counts.sum()
}

fn bench() -> io::Result<bool> {
    let Beside { repetitions, dprobes, only } = Options::parse().beside;
    cleanup::on_signals()?;
    let directory = build::target(!cfg!(debug_assertions))?.join("bench-script");
    std::fs::create_dir_all(&directory)?;
    let subject = directory.join("script");
    let source = build::repository().join("crates/bench/subject/script.c");
    // So that the function begins with `push`, which the kernel need not step.
    let frames = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls"];
    let flags = [&["-O2", "-no-pie", "-fcf-protection=none"][..], &frames].concat();
    build::c_program(&[source], &flags, &["-lpthread"], &subject)?;
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let place = RunFiles { subject: subject.canonicalize()?, dprobes, said: directory.join("said") };
    let tracers: Vec<&str> = TRACERS
        .into_iter()
        .filter(|tracer| *tracer == "dprobes" || testing::find_program(tracer).is_some())
        .collect();
    let mut right = true;
    println!("nanoseconds of a hit over the unprobed call, {repetitions} interleaved repetitions");
    println!("{:58} {:>9} {:>9} {:>9} {:>6} {:>12}", "", "median", "min", "max", "ratio", "seen of made");
    for (row, threads) in ROWS.iter().flat_map(|row| THREADS.map(|threads| (row, threads))) {
        if !row.action.contains(&only) {
            continue;
        }
        let mut figures = vec![Figures::default(); tracers.len()];
        let mut all = vec![0u64; tracers.len()];
        for _ in 0..repetitions {
            let unprobed = Worker::start(&place.subject, &row.words(threads))?.go()?;
            for ((tracer, figures), all) in tracers.iter().zip(&mut figures).zip(&mut all) {
                let (nanoseconds, hits) = place.measure(row, tracer, threads)?;
                figures.add(nanoseconds - unprobed);
                *all += hits;
            }
        }
        let made = threads * row.calls(threads) * row.rounds * repetitions;
        let own = figures.first().map_or(0.0, Figures::median);
        // A sum, and what a condition excludes, is no count of hits.
        let counts = !row.action.contains("sum(") && !row.action.contains("if (");
        for ((tracer, each), all) in tracers.iter().zip(&figures).zip(&all) {
            let name = format!("{} {threads} thr., {tracer}", row.action);
            let share = format!("{:.1} %", *all as f64 * 100.0 / made as f64);
            println!(
                "{name:58} {:>9.1} {:>9.1} {:>9.1} {:>6.2} {:>12}",
                each.median(),
                each.min(),
                each.max(),
                each.median() / own,
                if counts { share.as_str() } else { "-" },
            );
            // What a map counts is exact; the records of printf may be lost, which is said.
            let exact = counts && !row.action.contains("printf");
            right &= *tracer != "dprobes" || !exact || *all == made;
        }
    }
    Ok(right)
}

fn main() -> ExitCode {
    status("script", bench())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_in_what_is_printed() {
        assert_eq!(seen(&ROWS[0], "Attaching 2 probes...\n\n@: 42\n"), 42);
        assert_eq!(seen(&ROWS[2], "@:\n[0]        3 |@@  |\n[1, 2)    40 |@@@@|\n"), 43);
        assert_eq!(seen(&ROWS[4], "@[1]: 5\n@[2]: 6\n"), 11);
        assert_eq!(seen(&ROWS[7], "@[\n        called+0\n        deep+20\n]: 9\n"), 9);
        assert_eq!(seen(&ROWS[8], "ready\n1 93\n2 93\nLost 3 events\n"), 2);
    }
}
