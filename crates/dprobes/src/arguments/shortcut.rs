//! The arguments of `dprobes count`, `latency` and `stacks`: the questions that everyone has first.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::processes::Processes;
use super::trace::{Printed, Trace};
use super::tracing::{AttachEngine, Cost, Verbose};
use super::values::duration;
use crate::points::At;

/// Functions, and the processes that call them.
#[derive(Debug, Args)]
pub(crate) struct Functions {
    /// The functions, or points in them; all fields may be patterns with * ? [ ]
    ///
    /// MODULE is a library (libc.so.6, or libc for short), a path, or a.out for the program itself;
    /// without one, the functions of all modules are meant.
    #[arg(value_name = "MODULE:FUNCTION", required = true, value_parser = crate::points::parse)]
    pub(crate) functions: Vec<At>,
    #[command(flatten)]
    pub(crate) traced: Traced,
}

/// What is traced, and how long.
#[derive(Debug, Args)]
pub(crate) struct Traced {
    #[command(flatten)]
    pub(crate) processes: Processes,
    /// Stop this long after the probes are in: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// The command to start, and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    pub(crate) command: Vec<OsString>,
}

/// `dprobes count`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes count -p redis-server 'a.out:dict*' --for 5s
  dprobes count 'libc:mem*' -- ls -l /
  dprobes count -f json -o counts.json -p 4711 a.out:serve --for 10s
  dprobes count libcrypto:EVP_DigestUpdate --for 10s       in all processes, by the kernel")]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) of: Functions,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: AttachEngine,
    /// The form of the counts; as JSON they go to standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: CountFormat,
    /// Write the counts to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say nothing but the counts
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Write the counts to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the
    /// program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    #[command(flatten)]
    pub(crate) cost: Cost,
}

/// The form of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CountFormat {
    /// A table
    Text,
    /// A JSON object: `dprobes help stats`
    Json,
}

/// `dprobes latency`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes latency -p redis-server a.out:call --for 5s
  dprobes latency 'libc:read' 'libc:write' -- ls -lR /etc
  dprobes latency -p 4711 a.out:handle --every 1s          a histogram each second
  dprobes latency -p 4711 a.out:handle --by arg0           for each value of an argument
  dprobes latency -p 4711 a.out:handle --by name           of one that debug information names")]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) of: Functions,
    /// Apart for each value of an argument: `arg0`, or its name; `str(arg0)` if it points to text
    ///
    /// A name needs debug information, which also tells whether the argument is a string. Of more
    /// than 20 values, the slowest and the most frequent are shown.
    #[arg(long, value_name = "ARGUMENT", value_parser = by_argument)]
    pub(crate) by: Option<ByArgument>,
    #[command(flatten)]
    pub(crate) shown: ShortcutOutput,
}

/// An argument of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByArgument {
    /// `arg0`, or a name.
    pub(crate) name: String,
    /// Whether it is said to point to text.
    pub(crate) is_text: bool,
}

impl ByArgument {
    /// Whether it has a name, and no number.
    pub(crate) fn is_named(&self) -> bool {
        self.name.strip_prefix("arg").is_none_or(|number| number.parse::<u8>().is_err())
    }
}

fn by_argument(text: &str) -> Result<ByArgument, String> {
    let inside = text.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')'));
    let name = inside.unwrap_or(text).trim();
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_name = name.starts_with(is_first) && name.chars().all(|it| is_first(it) || it.is_ascii_digit());
    match is_name {
        true => Ok(ByArgument { name: name.to_owned(), is_text: inside.is_some() }),
        false => Err("an argument is expected: arg0, its name, or str(arg0) if it points to text".to_owned()),
    }
}

/// `dprobes stacks`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes stacks -p redis-server libc:write --for 5s
  dprobes stacks libc:malloc --flame malloc.svg -- ls -l /     a flame graph
  dprobes stacks -p 4711 --depth 5 --top 3 a.out:handle")]
pub(crate) struct Stacks {
    #[command(flatten)]
    pub(crate) of: Functions,
    /// The most frames of a stack
    #[arg(long, value_name = "FRAMES", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=127))]
    pub(crate) depth: u8,
    /// Only the most frequent stacks
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: u32,
    #[command(flatten)]
    pub(crate) shown: ShortcutOutput,
}

/// How the answer is shown.
#[derive(Debug, Args)]
pub(crate) struct ShortcutOutput {
    /// Print what was found in each such time, not once at the end: 1s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) every: Option<Duration>,
    #[command(flatten)]
    pub(crate) printed: Printed,
    /// Show the script that is run, and run nothing
    #[arg(long)]
    pub(crate) show_script: bool,
}

/// The arguments of `trace` for a ready-made script with its parameters.
pub(crate) fn of_script(text: String, parameters: &[String], traced: &Traced, printed: &Printed) -> Trace {
    Trace {
        script: parameters.to_vec(),
        text: Some(text),
        processes: traced.processes.clone(),
        printed: printed.clone(),
        duration: traced.duration,
        command: traced.command.clone(),
        durations: true,
        ..Trace::default()
    }
}
