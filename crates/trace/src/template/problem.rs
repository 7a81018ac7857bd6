//! Mistakes in template files, with their positions, and their messages.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// The most problems of a file that are reported.
const MAX_PROBLEMS: usize = 100;

/// How much of a line is kept and shown, in bytes. A hostile file may be a single line with a
/// mistake in each word.
const MAX_TEXT: usize = 400;

/// A mistake in a template file, or an unreadable file. It is displayed with its line, in the style
/// of rustc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// The column, from 1, in characters; 0 for the whole file.
    pub column: usize,
    /// What is wrong, in one line.
    pub message: String,
    /// What was expected there.
    pub expected: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The part of the line around the mistake, and the bytes of it to mark.
    text: String,
    mark: Range<usize>,
}

/// A mistake as found. It is cheap to make, since a hostile file may have any number.
#[derive(Clone, Debug)]
pub(super) struct Mistake {
    /// Its position, in bytes.
    pub(super) range: Range<usize>,
    pub(super) message: String,
    pub(super) expected: String,
    pub(super) help: Option<&'static str>,
}

impl Mistake {
    pub(super) fn new(
        range: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Mistake {
        Mistake { range, message: message.into(), expected: expected.into(), help: None }
    }

    /// Adds advice.
    pub(super) fn help(self, help: &'static str) -> Mistake {
        Mistake { help: Some(help), ..self }
    }
}

/// The name and the text of a file.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    /// The positions at which its lines begin.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Source<'a> {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Source { file, text, lines: std::iter::once(0).chain(starts).collect() }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|&start| start <= at)
    }

    /// The first mistakes, in the order of the file, as problems.
    pub(super) fn problems(&self, mut mistakes: Vec<Mistake>) -> Vec<Problem> {
        mistakes.sort_by_key(|mistake| mistake.range.start);
        mistakes.into_iter().take(MAX_PROBLEMS).map(|mistake| self.problem(mistake)).collect()
    }

    fn problem(&self, mistake: Mistake) -> Problem {
        let Mistake { range, message, expected, help } = mistake;
        let at = self.boundary(range.start);
        let line = self.line(at);
        let start = self.lines[line - 1];
        let text = self.text[start..].lines().next().unwrap_or_default();
        // A mistake at the end of a line, or in its carriage return, is marked after its text.
        let mark = (at - start).min(text.len());
        let end = (self.boundary(range.end).max(at) - start).clamp(mark, text.len());
        let column = text[..mark].chars().count() + 1;
        let from = self.boundary(start + mark.saturating_sub(MAX_TEXT / 2)) - start;
        let to = (self.boundary(start + from + MAX_TEXT) - start).min(text.len());
        Problem {
            file: self.file.to_owned(),
            line,
            column,
            message,
            expected,
            help: help.map(str::to_owned),
            text: text[from..to].to_owned(),
            mark: mark - from..end.min(to) - from,
        }
    }

    /// The start of the character that contains a byte.
    fn boundary(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        (0..=at).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0)
    }
}

impl Problem {
    /// A problem of a whole file.
    pub(super) fn of_file(file: &Path, message: impl Into<String>) -> Problem {
        Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            expected: String::new(),
            help: None,
            text: String::new(),
            mark: 0..0,
        }
    }
}

impl fmt::Display for Problem {
    /// The message with its line, without a newline at the end:
    ///
    /// ```text
    /// error: this is not a control
    ///  --> malloc.fmt:4:11
    ///   |
    /// 4 | fmt="size %q"
    ///   |           ^^ one of c d f i p r s u x z expected, or %% for the character
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = printable::path(&self.file).to_string();
        if self.line == 0 {
            return write!(f, "error: {file}: {}", self.message);
        }
        let mark = AnnotationKind::Primary.span(self.mark.clone()).label(self.expected.as_str());
        let snippet = Snippet::source(self.text.as_str()).line_start(self.line).annotation(mark);
        let group = Group::with_title(Level::ERROR.primary_title(self.message.as_str()));
        // If the kept text is not the whole line, the renderer cannot compute the column from it.
        let mut group = match self.text[..self.mark.start].chars().count() + 1 == self.column {
            true => group.element(snippet.path(file)),
            false => {
                let origin = Origin::path(file).line(self.line).char_column(self.column);
                group.element(origin).element(snippet)
            }
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        f.write_str(&printable::laid_out(&Renderer::plain().decor_style(DecorStyle::Ascii).render(&[group])))
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_what_is_near_is_shown() {
        let text = format!("first\n{}wrong{}\nlast", "ä".repeat(5000), "b".repeat(100_000));
        let start = text.find("wrong").expect("it is there");
        let source = Source::new(Path::new("long.fmt"), &text);
        let mistakes = (0..200).map(|_| Mistake::new(start..start + 5, "no", "yes expected")).collect();
        let problems = source.problems(mistakes);
        assert_eq!((problems.len(), problems[0].line, problems[0].column), (MAX_PROBLEMS, 2, 5001));
        assert!(problems.iter().all(|problem| problem.text.len() <= MAX_TEXT));
        assert_eq!(&problems[0].text[problems[0].mark.clone()], "wrong");
        let shown = problems[0].to_string();
        assert!(shown.contains("--> long.fmt:2:5001") && shown.contains("^^^^^ yes expected"), "{shown}");
    }
}
