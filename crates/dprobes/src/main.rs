//! The `dprobes` command: reads the command line, compiles the probe program, has the engine insert
//! it, and shows the results: records as they are made, messages, a summary.
//!
//! No crate depends on this one. It knows nothing of what is inside a probed process: `agent`,
//! `jit`, `layout`, `rings` and `unwind` are the engine's. Every error is reported in one message
//! that says what to do, and gives a non-zero exit status. No process is touched until everything
//! that can be checked in advance has been checked.
//!
//! | file | what it is |
//! |---|---|
//! | `arguments`, `join_words`, `command_start`, `usage` | the command line; options that take lists of words; where the probed command begins; messages for a wrong command line |
//! | `session`, `started_command`, `top`, `front`, `control` | `run`, `attach` and `top`: the command, the front and tracer processes, signals and time limits |
//! | `death_watch`, `heap` | how the front learns that the tracer has died; freed memory given back |
//! | `kernel_engine` | `attach` to all processes, and to one with `--engine kernel`: the kernel runs the handlers |
//! | `watch` | `watch`: who writes to a variable |
//! | `scripts` | `trace`, which runs scripts, and `check` of them |
//! | `service` | the background session: `insert`, `remove`, `query`, `getvars`, `session` |
//! | `program`, `points`, `ppdf`, `symbols` | what is probed: a program's text, `--at`, a PPDF; files with symbols |
//! | `coverage` | `coverage`: which lines and branches of a program are reached |
//! | `check`, `list`, `doctor` | `check`, `list` and `doctor`, which change nothing |
//! | `debuginfod` | debug information from servers |
//! | `header` | C headers of descriptions of static probes |
//! | `shortcuts`, `tools` | `count`, `latency` and `stacks`, which are `--at` and scripts; scripts that come with the command |
//! | `output`, `targets`, `lines` | targets, which take records; source lines of sites |
//! | `outfile`, `stdout` | output files that replace an old file only once there is something to keep; standard output |
//! | `hooks` | plugins, and the hooks that they register at |
//! | `show`, `convert`, `report`, `templates`, `selection` | commands that read trace stores and templates |
//! | `summary`, `stats`, `cost`, `silent` | counts and variables, as text and as JSON; what probing has cost; why a probe may not have been hit |
//! | `help`, `man`, `markdown` | `help` with its pages, the manual pages, and how both read the documentation |
//! | `sleeper` | a thread that another interrupts |
//! | `failure`, `messages`, `progress` | errors that end the command; messages on standard error; what is being done, on a terminal |

mod addresses;
mod arguments;
mod at_programs;
mod check;
mod command_start;
mod completions;
mod control;
mod convert;
mod cost;
mod coverage;
mod death_watch;
mod debuginfod;
mod doctor;
mod failure;
mod front;
mod header;
mod heap;
mod help;
mod hooks;
mod inlined;
mod join_words;
mod kernel_engine;
mod lines;
mod list;
mod man;
mod markdown;
mod messages;
mod outfile;
mod output;
mod pending_files;
mod points;
mod ppdf;
mod program;
mod progress;
mod report;
mod scripts;
mod selection;
mod serve;
mod service;
mod session;
mod shortcuts;
mod show;
mod silent;
mod sleeper;
mod started_command;
mod stats;
mod stdout;
mod summary;
mod symbols;
mod targets;
mod templates;
mod tools;
mod top;
mod usage;
mod watch;
mod wrappers;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;

fn main() -> ExitCode {
    process::ignore_file_size_limit();
    let words = join_words::join(command_start::mark(service::modern(std::env::args_os().collect())));
    let arguments =
        Arguments::try_parse_from(&words).unwrap_or_else(|error| usage::end(&usage::explain(error, &words)));
    let result = match arguments.command {
        Command::Run(run) => session::run(&run),
        Command::Attach(attach) => match attach.by_tracer() {
            Some((pids, engine)) => session::attach(&attach, &pids, engine),
            None => kernel_engine::attach(&attach),
        },
        Command::Trace(arguments) => scripts::trace(&arguments),
        Command::Count(arguments) => shortcuts::count(&arguments),
        Command::Latency(arguments) => shortcuts::latency(&arguments),
        Command::Stacks(arguments) => shortcuts::stacks(&arguments),
        Command::Coverage(arguments) => coverage::coverage(&arguments),
        Command::Tools(arguments) => tools::tools(&arguments),
        Command::Watch(arguments) => watch::watch(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Check(check) => check::check(&check),
        Command::BuildPpdf(build) => ppdf::build(&build),
        Command::List(list) => list::list(&list),
        Command::Header(arguments) => header::header(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Insert(insert) => service::insert(&insert),
        Command::ApplyPpdf(apply) => service::apply(&apply),
        Command::Remove(remove) => service::remove(&remove),
        Command::Query(query) => service::query(&query),
        Command::Getvars(getvars) => service::getvars(&getvars),
        Command::Session(session) => service::session(&session),
        Command::Templates(templates) => templates::templates(&templates),
        Command::Show(show) => show::show(&show),
        Command::Convert(arguments) => convert::convert(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Completions { shell, words } => {
            completions::completions(shell, &words, Arguments::command())
        }
        Command::Help(arguments) => help::help(&arguments, Arguments::command()).map(|()| ExitCode::SUCCESS),
        Command::Man { page } => man::man(page, Arguments::command()).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        messages::say(failure.text());
        ExitCode::from(failure.status())
    })
}
