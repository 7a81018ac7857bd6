//! Messages about a program: what is wrong, where, what was expected, and what to do.

use std::cmp::Ordering;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};

use crate::text::{Position, Source, SourceLocation, Sources, Span};

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The program is refused.
    Error,
    /// The program is accepted, but probably not what was meant.
    Warning,
    /// The program is accepted; the message says how it was read.
    Note,
}

/// Another place that a message refers to: a first definition, a macro's body.
#[derive(Clone, Debug)]
pub struct Related {
    /// The place.
    pub span: Span,
    /// What is there.
    pub label: String,
}

/// A message about a program.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    pub span: Span,
    /// The text at the place itself: what was expected there.
    pub label: String,
    /// What to do.
    pub help: Option<String>,
    /// Other places that it refers to.
    pub related: Vec<Related>,
}

impl Diagnostic {
    fn new(severity: Severity, place: impl Into<SourceLocation>, message: impl Into<String>) -> Diagnostic {
        let place = place.into();
        let related = place.spelled.map(|span| Related { span, label: "in the expansion of this".into() });
        Diagnostic {
            severity,
            message: message.into(),
            span: place.span,
            label: String::new(),
            help: None,
            related: related.into_iter().collect(),
        }
    }

    /// A message that refuses the program.
    pub fn error(place: impl Into<SourceLocation>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Error, place, message)
    }

    /// A message about what was probably not meant.
    pub fn warning(place: impl Into<SourceLocation>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Warning, place, message)
    }

    /// A message that says how the program was read.
    pub fn note(place: impl Into<SourceLocation>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Note, place, message)
    }

    /// Sets the text at the place.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Sets what to do.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean" if there is a similar name.
    pub fn suggest(mut self, near: Option<impl std::fmt::Display>) -> Diagnostic {
        if let Some(near) = near {
            self.help = Some(format!("did you mean `{near}`?"));
        }
        self
    }

    /// Adds another place that the message refers to.
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.related.push(Related { span, label: label.into() });
        self
    }

    /// The message with its source line, in the style of rustc:
    ///
    /// ```text
    /// error: no instruction is called `psh`
    ///  --> malloc.rpn:7:5
    ///   |
    /// 7 |     psh r, rdi
    ///   |     ^^^ expected an instruction
    ///   |
    ///   = help: did you mean `push`?
    /// ```
    ///
    /// With `colour`, it contains ANSI colours. It does not end with a newline.
    pub fn render(&self, sources: &Sources, colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        group = group.elements(self.elements(sources));
        for inclusion in self.inclusions(sources) {
            group = group.element(Level::NOTE.message(inclusion));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        printable::laid_out(&renderer.decor_style(DecorStyle::Ascii).render(&[group]))
    }

    /// The source lines of all places: grouped by source, the primary place's first.
    fn elements<'a>(&'a self, sources: &'a Sources) -> Vec<Element<'a>> {
        let mut marks = vec![(self.span, self.label.as_str(), AnnotationKind::Primary)];
        marks.extend(self.related.iter().map(|it| (it.span, it.label.as_str(), AnnotationKind::Context)));
        let mut elements = Vec::new();
        while let Some(&(first, ..)) = marks.first() {
            let Some(source) = sources.get(first.source) else {
                marks.remove(0);
                continue;
            };
            let same = marks.iter().map(|(span, ..)| *span).filter(|span| span.source == first.source);
            let together = window(&source.text, same);
            // Lines too far apart are shown separately.
            let alone = together.len() > MAX_SHOWN;
            let window = if alone { window(&source.text, [first].into_iter()) } else { together };
            let (here, rest) = match alone {
                true => (vec![marks.remove(0)], marks),
                false => marks.into_iter().partition(|(span, ..)| span.source == first.source),
            };
            marks = rest;
            if window.len() > MAX_SHOWN {
                let Position { line, column } = sources.position(first);
                let origin = Origin::path(printable::text(&source.name)).line(line).char_column(column);
                elements.push(origin.into());
                for (_, label, _) in here {
                    elements
                        .push(Level::NOTE.message(format!("{label} (the line is too long to show)")).into());
                }
                continue;
            }
            let start = Span { start: u32::try_from(window.start).unwrap_or(u32::MAX), ..first };
            let mut snippet = Snippet::source(&source.text[window.clone()])
                .path(printable::text(&source.name))
                .line_start(sources.line(start));
            for (span, label, kind) in here {
                let clip = |at: u32| (at as usize).clamp(window.start, window.end) - window.start;
                let label = (!label.is_empty()).then_some(label);
                snippet = snippet.annotation(kind.span(clip(span.start)..clip(span.end)).label(label));
            }
            elements.push(snippet.into());
        }
        elements
    }

    /// `included from ...`, innermost first. A text that was made from options is not named: nobody
    /// has seen it.
    fn inclusions(&self, sources: &Sources) -> Vec<String> {
        let mut path = sources.path_to(self.span);
        path.pop();
        path.reverse();
        path.retain(|(source, _)| !sources.get(*source).is_some_and(Source::is_option));
        let locate = |(source, start)| sources.locate(Span { source, start, end: start });
        path.into_iter().map(|at| format!("included from {}", locate(at))).collect()
    }
}

