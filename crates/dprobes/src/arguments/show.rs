//! The arguments of `dprobes show` and `dprobes templates`, and of how records are shown.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};
use trace::{Form, Items};

use super::values::items;
use crate::selection::Selection;

/// Show the records of a trace store
///
/// A store is made with -o FILE.dpt. It has all header items, whichever are shown, and describes
/// where its probes were, what was counted and what was lost. A store that is damaged, or whose
/// writer was killed, is read as far as possible; losses are reported, with exit status 1. Records
/// are shown by the templates given, else by those given when the store was made, else as bytes.
#[derive(Debug, Args)]
#[command(
    mut_args(in_show),
    mut_arg("templates", |templates| templates.short('t')),
    after_help = "\
Examples:
  dprobes show trace.dpt                                   all records
  dprobes format trace.dpt -t examples/templates           the same, by templates
  dprobes show --info trace.dpt                            what is in it
  dprobes show --log PID TSC PROCNAME trace.dpt
  dprobes show --from 1.5s --to 2s trace.dpt               from its start
  dprobes show --from 2026-01-31T12:00:00Z trace.dpt       by the clock, in UTC
  dprobes show --probe malloc --pid 4711 trace.dpt
  dprobes show --probe 1,2 trace.dpt                       major and minor code"
)]
pub(crate) struct Show {
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// Show information about the trace, and no records
    #[arg(short, long)]
    pub(crate) info: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Adapts the selection options for `show`: the end time is `--to` here, since `show` has no form
/// to convert to, and the help of `--probe` names `--info`.
fn in_show(option: Arg) -> Arg {
    const PROBE: &str = "Only records of these probes: a probepoint as `--info` shows it, with or without its module \
                         (patterns with * ? [ ]), or MAJOR,MINOR; may be given several times";
    match option.get_id().as_str() {
        "to_time" => option.long("to"),
        "probe" => option.help(PROBE),
        _ => option,
    }
}

/// How a record is shown.
#[derive(Debug, Default, Args)]
pub(crate) struct Shown {
    /// Header items of records: PROCNAME PID UID SSESP CSEIP TSC, or ALL; separated by commas or
    /// spaces [default: PID]
    #[arg(short, long, value_name = "ITEMS", value_parser = items)]
    pub(crate) log: Vec<String>,
    /// Write logged data as plain bytes, without offsets and characters
    #[arg(short = 'f', long)]
    pub(crate) unformatted_output: bool,
    /// Show records by the templates in this directory: a file `directory`, or *.fmt files
    /// (docs/templates.md)
    #[arg(long, value_name = "DIR", conflicts_with = "unformatted_output")]
    pub(crate) templates: Option<PathBuf>,
}

impl Shown {
    /// The header items to show.
    pub(crate) fn items(&self) -> Items {
        match self.log.as_slice() {
            [] => Items::DEFAULT,
            // Already validated when the command line was read.
            lists => lists.iter().flat_map(|list| Items::parse(list)).fold(Items::NONE, Items::with),
        }
    }

    /// How logged bytes are written.
    pub(crate) fn form(&self) -> Form {
        if self.unformatted_output { Form::Unformatted } else { Form::Formatted }
    }
}

/// Check and list the templates that records are shown with
///
/// A template describes the bytes of a record and how to show them; it is found by the codes of its
/// probe. See docs/templates.md for the language. Records of a template with a mistake are shown as
/// dumps; other templates are not affected.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes templates check examples/templates
  dprobes templates list examples/templates
  dprobes run --templates examples/templates examples/malloc.rpn -- ls -l /")]
pub(crate) struct Templates {
    #[command(subcommand)]
    pub(crate) action: TemplatesAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplatesAction {
    /// Report all mistakes; the exit status is 1 if there is one
    Check {
        /// The template directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Show the names and types of the fields of each template
    List {
        /// The template directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
