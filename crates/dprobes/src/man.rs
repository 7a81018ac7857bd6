//! The manual pages, as roff: dprobes(8) from the command line's own description, dprobes.lang(8)
//! from the reference of the language.

mod roff;

use std::io;

use clap::{Command, ValueEnum};
use clap_mangen::Man;

use crate::Failure;
use crate::stdout;

/// The reference of the language; tests of the `rpn` crate compare it with the implementation.
const LANGUAGE: &str = include_str!("../../../docs/language.md");

/// A manual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// dprobes(8): the command
    Dprobes,
    /// dprobes.lang(8): the language of probe programs
    Lang,
}

/// Writes a page to standard output.
pub(crate) fn man(page: Page, command: Command) -> Result<(), Failure> {
    let text = match page {
        Page::Dprobes => command_page(command)
            .map_err(|error| Failure::new(format!("the page cannot be written: {error}")))?,
        Page::Lang => language_page(),
    };
    stdout::show(&text)
}

/// Shown at the bottom of a page.
const VERSION: &str = concat!("dprobes ", env!("CARGO_PKG_VERSION"));

fn language_page() -> String {
    let title = format!(".TH DPROBES.LANG 8 \"\" \"{VERSION}\" \"System Administration\"\n");
    let name = ".SH NAME\ndprobes.lang \\- the language of probe programs\n";
    // The document's heading is the page's name; the rest is the description.
    let text = LANGUAGE.split_once('\n').map_or(LANGUAGE, |(_, rest)| rest);
    let see = ".SH SEE ALSO\n.BR dprobes (8)\n";
    format!("'\\\" t\n{title}{name}.SH DESCRIPTION\n{}{see}", roff::from_markdown(text))
}

/// One page for the command and all its subcommands.
fn command_page(mut command: Command) -> io::Result<String> {
    // So that subcommands are named `dprobes run` and have `--help`.
    command.build();
    let mut page = Vec::new();
    let whole = Man::new(command.clone().disable_help_subcommand(true))
        .section("8")
        .source(VERSION)
        .manual("System Administration");
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    let mut text = text(page);
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        text.push_str(&subcommand(part)?);
    }
    text.push_str(".SH EXAMPLES\n");
    text.push_str(&examples(&whole)?);
    text.push_str(".SH SEE ALSO\n.BR dprobes.lang (8)\n");
    Ok(text)
}

/// A section for a subcommand. The generator makes a page of it, whose headings are turned into
/// subheadings.
fn subcommand(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let mut text = format!(".SH \"DPROBES {}\"\n.B {usage}\n", command.get_name().to_uppercase());
    let mut page = Vec::new();
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for line in self::text(page).lines() {
        match line {
            ".SH DESCRIPTION" => text.push_str(".PP"),
            ".SH OPTIONS" => text.push_str(".SS Options"),
            line => text.push_str(line),
        }
        text.push('\n');
    }
    if command.get_after_help().is_some() {
        text.push_str(".SS Examples\n");
        text.push_str(&examples(&man)?);
    }
    Ok(text)
}

/// The examples after a command's help, line by line as written.
fn examples(man: &Man) -> io::Result<String> {
    let mut page = Vec::new();
    man.render_extra_section(&mut page)?;
    let text = text(page);
    let lines = text.lines().filter(|line| *line != ".SH EXTRA" && *line != "Examples:");
    let lines: Vec<&str> = lines.collect();
    Ok(format!(".nf\n{}\n.fi\n", lines.join("\n")))
}

fn text(page: Vec<u8>) -> String {
    String::from_utf8_lossy(&page).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn the_page_of_the_language_names_every_instruction_and_every_register_of_this_machine() {
        let page = language_page().replace("\\-", "-");
        for row in vm::TABLE {
            assert!(page.contains(&format!("\\fB{}", row.name)), "{}", row.name);
        }
        for name in ["rax", "cr0", "pswmask", "nip"] {
            assert!(page.contains(name), "{name}");
        }
        assert!(!page.contains("\n|") && !page.contains('`'), "markup is left");
    }

    #[test]
    fn the_page_of_the_command_has_every_option_of_every_subcommand() {
        let page = command_page(Arguments::command()).expect("it is written to memory").replace("\\-", "-");
        let command = Arguments::command();
        for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
            assert!(page.contains(&format!(".SH \"DPROBES {}\"", part.get_name().to_uppercase())));
            let shown = part.get_arguments().filter(|argument| !argument.is_hide_set());
            for option in shown.filter_map(|argument| argument.get_long()) {
                assert!(page.contains(&format!("--{option}")), "{option}");
            }
        }
        assert!(!page.contains("DPROBES MAN"), "hidden");
    }
}
