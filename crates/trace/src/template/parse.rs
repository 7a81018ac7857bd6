//! Parses template files.
//!
//! ```text
//! file      = "major" "=" number template*
//! template  = "minor" "=" number "desc" "=" string ("fmt" "=" string)*      with a comma after each statement, or none
//! string    = "..." "..."                                                    one after another: one string, as in C
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::definition::Template;
use super::lex::StringLiteral;
use super::problem::{Mistake, Problem, Source};
use super::statement::{Keyword, Statement, Value, ValueType, statements};

const KEYWORDS: &[Keyword] = &[
    ("major", ValueType::Number),
    ("minor", ValueType::Number),
    ("desc", ValueType::Text),
    ("fmt", ValueType::Text),
];

/// The contents of a template file: the templates of one major code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateFile {
    /// The major code; none if the file lacks it.
    pub major: Option<u32>,
    /// The templates without mistakes, in the file's order.
    pub templates: Vec<Template>,
    /// The problems of the file in order, a hundred at most.
    pub problems: Vec<Problem>,
}

/// A template that is being parsed.
struct Draft {
    /// None if it is malformed, which was reported.
    minor: Option<u32>,
    /// The position of its `minor` statement. The other statements follow it.
    at: Range<usize>,
    description: Option<String>,
    format: Option<StringLiteral>,
}

impl TemplateFile {
    /// Parses the text of a template file. `file` is its name in messages.
    pub fn parse(file: &Path, text: &str) -> TemplateFile {
        TemplateFile::read(&Source::new(file, text), Vec::new())
    }

    /// Parses a template file in which `mistakes` were already found.
    pub(super) fn read(source: &Source<'_>, mistakes: Vec<Mistake>) -> TemplateFile {
        let mut reader = Reader {
            source,
            major: None,
            has_major: false,
            drafts: Vec::new(),
            lines: HashMap::new(),
            mistakes,
        };
        for statement in statements(source.text, KEYWORDS, &mut reader.mistakes) {
            reader.take(statement);
        }
        reader.finish()
    }
}

struct Reader<'a> {
    source: &'a Source<'a>,
    major: Option<u32>,
    /// Whether there was a `major` statement, valid or not.
    has_major: bool,
    drafts: Vec<Draft>,
    /// The line of each minor code.
    lines: HashMap<u32, usize>,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn wrong(&mut self, at: Range<usize>, message: impl Into<String>, expected: impl Into<String>) {
        self.mistakes.push(Mistake::new(at, message, expected));
    }

    fn take(&mut self, statement: Statement) {
        let Statement { keyword, at, value, value_at } = statement;
        match (keyword, value) {
            ("major", Value::Number(major)) => self.major(at, major),
            ("minor", Value::Number(minor)) => self.minor(at, value_at, minor),
            ("desc", Value::Text(text)) => self.description(at, value_at, &text),
            (_, Value::Text(text)) => match self.drafts.last_mut() {
                Some(draft) => draft.format.get_or_insert_default().append(text),
                None => self.astray(at, keyword),
            },
            // Impossible: in KEYWORDS, only `major` and `minor` have numbers.
            (_, Value::Number(_)) => {}
        }
    }

    fn major(&mut self, at: Range<usize>, major: Option<u32>) {
        if std::mem::replace(&mut self.has_major, true) {
            let mistake = Mistake::new(at, "this file has a major code already", "`minor=` expected");
            self.mistakes.push(mistake.help("each major code has a file of its own"));
            return;
        }
        self.major = major;
        if !self.drafts.is_empty() {
            self.wrong(at, "the major code must be the first statement of the file", "`minor=` expected");
        }
    }

    fn minor(&mut self, at: Range<usize>, value_at: Range<usize>, minor: Option<u32>) {
        let line = self.source.line(at.start);
        match minor.and_then(|minor| Some((minor, self.lines.get(&minor)?))) {
            Some((minor, first)) => {
                let expected = format!("the first is in line {first}");
                self.wrong(value_at, format!("minor code {minor} has a template already"), expected);
            }
            None => self.lines.extend(minor.map(|minor| (minor, line))),
        }
        self.drafts.push(Draft { minor, at, description: None, format: None });
    }

    fn description(&mut self, at: Range<usize>, value_at: Range<usize>, text: &StringLiteral) {
        let Some(draft) = self.drafts.last_mut() else { return self.astray(at, "desc") };
        let is_second = draft.description.is_some();
        draft.description = Some(String::from_utf8_lossy(&text.bytes).into_owned());
        if is_second {
            self.wrong(at, "this template has a description already", "`fmt=` or `minor=` expected");
        } else if text.bytes.iter().any(|&byte| byte != b'\t' && byte.is_ascii_control()) {
            self.wrong(value_at, "a description is one line", "a text without control characters expected");
        }
    }

    /// Reports a statement that is in no template.
    fn astray(&mut self, at: Range<usize>, keyword: &str) {
        self.wrong(at, format!("`{keyword}` belongs to no minor code"), "`minor=` expected before it");
    }

    /// Compiles the templates and keeps those without mistakes.
    fn finish(mut self) -> TemplateFile {
        let end = self.source.text.trim_end().len();
        if !self.has_major {
            let at = self.drafts.first().map_or(end..end, |draft| draft.at.clone());
            self.wrong(at, "the file does not begin with its major code", "`major=` expected before it");
        }
        let mut compiled = Vec::new();
        let mut drafts = std::mem::take(&mut self.drafts).into_iter().peekable();
        while let Some(draft) = drafts.next() {
            let place = draft.at.start..drafts.peek().map_or(usize::MAX, |next| next.at.start);
            if draft.description.is_none() {
                self.wrong(draft.at, "this template has no description", "`desc=` expected after it");
            }
            let (major, minor) = (self.major.unwrap_or(0), draft.minor.unwrap_or(0));
            let description = draft.description.unwrap_or_default();
            // Compiled even without valid codes, to find its mistakes.
            let template = Template::read(major, minor, description, draft.format, &mut self.mistakes);
            if self.major.is_some() && draft.minor.is_some() {
                compiled.push((place, template));
            }
        }
        let mut wrong: Vec<usize> = self.mistakes.iter().map(|mistake| mistake.range.start).collect();
        wrong.sort_unstable();
        let is_right = |place: &Range<usize>| {
            let first = wrong.partition_point(|&at| at < place.start);
            wrong.get(first).is_none_or(|at| !place.contains(at))
        };
        compiled.retain(|(place, _)| is_right(place));
        TemplateFile {
            major: self.major,
            templates: compiled.into_iter().map(|(_, template)| template).collect(),
            problems: self.source.problems(self.mistakes),
        }
    }
}
