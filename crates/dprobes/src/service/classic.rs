//! Translates the original's command line: `dprobes --insert FILE`, `dprobes -q --all`.
//!
//! The original's options for commands are subcommands here. The first of them becomes the
//! subcommand; its value, if it has one, takes the place of the file. The original never had long
//! names with a single dash.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::join_words;

/// The classic commands: long, short, subcommand.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("--insert", "-i", "insert"),
    ("--remove", "-r", "remove"),
    ("--query", "-q", "query"),
    ("--getvars", "-g", "getvars"),
    ("--build-ppdf", "-b", "build-ppdf"),
    ("--apply-ppdf", "-p", "apply-ppdf"),
];

/// Options with a value, which may look like a command.
const WITH_VALUE: &[&str] = &[
    "-D",
    "-I",
    "-s",
    "--sym",
    "-l",
    "--log",
    "--log-format",
    "--log-target",
    "-o",
    "--outfile",
    "--output",
    "-u",
    "--group",
    "-t",
    "--type",
    "-n",
    "--name",
    "--index",
    "--templates",
];

/// The subcommand for an option of the original.
pub(crate) fn classic_name(option: &str) -> Option<&'static str> {
    let found = COMMANDS.iter().find(|(long, short, _)| option == *long || option == *short);
    found.map(|(_, _, command)| *command)
}

/// Turns a classic command into a subcommand; other arguments stay as they are.
pub(crate) fn modern(mut arguments: Vec<OsString>) -> Vec<OsString> {
    // The original's short form; this program's is -V.
    if arguments.len() == 2 && arguments[1] == "-v" {
        arguments[1] = "--version".into();
        return arguments;
    }
    let Some((place, command, value)) = find(&arguments) else { return arguments };
    let mut modern = vec![arguments[0].clone(), command.into()];
    modern.extend(arguments[1..place].iter().cloned());
    modern.extend(value);
    modern.extend(arguments[place + 1..].iter().cloned());
    modern
}

/// The position of the classic command, its subcommand, and the value joined to it by `=`. Options
/// may come before it. `None` if the first argument is a subcommand, which then owns all options.
fn find(arguments: &[OsString]) -> Option<(usize, &'static str, Option<OsString>)> {
    let subcommands = Arguments::command();
    let mut skip = 0_usize;
    for (place, argument) in arguments.iter().enumerate().skip(1) {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let text = argument.to_str()?;
        if text == "--" || is_subcommand(&subcommands, text) || (place == 1 && !text.starts_with('-')) {
            return None;
        }
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // A short one has no `=`: `-i=0-7` is getvars' range.
        if let Some(command) = classic_name(name).filter(|_| value.is_none() || name.starts_with("--")) {
            // `-p PID count ...`: options before a command of today.
            let is_command =
                |word: &OsString| word.to_str().is_some_and(|word| is_subcommand(&subcommands, word));
            let is_new = name == "-p"
                && (arguments[place + 1..].iter().skip(1).any(is_command) || arguments[1] == "-e");
            return (!is_new).then(|| (place, command, value.map(OsString::from)));
        }
        skip = match join_words::is_definition(&arguments[place..]) {
            true => 3,
            false => usize::from(WITH_VALUE.contains(&text)),
        };
    }
    None
}

fn is_subcommand(all: &clap::Command, word: &str) -> bool {
    all.find_subcommand(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        modern(arguments).iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn classic_commands_become_subcommands() {
        assert_eq!(turned("dprobes --insert a.rpn --merge"), "dprobes insert a.rpn --merge");
        assert_eq!(turned("dprobes --insert=a.rpn"), "dprobes insert a.rpn");
        assert_eq!(turned("dprobes -D x=1 -i a.rpn"), "dprobes insert -D x=1 a.rpn");
        assert_eq!(turned("dprobes -D x = -i -i a.rpn"), "dprobes insert -D x = -i a.rpn");
        assert_eq!(turned("dprobes -v"), "dprobes --version");
        assert_eq!(turned("dprobes -q --all -x"), "dprobes query --all -x");
        assert_eq!(turned("dprobes -g -a"), "dprobes getvars -a");
        for new in ["dprobes -p 17 count a.out:f", "dprobes -p 17 --for 1s trace x", "dprobes -e x -p 17"] {
            assert_eq!(turned(new), new);
        }
        assert_eq!(turned("dprobes -p a.ppdf --group=x"), "dprobes apply-ppdf a.ppdf --group=x");
        assert_eq!(turned("dprobes -m -l PID UID -i a.rpn"), "dprobes insert -m -l PID UID a.rpn");
        assert_eq!(turned("dprobes -n insert -g -i=0-7"), "dprobes getvars -n insert -i=0-7");
        assert_eq!(turned("dprobes --insert a.rpn --remove"), "dprobes insert a.rpn --remove");
    }

    #[test]
    fn others_stay_as_they_are() {
        for line in [
            "dprobes run a.rpn -- ls -r",
            "dprobes attach -p 1 a.rpn",
            "dprobes getvars --all -i 1-2",
            "dprobes --help",
            "dprobes -- --insert",
            "dprobes -D a=1 insert a.rpn -p 1",
            "dprobes a.rpn -i",
        ] {
            assert_eq!(turned(line), line);
        }
    }
}
