//! Measures what the events of a process's life cost while it is traced: signals, threads, forks,
//! dlopen, exec.
//!
//!     cargo run --release -p dprobes-bench --bin life -- [REPETITIONS] [--dprobes COMMAND]
//!
//! Builds the release `dprobes` (or takes the named command) and crates/bench/subject/life.c, in
//! which one function is counted. Each repetition runs it unprobed, under `dprobes run`, under
//! `strace -f` that shows no calls, and under gdb with a breakpoint that is never reached; missing
//! tools are left out. Prints for each event and way the median, least and most of the repetitions
//! in microseconds, and the median's ratio to the unprobed one.

use clap::Parser;
use dprobes_bench::{Figures, build, cleanup, status};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The events, as named by the subject.
const KINDS: [&str; 5] = ["signal", "thread", "fork", "dlopen", "exec"];

/// A way to run the subject: its name, and the command in front of the subject's own.
struct Way {
    name: &'static str,
    before: Vec<String>,
}

/// Measures what the events of a process's life cost while it is traced: signals, threads, forks,
/// dlopen, exec.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  life                                      seven times
  life 3 --dprobes target/release/dprobes   a command that is built already")]
struct Options {
    /// How often each way is measured
    #[arg(default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// The dprobes to measure, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    dprobes: Option<PathBuf>,
}

fn ways(dprobes: &Path) -> Vec<Way> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut run = vec![dprobes.display().to_string()];
    run.extend(words("run -o /dev/null --at a.out:called:entry --do"));
    run.extend(["inc lv, 0; abort".to_owned(), "--".to_owned()]);
    let mut ways = vec![Way { name: "unprobed", before: Vec::new() }, Way { name: "dprobes", before: run }];
    if testing::find_program("strace").is_some() {
        ways.push(Way { name: "strace -f", before: words("strace -f -e trace=none -o /dev/null --") });
    }
    if testing::find_program("gdb").is_some() {
        let mut gdb = words("gdb -q -batch -nx -iex");
        gdb.push("set debuginfod enabled off".to_owned());
        for command in ["handle all nostop noprint pass", "set detach-on-fork on", "run"] {
            gdb.extend(["-ex".to_owned(), command.to_owned()]);
        }
        gdb.push("--args".to_owned());
        ways.push(Way { name: "gdb", before: gdb });
    }
    ways
}

/// Runs the subject and returns the nanoseconds of each event.
fn run(way: &Way, subject: &[String]) -> io::Result<Vec<f64>> {
    let words: Vec<&String> = way.before.iter().chain(subject).collect();
    let output =
        Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let of = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        let value = line.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| io::Error::other(format!("{}: no time of `{kind}`: {text}", way.name)))
    };
    KINDS.iter().map(|kind| of(kind)).collect()
}

fn bench() -> io::Result<bool> {
    let Options { repetitions, dprobes } = Options::parse();
    cleanup::on_signals()?;
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let directory = build::target(!cfg!(debug_assertions))?.join("bench-life");
    std::fs::create_dir_all(&directory)?;
    let (program, plugin) = (directory.join("life"), directory.join("plugin.so"));
    build::c_program(&[build::repository().join("crates/bench/subject/life.c")], &[], &["-ldl"], &program)?;
    let source = directory.join("plugin.c");
    std::fs::write(&source, "int plugged(void) { return 1; }\n")?;
    build::c_program(&[source], &["-shared", "-fPIC"], &[], &plugin)?;
    let mut subject = vec![program.display().to_string(), plugin.display().to_string(), "10".to_owned()];
    subject.extend(KINDS.map(str::to_owned));
    let ways = ways(&dprobes);
    let mut figures = vec![vec![Figures::default(); KINDS.len()]; ways.len()];
    for repetition in 1..=repetitions {
        eprint!("\r\x1b[Krepetition {repetition} of {repetitions}");
        for (way, figures) in ways.iter().zip(&mut figures) {
            for (nanoseconds, figures) in run(way, &subject)?.into_iter().zip(figures) {
                figures.add(nanoseconds / 1000.0);
            }
        }
    }
    eprintln!("\r\x1b[K");
    println!("microseconds, {repetitions} interleaved repetitions");
    println!("{:24} {:>10} {:>10} {:>10} {:>7}", "", "median", "min", "max", "ratio");
    for (place, kind) in KINDS.iter().enumerate() {
        for (way, all) in ways.iter().zip(&figures) {
            let (each, unprobed) = (&all[place], figures[0][place].median());
            let name = format!("{kind}, {}", way.name);
            let ratio = if unprobed > 0.0 { each.median() / unprobed } else { 0.0 };
            println!(
                "{name:24} {:>10.1} {:>10.1} {:>10.1} {ratio:>7.1}",
                each.median(),
                each.min(),
                each.max()
            );
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    status("life", bench())
}
