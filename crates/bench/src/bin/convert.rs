//! How fast traces are converted, and in how much memory.
//!
//!     cargo run --release -p dprobes-bench --bin convert -- [RECORDS] [--no-parquet]
//!
//! It builds the release `dprobes`, with Parquet, records a trace of 10 million records (or RECORDS) of a real run of `tests/targets/tight.c`, entries and
//! returns of a function in two threads, with a word logged at each, and converts it to every form, beside babeltrace2's own conversion of the same
//! trace to text. For each, it prints records a second by the wall clock and by processor time, and the greatest memory that the process had. The bars
//! are 1,000,000 records a second and 200 MB. The status is 0 even where one is missed: that depends on the machine.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dprobes_bench::{build, other, status};

/// What a process has taken.
struct Taken {
    wall: Duration,
    processor: Duration,
    /// Bytes of memory, at the most.
    memory: u64,
}

/// Runs a command to its end.
fn measure(command: &mut Command) -> io::Result<Taken> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let mut status = 0;
    // SAFETY: all zeros is a value of the structure, which the call fills; the child has not been waited for, nor will it be again.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(child.id() as i32, &mut status, 0, &mut usage) < 0 {
            return Err(io::Error::last_os_error());
        }
        usage
    };
    let wall = start.elapsed();
    if !ExitStatus::from_raw(status).success() {
        return Err(other(format!("{command:?} has failed")));
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(Taken {
        wall,
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss as u64 * 1024,
    })
}

/// Records a trace of about so many records, none of them dropped; gives how many there are.
fn record(dprobes: &Path, tight: &Path, trace: &Path, records: u64) -> io::Result<u64> {
    let mut command = Command::new(dprobes);
    command.args(["run", "--lossless", "--at", "a.out:work:entry", "--at", "a.out:work:return"]);
    command.args(["--do", "push r, rdi; log 1", "-o"]).arg(trace).arg("--").arg(tight);
    command.arg((records / 4).to_string()).arg("2").stdout(Stdio::null()).stderr(Stdio::null());
    if !command.status()?.success() {
        return Err(other(format!("{command:?} has failed")));
    }
    let said = Command::new(dprobes).args(["show", "--info"]).arg(trace).output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let count = text.lines().next().and_then(|line| line.split(", ").last()?.split(' ').next()?.parse().ok());
    count.ok_or_else(|| other(format!("no count of records in {text}")))
}

fn line(name: &str, records: u64, taken: &Taken) {
    let rate = |time: Duration| records as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    println!(
        "{name:<22} {:>7.2} M/s {:>9.2} M/s {:>9.1} MB",
        rate(taken.wall),
        rate(taken.processor),
        taken.memory as f64 / 1e6
    );
}

fn bench(records: u64, parquet: bool) -> io::Result<()> {
    let dprobes = build::dprobes_with(true, if parquet { &["parquet"] } else { &[] })?;
    let directory = build::target(true)?.join("bench-convert");
    std::fs::create_dir_all(&directory)?;
    let (tight, trace) = (directory.join("tight"), directory.join("trace.dpt"));
    build::c_program(&[build::repository().join("tests/targets/tight.c")], &[], &[], &tight)?;
    let records = record(&dprobes, &tight, &trace, records)?;
    let size = std::fs::metadata(&trace)?.len() as f64 / 1e6;
    println!(
        "{records} records, {size:.1} MB\n\n{:<22} {:>11} {:>13} {:>12}",
        "", "wall", "processor", "memory"
    );
    let out = |name: &str| -> PathBuf { directory.join(name) };
    let mut forms = vec!["json", "csv", "perfetto", "ctf"];
    if parquet {
        forms.push("parquet");
    }
    for form in forms {
        let to = out(&format!("out.{form}"));
        if form == "ctf" && to.exists() {
            std::fs::remove_dir_all(&to)?;
        }
        let mut command = Command::new(&dprobes);
        command.arg("convert").arg(&trace).args(["--to", form, "-o"]).arg(&to);
        line(form, records, &measure(command.stderr(Stdio::null()))?);
    }
    let mut command = Command::new(&dprobes);
    line(
        "report, with --html",
        records,
        &measure(command.arg("report").arg(&trace).arg("--html").arg(out("out.html")))?,
    );
    line("show", records, &measure(Command::new(&dprobes).arg("show").arg(&trace))?);
    match build::find("babeltrace2") {
        Some(babeltrace) => {
            line("babeltrace2, to text", records, &measure(Command::new(babeltrace).arg(out("out.ctf")))?)
        }
        None => println!("skipped: babeltrace2, which is not here"),
    }
    std::fs::remove_dir_all(directory)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parquet = !words.iter().any(|word| word == "--no-parquet");
    let numbers: Vec<&String> = words.iter().filter(|word| *word != "--no-parquet").collect();
    let records = match numbers.as_slice() {
        [] => Some(10_000_000),
        [count] => count.parse().ok().filter(|count| *count >= 4),
        _ => None,
    };
    let Some(records) = records else {
        eprintln!("usage: convert [RECORDS] [--no-parquet]");
        return ExitCode::FAILURE;
    };
    // A command that fails is an error.
    status("convert", bench(records, parquet).map(|()| true))
}
