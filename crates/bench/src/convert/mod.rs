//! Measures conversions of a large trace, compared with babeltrace2's own.
//!
//! ```text
//! tight, probed -> trace.dpt -> a form's file -> counted -> removed     for each form, in each round
//!                      `-> Common Trace Format -> babeltrace2, to text
//! ```
//!
//! Forms take turns, so that other load on the machine affects all of them. Each form's file is
//! checked in the first round.

mod count;
mod measure;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build;
use measure::{Rates, measure};

/// The bar for records per second, in millions.
const BAR: f64 = 1.0;
/// The bar for memory, in MB.
const MEMORY: f64 = 200.0;

/// Logs the argument at each entry and each return.
const PROGRAM: &str = "modtype = user\nmajor = 1\n\
                       offset = work\nminor = 1\npush r, rdi\nlog 1\nexit\n\
                       offset = \"work\":return\nminor = 2\npush r, rdi\nlog 1\nexit\n";
const TEMPLATES: &str = "major=1\nminor=1 desc=\"call\" fmt=\"a=%8u\"\nminor=2 desc=\"end\" fmt=\"a=%8u\"\n";
/// Threads in `tight`.
const THREADS: u64 = 2;

/// The required contents of a trace, in any form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The number of records.
    pub(crate) records: u64,
    /// The sum of the logged values.
    pub(crate) sum: u64,
}

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `dprobes convert` to this form.
    Convert(&'static str),
    Report,
    Page,
    Show,
    /// babeltrace2, from the trace in the Common Trace Format.
    Babeltrace,
}

const FORMS: [(&str, Form); 9] = [
    ("json", Form::Convert("json")),
    ("csv", Form::Convert("csv")),
    ("perfetto", Form::Convert("perfetto")),
    ("parquet", Form::Convert("parquet")),
    ("ctf", Form::Convert("ctf")),
    ("babeltrace2", Form::Babeltrace),
    ("report", Form::Report),
    ("html", Form::Page),
    ("show", Form::Show),
];

/// The names of the forms.
pub fn forms() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|(name, _)| *name)
}

/// A measurement.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The approximate number of records in the trace.
    pub records: u64,
    /// How often to write each form.
    pub rounds: usize,
    /// The forms to write; empty means all.
    pub only: Vec<&'static str>,
    /// The directory for files; by default below the build directory.
    pub directory: Option<PathBuf>,
}

impl Bench {
    /// Measures, and prints a line for each form.
    ///
    /// # Errors
    /// If a command fails, or a form lacks records of the trace.
    pub fn run(&self) -> io::Result<()> {
        let dprobes = build::dprobes(true)?;
        let directory = match &self.directory {
            Some(directory) => directory.clone(),
            None => build::target(true)?,
        };
        let directory = directory.join("bench-convert");
        fs::create_dir_all(&directory)?;
        let measured = self.in_directory(&dprobes, &directory);
        fs::remove_dir_all(&directory)?;
        measured
    }

    fn in_directory(&self, dprobes: &Path, directory: &Path) -> io::Result<()> {
        let trace = directory.join("trace.dpt");
        let expected = record(dprobes, &trace, self.records)?;
        let size = fs::metadata(&trace)?.len() as f64 / 1e6;
        println!("{} records, {size:.1} MB; load average before the start: {}", expected.records, busy());
        let is_wanted = |name: &str| self.only.is_empty() || self.only.contains(&name);
        let mut rates: Vec<(&str, Form, Rates)> = FORMS
            .into_iter()
            .filter(|(name, _)| is_wanted(name))
            .map(|(name, form)| (name, form, Rates::default()))
            .collect();
        for round in 0..self.rounds {
            for (name, form, rates) in &mut rates {
                let out = directory.join(format!("out.{name}"));
                let Some(mut command) = command(*form, dprobes, &trace, &out)? else { continue };
                rates.add(expected.records, &measure(&mut command)?);
                if *form == Form::Babeltrace {
                    remove(&babeltrace_source(&trace))?;
                }
                if round == 0 {
                    count::check(name, &out, expected)?;
                }
                remove(&out)?;
            }
        }
        println!("{:<14}{:>24}{:>26}{:>12}", "", "M records/s, wall", "M records/s, processor", "memory");
        for (name, form, rates) in &rates {
            println!("{}", line(name, *form, rates));
        }
        Ok(())
    }
}

