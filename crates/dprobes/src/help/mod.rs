//! `dprobes help`: of commands what `--help` says, and the pages and examples that are in the
//! program, so that no help names a file that is not installed.
//!
//! | file | what it is |
//! |---|---|
//! | `pages` | the pages and the examples |
//! | `section` | the part of a page that words name |
//! | `text` | a page as plain text |
//! | `pager` | longer texts on a terminal |

mod pager;
mod pages;
mod section;
mod text;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use clap::Command;

use crate::Failure;
use crate::arguments::Help;
use pages::{Page, page};
use text::Look;

/// Columns of a line, unless a terminal has fewer.
const WIDTH: usize = 100;

/// What lists the examples.
const EXAMPLES: &str = "examples";

/// Shows what is asked for.
pub(crate) fn help(arguments: &Help, mut whole: Command) -> Result<(), Failure> {
    // So that subcommands are named `dprobes run` and have `--help`.
    whole.build();
    let words: Vec<&str> = arguments.topic.iter().map(String::as_str).collect();
    if let Some(directory) = &arguments.output {
        return match &words[..] {
            [EXAMPLES] => write(directory),
            _ => Err(Failure::new("`-o DIR` is for `dprobes help examples`").with_status(2)),
        };
    }
    let is_terminal = io::stdout().is_terminal();
    let look = Look { width: columns(is_terminal), is_bold: is_terminal };
    let text = match &words[..] {
        [] => format!("{}\n{}", of_command(&mut whole, is_terminal), topics(&whole)),
        [EXAMPLES] => list(),
        [name] if pages::example(name).is_some() => {
            pages::example(name).map_or_else(String::new, |example| example.text.to_owned())
        }
        [first, rest @ ..] if !rest.is_empty() && command(&mut whole, &words).is_none() => {
            let Some(page) = page(first) else { return Err(unknown(&whole, &words.join(" "))) };
            let rest = rest.join(" ");
            match section::named(page.text, &rest) {
                Some(part) => text::shown(&part, look),
                None => return Err(no_section(page, &rest)),
            }
        }
        [first, ..] => match (command(&mut whole, &words), page(first).filter(|_| words.len() == 1)) {
            // What is a command and a page, is both.
            (Some(command), page) => {
                let command = of_command(command, is_terminal);
                page.map_or(command.clone(), |page| format!("{command}\n{}", text::shown(page.text, look)))
            }
            (None, Some(page)) => text::shown(page.text, look),
            (None, None) => return Err(unknown(&whole, &words.join(" "))),
        },
    };
    pager::show(&text, is_terminal)
}

/// The columns of the terminal, at most those that are easily read.
fn columns(is_terminal: bool) -> usize {
    let size = is_terminal.then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    size.map_or(WIDTH, |(columns, _)| usize::from(columns).min(WIDTH))
}

/// The command that words name, as `session stop`.
fn command<'a>(whole: &'a mut Command, words: &[&str]) -> Option<&'a mut Command> {
    words.iter().try_fold(whole, |command, word| command.find_subcommand_mut(word))
}

/// What `--help` says.
fn of_command(command: &mut Command, is_terminal: bool) -> String {
    let help = command.render_long_help();
    if is_terminal { help.ansi().to_string() } else { help.to_string() }
}

/// The topics, with a line for each.
fn topics(whole: &Command) -> String {
    let width = pages::PAGES.iter().map(|page| page.name.len()).max().unwrap_or(0);
    let line = |&Page { name, summary, .. }: &Page| {
        let also = if whole.find_subcommand(name).is_some() { " (and the command)" } else { "" };
        format!("  {name:<width$}  {summary}{also}\n")
    };
    let lines: String = pages::PAGES.iter().map(line).collect();
    format!("Topics of `dprobes help TOPIC`:\n{lines}  {EXAMPLES:<width$}  probe programs and templates\n")
}

/// The examples, with what each shows.
fn list() -> String {
    let width = pages::examples().map(|example| example.path.len()).max().unwrap_or(0);
    let line = |example: &pages::Example| {
        let first = example.text.lines().next().unwrap_or_default();
        let said = first.trim_start_matches(['/', '*', '#', ' ']).trim_end_matches([' ', '*', '/']);
        format!("{EXAMPLES}/{:<width$}  {said}\n", example.path)
    };
    let lines: String = pages::examples().map(line).collect();
    format!(
        "{lines}\n`dprobes help {EXAMPLES}/NAME` shows one; `dprobes help {EXAMPLES} -o DIR` writes all to DIR/{EXAMPLES}.\n"
    )
}

/// Writes the examples to a new folder in a directory.
fn write(directory: &Path) -> Result<(), Failure> {
    let root = directory.join(EXAMPLES);
    let failed = |path: &Path, error: io::Error| Failure::new(format!("{}: {error}", printable::path(path)));
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    // Never into a folder that is there: its files are somebody's.
    fs::create_dir(&root).map_err(|error| failed(&root, error))?;
    for example in pages::examples() {
        let path = root.join(example.path);
        let folder = path.parent().unwrap_or(&root);
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        fs::write(&path, example.text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// The message for what is neither a command nor a page.
fn unknown(whole: &Command, name: &str) -> Failure {
    let commands = whole.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let names = commands.chain(pages::PAGES.iter().map(|page| page.name)).chain([EXAMPLES]);
    let near = source::nearest(name, names);
    let near = near.map_or_else(|| "`dprobes help` lists them".to_owned(), |near| format!("`{near}` is one"));
    let name = source::quote(name);
    Failure::new(format!("no command and no topic of the help is called {name}; {near}")).with_status(2)
}

/// The message if no part of a page is about some words.
fn no_section(page: &Page, words: &str) -> Failure {
    let titles = section::titles(page.text);
    let name = page.name;
    let words = source::quote(words);
    let which = match &titles[..] {
        [] => "it has no sections".to_owned(),
        titles => format!("its sections are {}", titles.join(", ")),
    };
    Failure::new(format!("no section of `{name}`, and no row of its tables, is about {words}; {which}"))
        .with_status(2)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    /// What a command and those below it say of themselves, with their names.
    fn all(command: &mut Command, found: &mut Vec<(String, String)>) {
        found.push((command.get_name().to_owned(), of_command(command, false)));
        command.get_subcommands_mut().for_each(|part| all(part, found));
    }

    #[test]
    fn no_command_points_to_a_file_that_an_install_lacks() {
        let mut whole = Arguments::command();
        whole.build();
        let topics = topics(&whole);
        let mut texts = vec![("help".to_owned(), topics), ("examples".to_owned(), list())];
        all(&mut whole, &mut texts);
        assert!(texts.len() > 30);
        for (name, text) in &texts {
            assert!(!text.contains("docs/") && !text.contains(".md"), "{name}: {text}");
            assert!(!text.contains("examples/") || name == "examples", "{name}: {text}");
            for topic in text.split("`dprobes help ").skip(1).filter_map(|rest| rest.split('`').next()) {
                let is_placeholder =
                    topic.split(' ').any(|word| ["TOPIC", "DIR", "examples/NAME"].contains(&word));
                assert!(page(topic).is_some() || topic == EXAMPLES || is_placeholder, "{name}: {topic}");
            }
        }
    }

    #[test]
    fn what_is_near_is_named() {
        let whole = Arguments::command();
        assert!(unknown(&whole, "recrods").message().ends_with("`records` is one"));
        assert!(unknown(&whole, "xyzzy").message().ends_with("lists them"));
    }
}
