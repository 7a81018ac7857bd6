//! The arguments of `dprobes show` and `dprobes templates`, and of how records are shown.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use trace::line::LineView;
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
    after_help = "\
Examples:
  dprobes show trace.dpt                                   all records
  dprobes format trace.dpt --templates templates/          the same, by templates
  dprobes show --info trace.dpt                            what is in it
  dprobes show --log PID TSC PROCNAME trace.dpt
  dprobes show --log-format klog trace.dpt                 rows of bytes, as the original
  dprobes show --from 1.5s --until 2s trace.dpt               from its start
  dprobes show --from 2026-01-31T12:00:00Z trace.dpt       by the clock, in UTC
  dprobes show --probe malloc --pid 4711 trace.dpt
  dprobes show --probe 1,2 trace.dpt                       major and minor code
  dprobes show --follow dprobes.ltt                        a stream of the target `ltt`, while it is written"
)]
pub(crate) struct Show {
    /// The trace store, or a stream of the target `ltt`
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// Show information about the trace, and no records
    #[arg(long)]
    pub(crate) info: bool,
    /// Show a stream of the target `ltt` while it is written, until its programs are removed
    #[arg(long, conflicts_with = "info")]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Adapts the selection options for `show`: the help of `--probe` names `--info`.
fn in_show(option: Arg) -> Arg {
    const PROBE: &str = "Only records of these probes: a probepoint as `--info` shows it, with or without its module \
                         (patterns with * ? [ ]), or MAJOR,MINOR; may be given several times";
    match option.get_id().as_str() {
        "probe" => option.help(PROBE),
        _ => option,
    }
}

/// How a record is shown.
#[derive(Debug, Default, Args)]
pub(crate) struct Shown {
    /// Header items of records: PROCNAME PID UID SSESP CSEIP TSC, or ALL; separated by commas or
    /// spaces [default: TSC PROCNAME PID in lines, else PID]
    #[arg(short, long, value_name = "ITEMS", value_parser = items)]
    pub(crate) log: Vec<String>,
    /// The form of records as text [default: line; at KLOG, COM1, COM2, serial and EVL always klog]
    #[arg(long, value_name = "FORM", overrides_with = "log_format")]
    pub(crate) log_format: Option<LogFormat>,
    /// Write logged data as plain bytes, without offsets and characters; implies --log-format klog
    #[arg(short = 'f', long)]
    pub(crate) unformatted_output: bool,
    /// Show records by the templates in this directory: a file `directory`, or *.fmt files
    /// (`dprobes help templates`)
    #[arg(long, value_name = "DIR", conflicts_with = "unformatted_output")]
    pub(crate) templates: Option<PathBuf>,
}

/// The form of records as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum LogFormat {
    /// A line for each hit: time, thread, probe, values
    Line,
    /// The original's: codes and header items, then rows of bytes
    Klog,
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

    /// How records are shown as lines, if they are.
    pub(crate) fn line_items(&self) -> Option<Items> {
        let is_line = self.log_format != Some(LogFormat::Klog);
        if !is_line || self.unformatted_output || self.templates.is_some() {
            return None;
        }
        // The other form always has the processor.
        let names = |list: &String| list.to_ascii_uppercase();
        let has_cpu = self
            .log
            .iter()
            .map(names)
            .any(|list| list.split([',', ' ', '\t']).any(|name| matches!(name, "CPU" | "ALL")));
        Some(match (self.log.is_empty(), has_cpu) {
            (true, _) => LineView::ITEMS,
            (false, true) => self.items(),
            (false, false) => self.items().without(Items::CPU),
        })
    }

    /// How logged bytes are written.
    pub(crate) fn form(&self) -> Form {
        if self.unformatted_output { Form::Unformatted } else { Form::Formatted }
    }
}

/// Check and list the templates that records are shown with
///
/// A template describes the bytes of a record and how to show them; it is found by the codes of its
/// probe. See `dprobes help templates` for the language. Records of a template with a mistake are
/// shown as dumps; other templates are not affected.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes templates check templates/
  dprobes templates list templates/
  dprobes run --templates templates/ app.rpn -- ./app")]
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
