//! The command line: a file for each family of subcommands, and files for the options that several
//! share.

mod compile;
mod convert;
mod insert;
mod list;
mod moment;
mod probes;
mod processes;
mod report;
mod run;
mod shortcut;
mod show;
mod top;
mod trace;
mod tracing;
mod values;
mod watch;

use clap::{Parser, Subcommand};

pub(crate) use compile::{BuildPpdf, Check, Emit};
pub(crate) use convert::{Convert, To};
pub(crate) use insert::{ApplyPpdf, GetVars, Insert, Placing, Query, Remove, Session, SessionAction, Which};
pub(crate) use list::List;
pub(crate) use moment::{Moment, moment};
pub(crate) use probes::{Preprocessor, Probes, Program, Select};
pub(crate) use report::Report;
pub(crate) use run::{Attach, Run};
pub(crate) use shortcut::{Count, Functions, Latency, ShortcutOutput, Stacks};
pub(crate) use show::{Show, Shown, Templates, TemplatesAction};
pub(crate) use top::Top;
pub(crate) use trace::{ScriptFormat, Trace};
pub(crate) use tracing::{AttachEngine, Engine, Format, Plugin, Tracing};
pub(crate) use values::duration;
pub(crate) use watch::{Watch, WatchAccess};

/// Dynamic probes on running programs.
///
/// A probe program says where to probe (a module, and functions or offsets in it) and what to do at
/// each hit: test, count, log, change. It is put into a running process or a new one without
/// changing it on disk, stopping it, or losing a hit.
#[derive(Debug, Parser)]
#[command(
    name = "dprobes",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  dprobes run examples/malloc.rpn -- ls -l /      probe a command from its first instruction
  dprobes run --at 'libc:mem*:entry' -- ls -l /   count the calls of functions
  dprobes attach -p 4711 count.rpn --for 10s      probe a running process for ten seconds
  dprobes attach count.rpn                        probe all processes
  dprobes check --emit asm count.rpn              compile only, and show the instructions
  dprobes list /bin/ls 'str*'                     functions that can be probed"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with probes in it
    Run(Run),
    /// Probe a running process, or all processes
    Attach(Attach),
    /// Run a script in the language of bpftrace on processes
    ///
    /// SCRIPT is a text, or a file if one of that name is there (docs/scripts.md). It runs inside
    /// the probed processes: with -p in running ones, with -c or `-- COMMAND` in a new one, and in
    /// those that these create. What the script prints goes to standard output, what is told about
    /// the probes to standard error. Tracing ends with the processes, with exit(), or with Ctrl-C.
    Trace(Trace),
    /// Count the calls of functions
    ///
    /// In running processes (-p), in a command that is started, or else in all processes. Counts
    /// are by function.
    Count(Count),
    /// Show how long functions take
    ///
    /// For each function: how many calls have returned, their average and total time, and a
    /// histogram; all in nanoseconds.
    Latency(Latency),
    /// Show from where functions are called
    ///
    /// Stacks, with how often each was seen; the most frequent is the last.
    Stacks(Stacks),
    /// Show who changes a variable of a running process
    Watch(Watch),
    /// Show what probes count, live in the terminal
    Top(Top),
    /// Compile a probe program, or check a script, and report what is wrong with it
    ///
    /// A file whose name ends in .bt is a script in the language of bpftrace (docs/scripts.md).
    /// `dprobes trace` runs scripts.
    Check(Check),
    /// Compile a probe program and resolve its probes, for machines without the compiler or the
    /// symbols
    BuildPpdf(BuildPpdf),
    /// List modules and the functions in them that can be probed
    List(List),
    /// Insert probes and return; a background session keeps them
    Insert(Insert),
    /// Insert the probes of a PPDF and return
    ApplyPpdf(ApplyPpdf),
    /// Remove inserted probes
    Remove(Remove),
    /// Show the inserted probes
    Query(Query),
    /// Show or reset the variables of inserted programs
    Getvars(GetVars),
    /// Show or stop the background session
    Session(Session),
    /// Check and list the templates that records are shown with
    Templates(Templates),
    /// Show the records of a trace store
    #[command(visible_alias = "format")]
    Show(Show),
    /// Convert a trace store to other forms
    Convert(Convert),
    /// Report on a trace store: rates, latencies, top talkers
    Report(Report),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, as roff
    #[command(hide = true)]
    Man {
        /// The page
        page: crate::man::Page,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
