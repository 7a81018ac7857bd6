//! The arguments of `help`.

use std::path::PathBuf;

use clap::Args;

/// Show the help of a command, or a page of the documentation
///
/// Without a topic: the commands and the topics. What is the name of a command and of a page shows
/// both. Words behind a page select its sections by their headings, or rows of its tables: a
/// function or value of scripts, an instruction. On a terminal, by `less` or the command in PAGER.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes help cookbook
  dprobes help scripts source lines      the section with this heading
  dprobes help scripts ustack            what the page says of a word
  dprobes help session stop
  dprobes help examples -o .              writes the examples to ./examples")]
pub(crate) struct Help {
    /// A command, a page with words of a section, or `examples`
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
    /// Of `examples`: write them to a new folder in DIR
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
}