/// Maximum bytes of source that one part of a message shows.
const MAX_SHOWN: usize = 16 << 10;

/// The whole lines that contain the spans.
fn window(text: &str, spans: impl Iterator<Item = Span> + Clone) -> Range<usize> {
    let first = spans.clone().map(|span| span.start as usize).min().unwrap_or(0).min(text.len());
    let last = spans.map(|span| span.end as usize).max().unwrap_or(0).clamp(first, text.len());
    let bytes = text.as_bytes();
    let start = bytes[..first].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let end =
        bytes[last..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |newline| last + newline);
    start..end
}

/// Text from the program as messages show it: shortened, printable, in back quotes.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    let cut = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("`{}{cut}`", printable(&text.chars().take(LONGEST).collect::<String>()))
}

/// Text from the program without characters that a terminal would interpret.
pub fn printable(text: &str) -> String {
    printable::text(text).into_owned()
}

/// The messages of one compilation, in the order of detection.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    all: Vec<Diagnostic>,
    errors: usize,
}

/// The maximum number of messages kept for one compilation.
pub const MAX_MESSAGES: usize = 1000;

impl Messages {
    /// Adds a message; beyond the maximum it only counts as an error.
    pub fn add(&mut self, message: Diagnostic) {
        self.errors += usize::from(message.severity == Severity::Error);
        if !self.full() {
            self.all.push(message);
        }
    }

    /// Whether the maximum has been reached, so that the caller can stop checking.
    pub fn full(&self) -> bool {
        self.all.len() >= MAX_MESSAGES
    }

    /// Whether there are errors, so that the program is refused.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All messages in the order of the source.
    pub fn in_order(mut self, sources: &Sources) -> Vec<Diagnostic> {
        self.all.sort_by_cached_key(|message| sources.path_to(message.span));
        if let Some(last) = self.all.last().filter(|_| self.all.len() >= MAX_MESSAGES) {
            let rest =
                Diagnostic::note(last.span, format!("only the first {MAX_MESSAGES} messages are shown"));
            self.all.push(rest.label("the rest of the program is not checked"));
        }
        self.all
    }
}

/// Unwraps a result; adds the message of an error to the messages.
pub trait Keep<T> {
    /// The value, if there is one.
    fn or_report(self, messages: &mut Messages) -> Option<T>;
}

impl<T> Keep<T> for Result<T, Diagnostic> {
    fn or_report(self, messages: &mut Messages) -> Option<T> {
        self.map_err(|message| messages.add(message)).ok()
    }
}

/// The maximum number of names among which [`nearest`] searches.
const MAX_NAMES: usize = 1000;

/// The name most similar to `word`, ignoring case, if it is similar enough to have been meant.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&word, &name.to_ascii_lowercase());
    let enough = word.chars().count().div_ceil(3);
    names
        .into_iter()
        .take(MAX_NAMES)
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= enough && *distance < name.chars().count())
        .min_by(|left, right| left.0.cmp(&right.0).then(Ordering::Less))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("PSH", ["pop", "push"]), Some("push"));
        assert_eq!(nearest("mov", ["move", "mul"]), Some("move"));
        assert_eq!(nearest("frobnicate", ["push", "pop"]), None);
        assert_eq!(nearest("x", ["y"]), None, "nothing of the word is left");
    }

    #[test]
    fn quoted_text_is_short_and_printable() {
        assert_eq!(quote("a\u{1b}[31m"), "`a\\x1b[31m`");
        assert_eq!(quote("say \"it's\""), "`say \"it's\"`");
        assert!(quote(&"x".repeat(500)).len() < 70);
    }

    #[test]
    fn beyond_the_limit_there_are_no_messages() {
        let mut messages = Messages::default();
        for _ in 0..MAX_MESSAGES + 7 {
            messages.add(Diagnostic::error(Span::default(), "x"));
        }
        let all = messages.in_order(&Sources::default());
        assert_eq!(all.len(), MAX_MESSAGES + 1);
        assert_eq!(all[MAX_MESSAGES].message, "only the first 1000 messages are shown");
    }

    #[test]
    fn lines_too_long_or_too_far_apart_are_not_shown_as_one() {
        let mut sources = Sources::default();
        let text = format!("first\n{}\nlast\n{}", "\n".repeat(MAX_SHOWN), "x".repeat(MAX_SHOWN + 1));
        let source = sources.add("a".into(), text.as_str().into(), None);
        let at = |text_start: usize, length: u32| {
            let start = u32::try_from(text_start).unwrap();
            Span { source, start, end: start + length }
        };
        let last = text.find("last").unwrap();
        let far = Diagnostic::error(at(last, 4), "wrong").label("here").related(at(0, 5), "and here");
        assert_eq!(
            far.render(&sources, false),
            "error: wrong\n     --> a:16387:1\n      |\n16387 | last\n      | ^^^^ here\n      |\n     ::: a:1:1\n      |\n    1 | first\n      | ----- and here"
        );
        let long = Diagnostic::error(at(last + 15, 1), "wrong").label("here");
        assert_eq!(
            long.render(&sources, false),
            "error: wrong\n--> a:16388:11\n = note: here (the line is too long to show)"
        );
    }
}
