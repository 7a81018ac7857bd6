//! A trial: a command that the machine runs, and a check of its output.

use testing::machine::{Command, Output};

pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    pub(crate) check: Box<dyn FnOnce(&Output) + Send>,
}

impl Trial {
    pub(crate) fn new(
        name: &'static str,
        command: Command,
        check: impl FnOnce(&Output) + Send + 'static,
    ) -> Trial {
        Trial { name, command, check: Box::new(check) }
    }

    /// A trial of shell lines, each of which must succeed. The check is given what they print.
    pub(crate) fn shell(name: &'static str, lines: &str, check: impl FnOnce(&str) + Send + 'static) -> Trial {
        Trial::new(name, Command::shell(lines), |output| check(output.success()))
    }
}
