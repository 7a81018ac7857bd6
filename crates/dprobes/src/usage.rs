//! Messages for a command line that cannot be parsed.
//!
//! The parser reports what a command does not take. This module adds that the option belongs to
//! another command, or is a command itself in the original's spelling.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use crate::arguments::Arguments;
use crate::messages;
use crate::service::classic_name;
use crate::stdout;

/// Adds an explanation to the parser's error, if there is one.
pub(crate) fn explain(error: Error, words: &[OsString]) -> Error {
    let Some(text) = explanation(&error, words) else { return error };
    let mut whole = Arguments::command();
    whole.build();
    match words.get(1).and_then(|word| whole.find_subcommand_mut(word)) {
        Some(command) => command.error(ErrorKind::UnknownArgument, text),
        None => whole.error(ErrorKind::UnknownArgument, text),
    }
}

/// Prints the parser's message - an error, or the help asked for - and exits. It may quote words of
/// the command line, which a shell may have expanded from file names.
pub(crate) fn end(error: &Error) -> ! {
    let styled = |is_terminal: bool| {
        let text = error.render();
        printable::laid_out(&if is_terminal { text.ansi().to_string() } else { text.to_string() })
    };
    if error.use_stderr() {
        // A failure cannot be reported anywhere.
        let _ = io::stderr().write_all(styled(io::stderr().is_terminal()).as_bytes());
    } else if let Err(failure) = stdout::show(&styled(io::stdout().is_terminal())) {
        messages::say(failure);
        std::process::exit(1);
    }
    std::process::exit(error.exit_code())
}

fn explanation(error: &Error, words: &[OsString]) -> Option<String> {
    nothing_to_probe(error)
        .or_else(|| before_the_command(words))
        .or_else(|| process_as_file(error, words))
        .or_else(|| nothing_to_list(error))
        .or_else(|| foreign_option(error, words))
}

/// What was not said of a probe.
fn nothing_to_probe(error: &Error) -> Option<String> {
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument && names(error, "PROG.rpn");
    is_missing.then(|| {
        "what to probe is missing: a program file, or functions, as in `--at libc:malloc`; `dprobes list` shows them"
            .to_owned()
    })
}

/// What was not said of a list.
fn nothing_to_list(error: &Error) -> Option<String> {
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument && names(error, "<FILE>");
    let is_list = is_missing && error.to_string().contains("dprobes list");
    is_list.then(|| {
        "what to list is missing: a file or a library, as in `dprobes list libc`, or a process, as in `-p 4711`"
            .to_owned()
    })
}

/// Options before the command that they belong to.
fn before_the_command(words: &[OsString]) -> Option<String> {
    let first = words.get(1)?.to_str().filter(|word| word.starts_with('-'))?;
    let first = first.split('=').next()?;
    let whole = Arguments::command();
    let mut words = words.iter().skip(2).filter_map(|word| word.to_str());
    let command = words.find(|word| whole.find_subcommand(word).is_some());
    let command = command.or_else(|| (first == "-e").then_some("trace"))?;
    Some(format!("options stand behind the command: `dprobes {command} {first} ...`"))
}

/// Whether an error is about an argument.
fn names(error: &Error, argument: &str) -> bool {
    let texts = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let texts = [texts(ContextKind::InvalidArg), texts(ContextKind::PriorArg)].concat();
    texts.iter().any(|text| text.contains(argument))
}

/// A process id without its option is taken for the program's file.
fn process_as_file(error: &Error, words: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::ArgumentConflict || !names(error, "PROG.rpn") {
        return None;
    }
    let words = words.iter().filter_map(|word| word.to_str()).skip(2).take_while(|word| *word != "--");
    let mut numbers = words.filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()));
    let number = numbers.find(|number| std::path::Path::new("/proc").join(number).exists())?;
    Some(format!("`{number}` is no program file; a process is given as `-p {number}`"))
}

/// An option of another command.
fn foreign_option(error: &Error, words: &[OsString]) -> Option<String> {
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
            Some(format!("`{option}` is a command; only one command can be given"))
        }
        None => None,
        Some((only, [])) => Some(format!("`{command}` takes no `{option}`; {only} does")),
        Some((last, others)) => {
            Some(format!("`{command}` takes no `{option}`; {} and {last} do", others.join(", ")))
        }
    }
}

/// Whether a command takes an option in this spelling.
fn takes(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| match option.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => option.strip_prefix('-').is_some_and(|short| {
            argument.get_short().is_some_and(|own| short.len() == own.len_utf8() && short.starts_with(own))
        }),
    })
}
