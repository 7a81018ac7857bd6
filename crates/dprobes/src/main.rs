//! The `dprobes` command.
//!
//! It reads the command line, compiles the program, lets the engine place it, and shows what comes back: records
//! as they are made, messages, a summary. It knows all crates and none knows it. Whatever goes wrong is told in one
//! message that says what to do, and ends in a non-zero status; no process is touched before everything that can
//! be checked has been.
//!
//! | file | what it is |
//! |---|---|
//! | `arguments`, `lists`, `usage` | the command line; its lists of words; what is said of one that is not understood |
//! | `session`, `top`, `front`, `control` | `run`, `attach` and `top`: two processes, signals and time |
//! | `service` | the background session: `insert`, `remove`, `query`, `getvars`, `session` |
//! | `program`, `points`, `ppdf`, `symbols` | what is probed: a program's text, `--at`, a PPDF; files with symbols |
//! | `check`, `list` | `check` and `list`, which change nothing |
//! | `output`, `targets`, `lines` | where records go, and what is told of them |
//! | `outfile` | files, which replace others only when there is something to keep |
//! | `hooks` | plugins, and the hooks that they register at |
//! | `show`, `convert`, `report`, `templates`, `selection` | what is done with trace stores and templates |
//! | `summary`, `stats` | what was counted, as text and as JSON |
//! | `man` | the manual pages |
//! | `failure`, `messages` | why the command ends early; what is said on standard error |

mod arguments;
mod check;
mod control;
mod convert;
mod failure;
mod front;
mod heap;
mod hooks;
mod life;
mod lines;
mod list;
mod lists;
mod man;
mod messages;
mod outfile;
mod output;
mod points;
mod ppdf;
mod program;
mod report;
mod selection;
mod service;
mod session;
mod show;
mod stats;
mod stdout;
mod summary;
mod symbols;
mod targets;
mod templates;
mod top;
mod usage;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;

fn main() -> ExitCode {
    process::ignore_file_size_limit();
    let words = lists::join(service::modern(std::env::args_os().collect()));
    let arguments =
        Arguments::try_parse_from(&words).unwrap_or_else(|error| usage::end(&usage::explain(error, &words)));
    let result = match arguments.command {
        Command::Run(run) => session::run(&run),
        Command::Attach(attach) => session::attach(&attach),
        Command::Top(arguments) => top::top(&arguments),
        Command::Check(check) => check::check(&check),
        Command::BuildPpdf(build) => ppdf::build(&build),
        Command::List(list) => list::list(&list),
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
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "dprobes", &mut script);
            let written = std::io::Write::write_all(&mut std::io::stdout(), &script);
            written.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(format!("the script: {error}")))
        }
        Command::Man { page } => man::man(page, Arguments::command()).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        messages::say(failure.text());
        ExitCode::from(failure.status())
    })
}
