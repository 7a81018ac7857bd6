//! A template, compiled.

use std::fmt;
use std::path::Path;

use super::compile::compile;
use super::control::{Control, Item};
use super::fields::{self, Field};
use super::lex::StringLiteral;
use super::problem::{Mistake, Problem, Source};

/// The template of the records with one pair of codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The major code.
    pub major: u32,
    /// The minor code.
    pub minor: u32,
    /// The description, one line.
    pub description: String,
    /// The text of its `fmt` statements, concatenated and with escapes resolved, so that a store
    /// can keep it and it can be compiled again. None if it has no `fmt`.
    pub format: Option<String>,
    pub(super) items: Box<[Item]>,
    pub(super) fields: Vec<Field>,
}

impl Template {
    /// Compiles a template that does not come from a file.
    ///
    /// # Errors
    /// The mistakes in the format. Columns count from its start.
    pub fn compile(
        major: u32,
        minor: u32,
        description: &str,
        format: Option<&str>,
    ) -> Result<Template, Vec<Problem>> {
        let mut mistakes = Vec::new();
        let text = format.map(StringLiteral::from);
        let template = Template::read(major, minor, description.to_owned(), text, &mut mistakes);
        match mistakes.is_empty() {
            true => Ok(template),
            false => {
                let name = format!("template {major},{minor}");
                Err(Source::new(Path::new(&name), format.unwrap_or_default()).problems(mistakes))
            }
        }
    }

    /// Compiles a template. Without any `fmt`, it shows the data as a dump.
    pub(super) fn read(
        major: u32,
        minor: u32,
        description: String,
        format: Option<StringLiteral>,
        mistakes: &mut Vec<Mistake>,
    ) -> Template {
        let items = match &format {
            Some(text) => compile(text, mistakes),
            None => vec![Item::Control(Control::Dump.into())],
        };
        let format = format.map(|text| String::from_utf8_lossy(&text.bytes).into_owned());
        Template { major, minor, description, format, fields: fields::of(&items), items: items.into() }
    }

    /// The values in the data of its records, in order. [`Template::values`] returns as many.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

impl fmt::Display for Template {
    /// The template as a list of its fields: `9,1 write: fd i32, length x64, codes [u16]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{} {}:", self.major, self.minor, self.description)?;
        for (number, field) in self.fields().iter().enumerate() {
            write!(f, "{} {field}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
