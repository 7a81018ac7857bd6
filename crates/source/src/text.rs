//! The source texts of a compilation, and places in them.
//!
//! Each inclusion of a file is a source of its own, so that a message can name the `#include` that
//! brought its line in. The definitions of the command line (`-D`) are a source too.

use std::sync::Arc;

/// Identifies a text: an index into [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SourceId(pub u32);

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

impl Span {
    /// From the start of this span to the end of `last`; only this span if `last` is in another
    /// source or before it.
    pub fn to(self, last: Span) -> Span {
        if self.source == last.source && self.start <= last.end {
            Span { end: last.end.max(self.end), ..self }
        } else {
            self
        }
    }

    /// The empty span right after this one.
    pub fn after(self) -> Span {
        Span { start: self.end, ..self }
    }
}

/// A place in the source and, for text that a macro produced, in the macro's definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceLocation {
    /// Its span in the source; for text that a macro produced, the use of the macro.
    pub span: Span,
    /// For text that a macro produced: its span in the definition.
    pub spelled: Option<Span>,
}

impl SourceLocation {
    /// From the start of this place to the end of `last`.
    pub fn to(self, last: SourceLocation) -> SourceLocation {
        SourceLocation { span: self.span.to(last.span), spelled: self.spelled.or(last.spelled) }
    }

    /// The empty place right after this one.
    pub fn after(self) -> SourceLocation {
        match self.spelled {
            None => SourceLocation { span: self.span.after(), spelled: None },
            Some(_) => self,
        }
    }
}

impl From<Span> for SourceLocation {
    fn from(span: Span) -> SourceLocation {
        SourceLocation { span, spelled: None }
    }
}

/// One source text.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, or what stands for one.
    pub name: String,
    /// The text.
    pub text: Arc<str>,
    /// The offsets at which its lines start.
    lines: Vec<u32>,
    /// The `#include` that included it.
    pub included: Option<Span>,
}

impl Source {
    /// Whether it is the value of an option, not a file.
    pub(crate) fn is_option(&self) -> bool {
        self.name.starts_with("--")
    }
}

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

/// The texts of one compilation: the program, the files it includes, and the definitions of the
/// command line.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    all: Vec<Source>,
}

impl Sources {
    /// Adds a text. `included` is the `#include` that named it.
    pub fn add(&mut self, name: String, text: Arc<str>, included: Option<Span>) -> SourceId {
        let id = SourceId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        let byte = |at| u32::try_from(at).unwrap_or(u32::MAX);
        let after_newlines = text.match_indices('\n').map(|(newline, _)| byte(newline + 1));
        let lines = [0].into_iter().chain(after_newlines).collect();
        self.all.push(Source { name, text, lines, included });
        id
    }

    /// The text of this number.
    pub fn get(&self, id: SourceId) -> Option<&Source> {
        self.all.get(id.0 as usize)
    }

    /// All sources, indexed by [`SourceId`].
    pub fn all(&self) -> &[Source] {
        &self.all
    }

    /// The name of a source: its path, or `<command line>`.
    pub fn name(&self, id: SourceId) -> &str {
        self.get(id).map_or("", |source| &source.name)
    }

    /// The text that a span covers; empty if the span is not in these sources.
    pub fn text(&self, span: Span) -> &str {
        let range = span.start as usize..span.end as usize;
        self.get(span.source).and_then(|source| source.text.get(range)).unwrap_or("")
    }

    /// The line and column of a span's start.
    pub fn position(&self, span: Span) -> Position {
        let line = self.line(span);
        let lines = self.get(span.source).map_or(&[][..], |source| &source.lines);
        let start = lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text(Span { start, end: span.start, ..span });
        Position { line, column: before.chars().count() + 1 }
    }

    /// The line of a span's start, from 1.
    pub fn line(&self, span: Span) -> usize {
        let lines = self.get(span.source).map_or(&[][..], |source| &source.lines);
        lines.partition_point(|start| *start <= span.start).max(1)
    }

    /// `name:line:column` of a span's start.
    pub fn locate(&self, span: Span) -> String {
        let Position { line, column } = self.position(span);
        format!("{}:{line}:{column}", self.name(span.source))
    }

    /// The inclusions that lead to a span, outermost first, then the span itself, as
    /// `(source, offset)` pairs. Sorting by them puts messages in reading order.
    pub fn path_to(&self, span: Span) -> Vec<(SourceId, u32)> {
        let mut path = vec![(span.source, span.start)];
        let mut source = self.get(span.source);
        while let Some(outer) = source.and_then(|source| source.included) {
            path.push((outer.source, outer.start));
            source = self.get(outer.source);
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_columns_count_characters() {
        let mut sources = Sources::default();
        let source = sources.add("a.rpn".into(), "first\nsé x\n".into(), None);
        let at = |start| Span { source, start, end: start };
        assert_eq!(sources.locate(at(0)), "a.rpn:1:1");
        assert_eq!(sources.locate(at(6)), "a.rpn:2:1");
        assert_eq!(sources.locate(at(10)), "a.rpn:2:4");
        assert_eq!(sources.locate(at(99)), "a.rpn:3:1", "outside: no panic");
    }

    #[test]
    fn an_included_line_sorts_between_the_lines_around_its_include() {
        let mut sources = Sources::default();
        let main = sources.add("main".into(), "aaaa bbbb cccc".into(), None);
        let include = Span { source: main, start: 5, end: 9 };
        let inner = sources.add("inner".into(), "x".into(), Some(include));
        let before = sources.path_to(Span { source: main, start: 0, end: 1 });
        let within = sources.path_to(Span { source: inner, start: 0, end: 1 });
        let after = sources.path_to(Span { source: main, start: 10, end: 11 });
        assert!(before < within && within < after);
    }
}
