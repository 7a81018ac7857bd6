//! Where the probed command begins on a command line: `run --at libc:malloc ls -l` is
//! `run --at libc:malloc -- ls -l`, as `env` and `timeout` take it.
//!
//! The words of the command are its own: an option among them is not one of dprobes. So the place
//! is found before anything is parsed.

use std::ffi::OsString;

use clap::{ArgAction, Command, CommandFactory};

use crate::arguments::Arguments;
use crate::join_words;

/// The commands that start one, after the program file unless there is `--at`.
const STARTING: [&str; 2] = ["run", "top"];

/// Inserts `--` before the probed command, where it is missing.
pub(crate) fn mark(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.get(1).and_then(|word| word.to_str()).filter(|name| STARTING.contains(name));
    let Some(name) = name.map(str::to_owned) else { return words };
    let whole = Arguments::command();
    let start = whole.find_subcommand(&name).and_then(|command| start(command, &words));
    if let Some(start) = start {
        words.insert(start, "--".into());
    }
    words
}

/// The place of the command's first word.
fn start(command: &Command, words: &[OsString]) -> Option<usize> {
    let mut has_program = false;
    let mut place = 2;
    while let Some(word) = words.get(place) {
        let text = word.to_string_lossy();
        if text == "--" {
            return None;
        }
        if let Some(count) = join_words::list(&words[place..]) {
            place += count;
        } else if text.starts_with('-') && text.len() > 1 {
            let (option, has_value) = match text.split_once('=') {
                Some((option, _)) => (option, true),
                // A short one may have its value behind it.
                None => (&*text, !text.starts_with("--") && text.chars().count() > 2),
            };
            has_program |= option == "--at";
            place += if !has_value && takes_value(command, option) { 2 } else { 1 };
        } else if has_program {
            return Some(place);
        } else {
            has_program = true;
            place += 1;
        }
    }
    None
}

fn takes_value(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| {
        let is_named = match option.strip_prefix("--") {
            Some(long) => argument.get_long() == Some(long),
            None => {
                argument.get_short().is_some_and(|short| option.strip_prefix('-') == Some(&short.to_string()))
            }
        };
        is_named && matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
    })
}

#[cfg(test)]
mod tests {
    use super::mark;

    #[test]
    fn the_command_begins_behind_the_program_or_the_points() {
        for (line, marked) in [
            ("run --at libc:malloc ls -l /", "run --at libc:malloc -- ls -l /"),
            ("run --at=libc:malloc --do x ls", "run --at=libc:malloc --do x -- ls"),
            ("run a.rpn ls --log x", "run a.rpn -- ls --log x"),
            ("run -D X=1 -I dir a.rpn ls -o y", "run -D X=1 -I dir a.rpn -- ls -o y"),
            ("run -DX a.rpn --log PID TSC --lossless ls", "run -DX a.rpn --log PID TSC --lossless -- ls"),
            ("run --group process memory ./a.ppdf ./app", "run --group process memory ./a.ppdf -- ./app"),
            ("run a.rpn -- ls -- x", "run a.rpn -- ls -- x"),
            ("run a.rpn", "run a.rpn"),
            ("run --at libc:malloc", "run --at libc:malloc"),
            ("top a.rpn -p 17", "top a.rpn -p 17"),
            (
                "top --interval 1s --at a.out:f ./app -p 8080",
                "top --interval 1s --at a.out:f -- ./app -p 8080",
            ),
            ("attach --at libc:malloc 4711", "attach --at libc:malloc 4711"),
            ("run", "run"),
        ] {
            let words = format!("dprobes {line}").split(' ').map(Into::into).collect();
            let words: Vec<_> =
                mark(words).into_iter().map(|word| word.into_string().expect("text")).collect();
            assert_eq!(words.join(" "), format!("dprobes {marked}"));
        }
    }
}
