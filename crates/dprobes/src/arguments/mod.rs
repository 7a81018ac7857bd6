//! The command line: a file for each family of subcommands, and files for the options that several
//! share.
//!
//! In: the words of the command line, after `join_words` and `command_start`. Out: [`Arguments`],
//! with one variant of [`Command`] that `main` dispatches.

mod compile;
mod convert;
mod coverage;
mod doctor;
mod export;
mod header;
mod help;
mod insert;
mod list;
mod moment;
mod only;
mod probes;
mod processes;
mod report;
mod run;
mod serve;
mod shortcut;
mod show;
mod tools;
mod top;
mod trace;
mod tracing;
mod values;
mod watch;

use clap::{Parser, Subcommand};

pub(crate) use compile::{BuildPpdf, Check, Emit};
pub(crate) use convert::{Convert, To};
pub(crate) use coverage::Coverage;
pub(crate) use doctor::Doctor;
pub(crate) use export::Export;
pub(crate) use header::Header;
pub(crate) use help::Help;
pub(crate) use insert::{ApplyPpdf, GetVars, Insert, Placing, Query, Remove, Session, SessionAction, Which};
pub(crate) use list::List;
pub(crate) use moment::{Moment, moment};
pub(crate) use probes::{Preprocessor, Probes, Program, Select};
pub(crate) use processes::ids_of;
pub(crate) use report::Report;
pub(crate) use run::{Attach, Run};
pub(crate) use serve::Serve;
pub(crate) use shortcut::{
    ByArgument, Count, CountFormat, Functions, Latency, ShortcutOutput, Stacks, Traced, of_script,
};
pub(crate) use show::{LogFormat, Show, Shown, Templates, TemplatesAction};
pub(crate) use tools::{RunTool, Tools, ToolsAction};
pub(crate) use top::Top;
pub(crate) use trace::{Firing, ScriptFormat, Trace};
pub(crate) use tracing::{
    AttachEngine, Buffering, Cost, Engine, Format, InsertEngine, Plugin, Runner, Tracing,
};
pub(crate) use values::duration;
pub(crate) use watch::{Watch, WatchAccess};

/// Dynamic probes on running programs
#[derive(Debug, Parser)]
#[command(
    name = "dprobes",
    version = env!("DPROBES_VERSION"),
    disable_help_subcommand = true,
    max_term_width = 100,
    help_template = "{about}\n\n{usage-heading} {usage}\n\nCommands:\n{subcommands}{after-help}",
    after_help = "\
`dprobes COMMAND --help` has options and examples of each; `dprobes help` lists further topics.

Examples:
  dprobes count -p redis-server 'a.out:dict*' --for 5s      which functions are called
  dprobes trace -p 4711 'uprobe:libc:malloc { @ = hist(arg0); }'
  dprobes doctor                                            what works here"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count the calls of functions
    ///
    /// In running processes (-p), in a command that is started, or else in all processes. Counts
    /// are by function.
    Count(Count),
    /// Show how long functions take
    ///
    /// For each function: how many calls have returned, their average and total time, and a
    /// histogram. Text has times with units; JSON has nanoseconds.
    Latency(Latency),
    /// Show from where functions are called
    ///
    /// Stacks, with how often each was seen; the most frequent is the last.
    Stacks(Stacks),
    /// Show which source lines of a program are reached
    ///
    /// The program is as it is, compiled with -g: nothing is compiled for this, or linked to it.
    /// Each piece of its code has a probe that removes itself at the first hit; so the program is
    /// soon as fast as ever. Processes that it creates are measured with it. A summary goes to
    /// standard error, and -o writes a tracefile for genhtml and other tools of lcov. The exit
    /// status is the command's own; 125 if dprobes fails.
    Coverage(Coverage),
    /// Run ready-made scripts: leaks, locks, opened files, TLS data and more
    Tools(Tools),
    /// Run a script in the language of bpftrace on processes
    ///
    /// SCRIPT is a text, or a file if one of that name is there; `dprobes help scripts` describes
    /// the language. It runs inside the probed processes: with -p in running ones, with -c or `--
    /// COMMAND` in a new one, and in those that these create. What the script prints goes to
    /// standard output, what is told about the probes to standard error. Tracing ends with the
    /// processes, with exit(), or with Ctrl-C.
    Trace(Trace),
    /// Run a command with probes in it
    Run(Run),
    /// Probe a running process, or all processes
    Attach(Attach),
    /// Show what probes count, live in the terminal
    Top(Top),
    /// Show who changes a variable of a running process
    Watch(Watch),
    /// List modules and the functions in them that can be probed
    List(List),
    /// Make a C header of a description of static probes
    Header(Header),
    /// Say what can be probed here, and what to do about the rest
    Doctor(Doctor),
    /// Compile a probe program, or check a script, and report what is wrong with it
    ///
    /// A file whose name ends in .bt is a script in the language of bpftrace (`dprobes help
    /// scripts`). `dprobes trace` runs scripts.
    Check(Check),
    /// Resolve the probes of a program in advance, into a PPDF
    ///
    /// For machines without the compiler or the symbols.
    BuildPpdf(BuildPpdf),
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
    /// Start, show or stop the background session
    Session(Session),
    /// Check and list the templates that records are shown with
    Templates(Templates),
    /// Show the records of a trace store
    #[command(visible_alias = "format")]
    Show(Show),
    /// Convert a trace store to other forms
    Convert(Convert),
    /// Report on a trace store: functions, calls, rates, latencies
    Report(Report),
    /// Show a trace store in the browser, also while it is written
    Serve(Serve),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
        /// Instead of the script: what the last of these words of a command line may become
        #[arg(last = true, hide = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Show the help of a command, or a page of the documentation
    Help(Help),
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

    #[test]
    fn the_first_page_fits_on_a_screen() {
        let help = super::Arguments::command().render_long_help().to_string();
        assert!(help.lines().count() <= 40 && help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
