//! What is said of a command line that cannot be understood.
//!
//! The parser knows what a command does not take. That the option belongs to another command, or is a command itself in
//! the original's spelling, is said here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use crate::arguments::Arguments;
use crate::messages;
use crate::service::classic_name;
use crate::stdout;

/// The same error, with what can be said beyond it.
pub(crate) fn explain(error: Error, words: &[OsString]) -> Error {
    let Some(text) = explanation(&error, words) else { return error };
    let mut whole = Arguments::command();
    whole.build();
    match words.get(1).and_then(|word| whole.find_subcommand_mut(word)) {
        Some(command) => command.error(ErrorKind::UnknownArgument, text),
        None => error,
    }
}

/// Ends the command with what the parser has to say: a mistake, or the help that was asked for. Words of the command line stand in it, which a
/// shell may have made of names of files.
pub(crate) fn end(error: &Error) -> ! {
    let styled = |is_terminal: bool| {
        let text = error.render();
        printable::laid_out(&if is_terminal { text.ansi().to_string() } else { text.to_string() })
    };
    if error.use_stderr() {
        // There is nobody to tell that it failed.
        let _ = io::stderr().write_all(styled(io::stderr().is_terminal()).as_bytes());
    } else if let Err(failure) = stdout::show(&styled(io::stdout().is_terminal())) {
        messages::say(failure);
        std::process::exit(1);
    }
    std::process::exit(error.exit_code())
}

fn explanation(error: &Error, words: &[OsString]) -> Option<String> {
    let ContextValue::String(option) = error.get(ContextKind::InvalidArg)? else { return None };
    if error.kind() != ErrorKind::UnknownArgument || !option.starts_with('-') {
        return None;
    }
    let option = option.split('=').next()?;
    let command = words.get(1)?.to_str()?;
    let whole = Arguments::command();
    let takers: Vec<String> = whole
        .get_subcommands()
        .filter(|other| !other.is_hide_set() && takes(other, option))
        .map(|other| format!("`{}`", other.get_name()))
        .collect();
    match takers.split_last() {
        None if classic_name(option).is_some() => {
            Some(format!("`{option}` is a command of its own, and one command is given at a time"))
        }
        None => None,
        Some((only, [])) => Some(format!("`{command}` takes no `{option}`; {only} does")),
        Some((last, others)) => {
            Some(format!("`{command}` takes no `{option}`; {} and {last} do", others.join(", ")))
        }
    }
}

/// Whether a command takes an option, as it was spelled.
fn takes(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| match option.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => option.strip_prefix('-').is_some_and(|short| {
            argument.get_short().is_some_and(|own| short.len() == own.len_utf8() && short.starts_with(own))
        }),
    })
}
