//! The templates of a directory, held in memory and found by the codes of records.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::definition::Template;
use super::index::{Entry, Index};
use super::load::{self, Stamp};
use super::parse::TemplateFile;
use super::problem::{Problem, Source};
use super::write::{self, Formatted};
use crate::{Items, Record};

/// The error of a directory whose templates cannot be read.
#[derive(Debug)]
pub struct OpenError {
    /// The directory.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub cause: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the templates of `{}` cannot be read: {}", printable::path(&self.path), self.cause)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// A template file, as it was last read.
#[derive(Clone, Debug)]
struct Loaded {
    entry: Entry,
    stamp: Stamp,
    file: TemplateFile,
}

/// The templates of a directory.
///
/// ```no_run
/// use dprobes_trace::template::Templates;
/// use dprobes_trace::{Items, Record};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut templates = Templates::open("/usr/share/templates".as_ref())?;
/// let mut text = Vec::new();
/// templates.format(Items::DEFAULT, &Record::default(), &mut text);
/// if templates.refresh()? {
///     templates.problems().for_each(|problem| eprintln!("{problem}"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Templates {
    path: PathBuf,
    index: Index,
    /// The state of the index file when it was read.
    stamp: Stamp,
    files: Vec<Loaded>,
    /// By major and minor code: the template's file, and its index there.
    places: HashMap<(u32, u32), (usize, usize)>,
    /// Problems that involve several files.
    conflicts: Vec<Problem>,
}

impl Templates {
    /// Reads all templates of a directory: *initialise* of the paper's library. `path` is a
    /// directory with a file `directory` that names the template files, such a file itself, or a
    /// directory of `*.fmt` files. Mistakes in files become [`Templates::problems`]; templates
    /// without mistakes are available.
    ///
    /// # Errors
    /// The path does not exist or cannot be read, or there is no template file.
    pub fn open(path: &Path) -> Result<Templates, OpenError> {
        let failed = |cause| OpenError { path: path.to_owned(), cause };
        let index = Index::read(path).map_err(failed)?;
        // Taken before the files are read, so that a change in the meantime causes another read.
        let stamp = Stamp::of(&index.from);
        let files = index.entries.iter().cloned().map(Loaded::read).collect();
        let mut templates = Templates {
            path: path.to_owned(),
            index,
            stamp,
            files,
            places: HashMap::new(),
            conflicts: Vec::new(),
        };
        templates.map_codes();
        Ok(templates)
    }

    /// Templates without a directory, such as those kept in a store. Of two with the same codes,
    /// the last counts.
    pub fn of(templates: impl IntoIterator<Item = Template>) -> Templates {
        let file = TemplateFile { templates: templates.into_iter().collect(), ..TemplateFile::default() };
        let codes = file.templates.iter().map(|template| (template.major, template.minor));
        let places = codes.zip((0..).map(|number| (0, number))).collect();
        let entry = Entry { path: PathBuf::new(), major: None };
        Templates {
            path: PathBuf::new(),
            index: Index::default(),
            stamp: Stamp::default(),
            files: vec![Loaded { entry, stamp: Stamp::default(), file }],
            places,
            conflicts: Vec::new(),
        }
    }

    /// Reads changed files again. Returns whether any had changed. Without changes, the cost is one
    /// `stat` of each file.
    ///
    /// # Errors
    /// The directory cannot be read any more. The templates are unchanged.
    pub fn refresh(&mut self) -> Result<bool, OpenError> {
        if Stamp::of(&self.index.from) != self.stamp {
            let again = Templates::open(&self.path)?;
            *self = again;
            return Ok(true);
        }
        let mut is_changed = false;
        for loaded in &mut self.files {
            if Stamp::of(&loaded.entry.path) != loaded.stamp {
                *loaded = Loaded::read(loaded.entry.clone());
                is_changed = true;
            }
        }
        if is_changed {
            self.map_codes();
        }
        Ok(is_changed)
    }

    /// All problems of the directory and its files.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        let files = self.files.iter().flat_map(|loaded| &loaded.file.problems);
        self.index.problems.iter().chain(&self.conflicts).chain(files)
    }

    /// The usable templates, by file and in the order of each.
    pub fn templates(&self) -> impl Iterator<Item = (&Path, &Template)> {
        let files = self.files.iter().enumerate();
        files.flat_map(move |(number, loaded)| {
            let own = loaded.file.templates.iter();
            own.filter(move |template| {
                self.places.get(&(template.major, template.minor)).is_some_and(|&(file, _)| file == number)
            })
            .map(|template| (loaded.entry.path.as_path(), template))
        })
    }

    /// The number of template files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The template for records with these codes.
    pub fn get(&self, major: u32, minor: u32) -> Option<&Template> {
        let &(file, number) = self.places.get(&(major, minor))?;
        self.files.get(file)?.file.templates.get(number)
    }

    /// Appends a record as text: its header with these items and the template's description, then
    /// its data in the template's format, or as a dump without a template. A newline is added at
    /// the end.
    ///
    /// ```text
    /// DProbes(1,1) cpu=0 pid=4711: large request
    /// size=8192
    /// ```
    pub fn format(&self, items: Items, record: &Record, out: &mut Vec<u8>) -> Formatted {
        write::record(self.get(record.major, record.minor), items, record, out)
    }

    /// Maps codes to templates. Of two files for one major code, the first counts.
    fn map_codes(&mut self) {
        self.places.clear();
        self.conflicts.clear();
        let mut majors: HashMap<u32, usize> = HashMap::new();
        for (number, loaded) in self.files.iter().enumerate() {
            let Some(major) = loaded.file.major else { continue };
            if let Some(wanted) = loaded.entry.major.filter(|&wanted| wanted != major) {
                self.conflicts.push(Problem::of_file(
                    &loaded.entry.path,
                    format!(
                        "its major code is {major}, but {} lists it for {wanted}",
                        printable::path(&self.index.from)
                    ),
                ));
                continue;
            }
            if let Some(&first) = majors.get(&major) {
                let first = printable::path(&self.files[first].entry.path);
                self.conflicts.push(Problem::of_file(
                    &loaded.entry.path,
                    format!(
                        "its major code, {major}, is also that of {first}, which is used; each file needs its own \
                         major code"
                    ),
                ));
                continue;
            }
            majors.insert(major, number);
            for (place, template) in loaded.file.templates.iter().enumerate() {
                self.places.insert((template.major, template.minor), (number, place));
            }
        }
    }
}

impl Loaded {
    fn read(entry: Entry) -> Loaded {
        let stamp = Stamp::of(&entry.path);
        let file = match load::text(&entry.path) {
            Ok((text, mistakes)) => TemplateFile::read(&Source::new(&entry.path, &text), mistakes),
            Err(error) => TemplateFile {
                problems: vec![Problem::of_file(&entry.path, error.to_string())],
                ..TemplateFile::default()
            },
        };
        Loaded { entry, stamp, file }
    }
}
