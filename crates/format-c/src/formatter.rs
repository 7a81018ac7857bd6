//! Templates, and the records that they format.

use std::path::Path;

use trace::template::{Problem, TemplateFile, Templates};
use trace::{Record, raw};

use crate::status::{Failure, Status};

/// Templates that are held in memory.
#[derive(Debug)]
pub(crate) struct Formatter {
    templates: Templates,
    /// The mistakes in the templates that are not used, as text.
    problems: String,
}

impl Formatter {
    /// Reads the templates of a directory.
    pub(crate) fn open(directory: &Path) -> Result<Formatter, Failure> {
        let templates = Templates::open(directory).map_err(|error| {
            Failure::new(Status::Templates, format!("{error}; name a directory with *.fmt files"))
        })?;
        let problems = text(templates.problems());
        Ok(Formatter { templates, problems })
    }

    /// Reads the text of a template file.
    pub(crate) fn parse(file: &str) -> Formatter {
        let file = TemplateFile::parse(Path::new("templates"), file);
        let problems = text(&file.problems);
        Formatter { templates: Templates::of(file.templates), problems }
    }

    /// The mistakes in templates, which are therefore not used.
    pub(crate) fn problems(&self) -> &str {
        &self.problems
    }

    /// The text of a record in its binary form, with the header that it has.
    pub(crate) fn format(&self, record: &[u8], word: usize) -> Result<Vec<u8>, Failure> {
        let (record, items) = raw::read(record, word)
            .map_err(|wrong| Failure::new(Status::Record, format!("these bytes are no record: {wrong}")))?;
        let mut text = Vec::new();
        self.templates.format(items, &record, &mut text);
        Ok(text)
    }

    /// The text of logged bytes alone.
    pub(crate) fn format_data(
        &self,
        codes: (u32, u32),
        data: &[u8],
        word: usize,
    ) -> Result<Vec<u8>, Failure> {
        let (major, minor) = codes;
        let Some(template) = self.templates.get(major, minor) else {
            let message =
                format!("no template has the codes {major},{minor}; one is needed for the bytes alone");
            return Err(Failure::new(Status::NoTemplate, message));
        };
        let record = Record { major, minor, word, data: data.to_vec(), ..Record::default() };
        let mut text = Vec::new();
        template.format(&record, &mut text);
        Ok(text)
    }
}

fn text<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> String {
    problems.into_iter().map(|problem| format!("{problem}\n")).collect()
}
