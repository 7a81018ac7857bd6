//! `dprobes completions SHELL`: the script that completes command lines.
//!
//! The script has commands and options from the parser's own description. What only the machine
//! knows - running processes, modules and functions - it asks `dprobes completions SHELL -- WORDS`,
//! which prints what the last of the words may become, a line each, or fails if that is not known.
//!
//! | file | what |
//! |---|---|
//! | `candidates` | what a word may become |
//! | `live.bash`, `live.zsh`, `live.fish` | how a shell asks |

mod candidates;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use crate::Failure;

/// Prints a shell's script, or what the last of some words may become.
pub(crate) fn completions(shell: Shell, words: &[OsString], mut whole: Command) -> Result<ExitCode, Failure> {
    let text = match words {
        [] => script(shell, &mut whole),
        words => {
            whole.build();
            match candidates::candidates(words, &whole) {
                Some(found) => found.into_iter().map(|word| word + "\n").collect(),
                None => return Ok(ExitCode::FAILURE),
            }
        }
    };
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(format!("the script: {error}")))
}

fn script(shell: Shell, whole: &mut Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, whole, "dprobes", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + include_str!("live.bash"),
        // The function of the parser's script is called by ours.
        Shell::Zsh => {
            let (head, rest) = script.split_once("\n_dprobes() {").unwrap_or((&script, ""));
            format!("{head}\n{}\n_dprobes_fixed() {{{rest}", include_str!("live.zsh"))
        }
        Shell::Fish => script + include_str!("live.fish"),
        _ => script,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn scripts_ask_for_what_only_the_machine_knows() {
        for (shell, function) in [
            (Shell::Bash, "_dprobes_live"),
            (Shell::Zsh, "_dprobes_fixed \"$@\""),
            (Shell::Fish, "__dprobes_live"),
        ] {
            let script = script(shell, &mut Arguments::command());
            assert!(script.contains(function) && script.contains("dprobes completions"), "{shell}");
        }
        let zsh = script(Shell::Zsh, &mut Arguments::command());
        assert_eq!(zsh.matches("\n_dprobes() {").count(), 1);
        assert_eq!(zsh.matches("\n_dprobes_fixed() {").count(), 1);
    }
}
