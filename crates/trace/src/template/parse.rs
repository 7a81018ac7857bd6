//! Template files.
//!
//! ```text
//! file      = "major" "=" number template*
//! template  = "minor" "=" number "desc" "=" string ("fmt" "=" string)*      with a comma after each statement, or none
//! string    = "..." "..."                                                    one after another: one string, as in C
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::compile::Template;
use super::lex::Quoted;
use super::problem::{Mistake, Problem, Source};
use super::statement::{Keyword, Kind, Statement, Value, statements};

const KEYWORDS: &[Keyword] =
    &[("major", Kind::Number), ("minor", Kind::Number), ("desc", Kind::Text), ("fmt", Kind::Text)];

/// The templates of one file, which has those of one major code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateFile {
    /// The major code; none where it is not given.
    pub major: Option<u32>,
    /// The templates without mistakes, in the file's order.
    pub templates: Vec<Template>,
    /// What is wrong with the file: all of it, in the file's order, but no more than a hundred.
    pub problems: Vec<Problem>,
}

/// A template that is being read.
struct Draft {
    /// None: it is wrong, which has been told.
    minor: Option<u32>,
    /// Where its `minor` stands; what belongs to it follows.
    at: Range<usize>,
    description: Option<String>,
    format: Option<Quoted>,
}

impl TemplateFile {
    /// Reads the text of a template file. `file` is its name in messages.
    pub fn parse(file: &Path, text: &str) -> TemplateFile {
        TemplateFile::read(&Source::new(file, text), Vec::new())
    }

    /// Reads a template file with which some mistakes have been found already.
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
    /// Whether there is one, right or wrong.
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
            // The table of keywords says which values there are.
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
            self.wrong(at, "the major code stands at the head of the file", "`minor=` expected");
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

    fn description(&mut self, at: Range<usize>, value_at: Range<usize>, text: &Quoted) {
        let Some(draft) = self.drafts.last_mut() else { return self.astray(at, "desc") };
        let is_second = draft.description.is_some();
        draft.description = Some(String::from_utf8_lossy(&text.bytes).into_owned());
        if is_second {
            self.wrong(at, "this template has a description already", "`fmt=` or `minor=` expected");
        } else if text.bytes.iter().any(|&byte| byte != b'\t' && byte.is_ascii_control()) {
            self.wrong(value_at, "a description is one line", "a text without `\\n` and the like expected");
        }
    }

    /// A statement that belongs to no template.
    fn astray(&mut self, at: Range<usize>, keyword: &str) {
        self.wrong(at, format!("`{keyword}` belongs to no minor code"), "`minor=` expected before it");
    }

    /// Compiles the templates that have been read, and keeps those with which nothing is wrong.
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
            // Without its codes it is compiled for its mistakes.
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
