//! The original's command line: `dprobes --insert FILE`, `dprobes -q --all`.
//!
//! What it calls options are commands here. The first of them among the arguments becomes the subcommand, with its
//! value, if it has one, in the place of the file. Single-dash long names were never the original's.

use std::ffi::{OsStr, OsString};

/// The classic commands: long, short, subcommand.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("--insert", "-i", "insert"),
    ("--remove", "-r", "remove"),
    ("--query", "-q", "query"),
    ("--getvars", "-g", "getvars"),
    ("--build-ppdf", "-b", "build-ppdf"),
    ("--apply-ppdf", "-p", "apply-ppdf"),
];

/// Subcommands after which every option is that command's own.
fn is_subcommand(argument: &OsStr) -> bool {
    argument.to_str().is_some_and(|text| !text.starts_with('-') && !text.is_empty())
}

/// The arguments with a classic command turned into a subcommand; others as they are.
pub(crate) fn modern(mut arguments: Vec<OsString>) -> Vec<OsString> {
    // The original's short form; today's is -V.
    if arguments.len() == 2 && arguments[1] == "-v" {
        arguments[1] = "--version".into();
        return arguments;
    }
    let mut found = None;
    let mut skip = false;
    for (place, argument) in arguments.iter().enumerate().skip(1) {
        if std::mem::take(&mut skip) {
            continue;
        }
        let Some(text) = argument.to_str() else { break };
        if text == "--" {
            break;
        }
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let command = COMMANDS.iter().find(|(long, short, _)| name == *long || text == *short);
        if let Some((_, _, command)) = command {
            found = Some((place, *command, value.map(OsString::from)));
            break;
        }
        // `-D key=value` and the like may stand before the command; a word that is no option's value is a subcommand.
        skip = matches!(text, "-D" | "-I" | "-s" | "--sym" | "-l" | "--log" | "-o" | "--outfile");
        if is_subcommand(argument) {
            break;
        }
    }
    let Some((place, command, value)) = found else { return arguments };
    let mut modern = vec![arguments[0].clone(), command.into()];
    modern.extend(arguments[1..place].iter().cloned());
    modern.extend(value);
    modern.extend(arguments[place + 1..].iter().cloned());
    modern
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
        assert_eq!(turned("dprobes -v"), "dprobes --version");
        assert_eq!(turned("dprobes -q --all -x"), "dprobes query --all -x");
        assert_eq!(turned("dprobes -g -a"), "dprobes getvars -a");
        assert_eq!(turned("dprobes -p a.ppdf --group=x"), "dprobes apply-ppdf a.ppdf --group=x");
    }

    #[test]
    fn others_stay_as_they_are() {
        for line in [
            "dprobes run a.rpn -- ls -r",
            "dprobes attach -p 1 a.rpn",
            "dprobes getvars --all -i 1-2",
            "dprobes --help",
            "dprobes -- --insert",
        ] {
            assert_eq!(turned(line), line);
        }
    }
}
