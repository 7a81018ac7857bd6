//! Source positions of a compiled program, for use without its source texts.

use std::collections::{BTreeMap, BTreeSet};

use source::{Position, SourceId, Sources, Span};

use crate::object::Object;

/// A source file, or the definitions of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub(super) name: String,
    /// The place of the `#include` that included it: an earlier source, and a byte offset in it.
    pub(super) included: Option<(SourceId, u32)>,
}

/// The names of a program's sources, and the line and column of the start of every [`Span`] in its
/// object. The texts themselves are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// By [`SourceId`].
    pub(super) sources: Vec<Source>,
    /// By source and byte offset.
    pub(super) positions: BTreeMap<(SourceId, u32), Position>,
}

impl Places {
    /// Collects the places of an object from the sources that it was compiled from.
    pub fn of(object: &Object, sources: &Sources) -> Places {
        let all = sources.all().iter().map(|source| Source {
            name: source.name.clone(),
            included: source.included.map(|span| (span.source, span.start)),
        });
        let all: Vec<Source> = all.collect();
        let spans = object.lines.iter().map(|(_, span)| *span);
        let spans = spans.chain(object.probes.iter().map(|probe| probe.span));
        let wanted: BTreeSet<(SourceId, u32)> = spans
            .map(|span| (span.source, span.start))
            .chain(all.iter().filter_map(|source| source.included))
            .filter(|(source, _)| (source.0 as usize) < all.len())
            .collect();
        let mut positions = BTreeMap::new();
        // Columns are counted from the previous place, to stay linear if a program is one long
        // line.
        let mut last: Option<(SourceId, u32, Position)> = None;
        for (source, start) in wanted {
            let at = Span { source, start, end: start };
            let line = sources.line(at);
            let position = match last {
                Some((same, before, position)) if same == source && position.line == line => {
                    let between = sources.text(Span { start: before, ..at });
                    Position { line, column: position.column + between.chars().count() }
                }
                _ => sources.position(at),
            };
            last = Some((source, start, position));
            positions.insert((source, start), position);
        }
        Places { sources: all, positions }
    }

    /// The name of a source: its path as given to the compiler, or `<command line>`; empty if there
    /// is no such source.
    pub fn name(&self, source: SourceId) -> &str {
        self.sources.get(source.0 as usize).map_or("", |source| &source.name)
    }

    /// `name:line:column` of a span's start, if known.
    pub fn locate(&self, span: Span) -> Option<String> {
        let Position { line, column } = self.positions.get(&(span.source, span.start))?;
        Some(format!("{}:{line}:{column}", self.sources.get(span.source.0 as usize)?.name))
    }

    /// The place of the `#include` that included a source, as [`Places::locate`] writes it.
    pub fn included_from(&self, source: SourceId) -> Option<String> {
        let (source, start) = self.sources.get(source.0 as usize)?.included?;
        self.locate(Span { source, start, end: start })
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{MemoryFiles, Options, compile_with};

    #[test]
    fn places_are_those_of_the_sources() {
        let main = "name = a\nmodtype = user\n#include \"inner\"\nexit\n";
        let inner = "offset = f // é\nnop  nop nop\n\n  nop\n";
        let files = [("main", main), ("inner", inner)];
        let files = MemoryFiles(files.map(|(name, text)| (PathBuf::from(name), text.to_owned())).into());
        let options = Options { defines: vec![("A".into(), "1".into())], ..Options::default() };
        let compiled = compile_with(&files, Path::new("main"), &options).expect("it compiles");
        let places = Places::of(&compiled.object, &compiled.sources);
        let spans =
            compiled.object.lines.iter().map(|(_, span)| *span).chain([compiled.object.probes[0].span]);
        let mut seen = Vec::new();
        for span in spans {
            assert_eq!(places.locate(span), Some(compiled.sources.locate(span)));
            seen.extend(places.locate(span));
        }
        assert_eq!(seen, ["inner:2:1", "inner:2:6", "inner:2:10", "inner:4:3", "main:4:1", "inner:1:1"]);
        let source = compiled.object.probes[0].span.source;
        assert_eq!(places.included_from(source).as_deref(), Some("main:3:10"));
        assert_eq!(places.locate(Span { source: SourceId(77), start: 0, end: 0 }), None);
    }
}
