//! The index of templates: which file has the templates of a major code.
//!
//! ```text
//! directory = ("major" "=" number "file" "=" string)*        with a comma after each statement, or none
//! ```

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::load;
use super::problem::{Mistake, Problem, Source};
use super::statement::{Keyword, Value, ValueType, statements};

/// The name of the index file in a directory.
const NAME: &str = "directory";

/// The extension of template files in a directory without an index file.
const EXTENSION: &str = "fmt";

/// The most template files: one for each module.
const MAX_FILES: usize = 4096;

const KEYWORDS: &[Keyword] = &[("major", ValueType::Number), ("file", ValueType::Text)];

/// A template file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// The major code that the index gives for it; none without an index file.
    pub(super) major: Option<u32>,
}

/// The template files of a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
    /// The index file, or else the directory. If it changes, the index is read again.
    pub(super) from: PathBuf,
}

impl Index {
    /// Finds the template files of `path`: an index file, a directory with one, or a directory of
    /// template files.
    ///
    /// # Errors
    /// The path does not exist or cannot be read, or there is no template file.
    pub(super) fn read(path: &Path) -> io::Result<Index> {
        if !path.metadata()?.is_dir() {
            return Index::named(path);
        }
        let own = path.join(NAME);
        match own.try_exists()? {
            true => Index::named(&own),
            false => Index::found(path),
        }
    }

    /// The files that an index file names.
    fn named(file: &Path) -> io::Result<Index> {
        let (text, mut mistakes) = load::text(file)?;
        let source = Source::new(file, &text);
        let home = file.parent().unwrap_or(Path::new(""));
        let mut entries = Vec::new();
        let mut lines: HashMap<u32, usize> = HashMap::new();
        let mut major = None;
        for statement in statements(&text, KEYWORDS, &mut mistakes) {
            match statement.value {
                Value::Number(number) => {
                    if let Some((_, at)) = major.replace((number, statement.at)) {
                        mistakes.push(Mistake::new(
                            at,
                            "this major code has no file",
                            "`file=` expected after it",
                        ));
                    }
                    let line = source.line(statement.value_at.start);
                    if let Some(number) = number
                        && let Some(line) = lines.insert(number, line)
                    {
                        let message = format!("major code {number} has a file already");
                        let expected = format!("the first is in line {line}");
                        mistakes.push(Mistake::new(statement.value_at, message, expected));
                    }
                }
                Value::Text(name) => match major.take() {
                    None => mistakes.push(Mistake::new(
                        statement.at,
                        "this file has no major code",
                        "`major=` expected before it",
                    )),
                    Some((None, _)) => {}
                    Some((major, _)) => {
                        let path = home.join(String::from_utf8_lossy(&name.bytes).as_ref());
                        entries.push(Entry { path, major });
                    }
                },
            }
        }
        if let Some((_, at)) = major {
            mistakes.push(Mistake::new(at, "this major code has no file", "`file=` expected after it"));
        }
        let index = Index { entries, problems: source.problems(mistakes), from: file.to_owned() };
        Ok(index.limited())
    }

    /// The template files in a directory.
    fn found(directory: &Path) -> io::Result<Index> {
        let mut entries = Vec::new();
        for file in directory.read_dir()? {
            let path = file?.path();
            if path.extension() == Some(OsStr::new(EXTENSION)) {
                entries.push(Entry { path, major: None });
            }
        }
        if entries.is_empty() {
            return Err(io::Error::other(format!(
                "it contains neither the index `{NAME}` nor a template file `*.{EXTENSION}`"
            )));
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Index { entries, problems: Vec::new(), from: directory.to_owned() }.limited())
    }

    fn limited(mut self) -> Index {
        if self.entries.len() > MAX_FILES {
            let count = self.entries.len();
            let message =
                format!("there are {count} template files, but only the first {MAX_FILES} are read");
            self.problems.push(Problem::of_file(&self.from, message));
            self.entries.truncate(MAX_FILES);
        }
        self
    }
}
