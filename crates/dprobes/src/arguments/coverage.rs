//! The arguments of `dprobes coverage`.

use std::path::PathBuf;

use clap::Args;
use image::Pattern;

use super::shortcut::Traced;

/// `dprobes coverage`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes coverage -- ./app --self-test
  dprobes coverage -o app.info --branches -m ./app -- make check
  dprobes coverage -m a.out -m ./plugin.so --source '/src/plugin/*' -- ./app
  dprobes coverage -p app --for 10s                        what it does in these ten seconds
  dprobes coverage --missing --source parse.c -- ./app     the lines of a file that were not reached
  genhtml --branch-coverage app.info -o html               pages for the browser, by lcov")]
pub(crate) struct Coverage {
    /// Write a tracefile, in lcov's format
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Measure this program or library, also when it is loaded later: a path, a library's name, or
    /// a.out for the program itself; may be given several times [default: a.out]
    #[arg(short, long, value_name = "MODULE")]
    pub(crate) module: Vec<String>,
    /// Measure only source files whose path matches, whole or from a / on; may be given several
    /// times
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) source: Vec<Pattern>,
    /// Measure also which ways conditional jumps take, where control flow proves it
    #[arg(short, long)]
    pub(crate) branches: bool,
    /// Print also which lines were not reached, by function
    #[arg(long)]
    pub(crate) missing: bool,
    /// Print no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) traced: Traced,
}

/// Parses a pattern for paths.
fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| error.to_string())
}
