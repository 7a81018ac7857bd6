//! A recording of a terminal as an animated picture (SVG): commands that are typed, and what they
//! print, when they print it.
//!
//! In: a text of lines. `$ COMMAND` is typed and run by a shell, `# TEXT` is shown as a comment,
//! `! COMMAND` is run before, unseen, until the end. Out: one file without scripts, which browsers
//! and pages that show pictures animate.

mod picture;
mod run;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::Duration;

pub use picture::svg;

/// A line of the terminal, and when it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time since the recording began.
    pub at: Duration,
    /// What it is.
    pub kind: Kind,
    /// The line, as it is to be shown.
    pub text: String,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command that is typed.
    Command,
    /// A comment.
    Comment,
    /// Something that a command prints.
    Output,
}

/// How long a letter of a command takes to type.
pub const LETTER: Duration = Duration::from_millis(35);
/// How long nothing happens before a command and behind its output.
const PAUSE: Duration = Duration::from_millis(900);

/// Runs the commands of a text in a folder and returns the lines. `path` is where shells look for
/// programs.
///
/// # Errors
/// A command cannot be run, ends with another status than 0, or takes more than a minute.
pub fn record(text: &str, folder: &Path, path: &OsStr) -> io::Result<Vec<Line>> {
    let place = run::Surroundings { folder, path };
    let mut lines = Vec::new();
    let mut at = Duration::ZERO;
    let mut unseen = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (mark, rest) = line.split_at_checked(2).ok_or_else(|| mark_expected(line))?;
        match mark {
            "! " => unseen.push(run::Unseen::start(rest, place)?),
            "# " => {
                lines.push(Line { at, kind: Kind::Comment, text: line.to_owned() });
                at += PAUSE;
            }
            "$ " => {
                lines.push(Line { at, kind: Kind::Command, text: line.to_owned() });
                at += LETTER * rest.chars().count() as u32 + PAUSE / 2;
                let (printed, took) = run::run(rest, place)?;
                let shown =
                    |(when, text): (Duration, String)| Line { at: at + when, kind: Kind::Output, text };
                lines.extend(printed.into_iter().map(shown));
                at += took + PAUSE;
            }
            _ => return Err(mark_expected(line)),
        }
    }
    Ok(lines)
}

fn mark_expected(line: &str) -> io::Error {
    crate::other(format!("`{line}` begins with none of `$ `, `# ` and `! `"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(text: &str) -> io::Result<Vec<Line>> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        record(text, &std::env::temp_dir(), &path)
    }

    #[test]
    fn commands_are_run_and_shown_with_what_they_print() {
        let lines = recorded("# first\n\n! sleep 100\n$ echo one; echo two >&2\n").unwrap();
        let kinds: Vec<Kind> = lines.iter().map(|line| line.kind).collect();
        assert_eq!(kinds, [Kind::Comment, Kind::Command, Kind::Output, Kind::Output]);
        assert_eq!(lines[1].text, "$ echo one; echo two >&2");
        assert_eq!((lines[2].text.as_str(), lines[3].text.as_str()), ("one", "two"));
        assert!(lines.is_sorted_by_key(|line| line.at));
        assert!(lines[2].at >= lines[1].at + LETTER * 22);
    }

    #[test]
    fn what_fails_is_no_recording() {
        assert!(recorded("$ exit 3").unwrap_err().to_string().contains("`exit 3` ends with exit status: 3"));
        assert!(recorded("ls").unwrap_err().to_string().contains("begins with none of"));
        assert!(recorded("! none-such-command").unwrap_err().to_string().contains("ends at once"));
    }
}