/// A form's figures, and whether they meet the bars: speed by processor time, since other load
/// cannot change that.
fn line(name: &str, form: Form, rates: &Rates) -> String {
    if rates.wall.median() == 0.0 {
        return format!("{name:<14} skipped: not installed");
    }
    let shown = |figures: &crate::Figures| {
        format!("{:.2} ({:.2} {:.2})", figures.median(), figures.min(), figures.max())
    };
    let memory = rates.memory as f64 / 1e6;
    let verdict = match form {
        Form::Babeltrace => String::new(),
        _ if rates.wall.median() >= BAR && memory <= MEMORY => "  PASS".to_owned(),
        _ if rates.processor.median() >= BAR && memory <= MEMORY => "  PASS by processor time".to_owned(),
        _ => "  over".to_owned(),
    };
    format!("{name:<14}{:>24}{:>26}{memory:>9.1} MB{verdict}", shown(&rates.wall), shown(&rates.processor))
}

/// The load average of the last minute.
fn busy() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("?").to_owned()
}

/// The command that writes a form; `None` if it is not installed.
fn command(form: Form, dprobes: &Path, trace: &Path, out: &Path) -> io::Result<Option<Command>> {
    let mut command = Command::new(dprobes);
    match form {
        Form::Convert(form) => {
            command.arg("convert").arg(trace).args(["--to", form, "-o"]).arg(out);
        }
        Form::Report => {
            command.arg("report").arg(trace).stdout(fs::File::create(out)?);
        }
        Form::Page => {
            command.arg("report").arg(trace).arg("--html").arg(out).stdout(Stdio::null());
        }
        Form::Show => {
            command.arg("show").arg(trace).stdout(fs::File::create(out)?);
        }
        Form::Babeltrace => {
            let Some(babeltrace) = testing::find_program("babeltrace2") else { return Ok(None) };
            // Its input is written anew each time, so that only one form's files exist at a time.
            let source = babeltrace_source(trace);
            measure(
                Command::new(dprobes).arg("convert").arg(trace).args(["--to", "ctf", "-o"]).arg(&source),
            )?;
            command = Command::new(babeltrace);
            command.arg(source).stdout(fs::File::create(out)?);
        }
    }
    Ok(Some(command))
}

/// The trace that babeltrace2 reads.
fn babeltrace_source(trace: &Path) -> PathBuf {
    trace.with_file_name("babeltrace.ctf")
}

fn remove(out: &Path) -> io::Result<()> {
    match out.is_dir() {
        true => fs::remove_dir_all(out),
        false => fs::remove_file(out),
    }
}

/// Records a trace of about this many records, none dropped; returns its contents.
fn record(dprobes: &Path, trace: &Path, records: u64) -> io::Result<Expected> {
    let directory = trace.parent().unwrap_or(Path::new("."));
    let tight = directory.join("tight");
    build::c_program(&[build::repository().join("tests/targets/tight.c")], &[], &[], &tight)?;
    let (program, templates) = (directory.join("program.rpn"), directory.join("templates"));
    fs::write(&program, format!("name = \"{}\"\n{PROGRAM}", tight.display()))?;
    fs::create_dir_all(&templates)?;
    fs::write(templates.join("tight.fmt"), TEMPLATES)?;
    // One record for the entry and one for the return.
    let calls = records / (2 * THREADS);
    let mut command = Command::new(dprobes);
    command.args(["run", "--lossless", "--templates"]).arg(&templates).arg("-o").arg(trace).arg(&program);
    command.arg("--").arg(&tight).args([calls.to_string(), THREADS.to_string()]);
    measure(command.stdout(Stdio::null()))?;
    // Each thread calls with 0, 1, 2, and so on.
    Ok(Expected { records: 2 * THREADS * calls, sum: THREADS * calls * (calls - 1) })
}
