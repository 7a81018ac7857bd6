//! The templates of a conversion: those of a directory, or those that the trace itself has kept.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use trace::store::Info;
use trace::template::{Template, TemplateFile, Templates};

/// What the bytes of records mean, by their codes.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    directory: Option<Templates>,
    own: HashMap<(u32, u32), Template>,
}

impl Sheet {
    /// The templates of a directory, and for the rest those of the trace.
    pub fn new(directory: Option<Templates>, info: &Info) -> Sheet {
        let mut own = HashMap::new();
        for fact in &info.templates {
            let mut text = format!("major={} minor={} desc=", fact.major, fact.minor);
            quote(&fact.description, &mut text);
            if let Some(format) = &fact.format {
                text.push_str(" fmt=");
                quote(format, &mut text);
            }
            // One that makes no sense is as good as none: the bytes are shown.
            let file = TemplateFile::parse(Path::new("the trace"), &text);
            own.extend(file.templates.into_iter().map(|template| ((template.major, template.minor), template)));
        }
        Sheet { directory, own }
    }

    /// The template for records with these codes.
    pub fn get(&self, major: u32, minor: u32) -> Option<&Template> {
        let directory = self.directory.as_ref().and_then(|directory| directory.get(major, minor));
        directory.or_else(|| self.own.get(&(major, minor)))
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.directory.is_none() && self.own.is_empty()
    }
}

/// Appends a text as template files quote it.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            // Writing to a string cannot fail.
            letter if letter.is_ascii_control() => {
                let _ = write!(out, "\\{:03o}", letter as u32);
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Record;
    use trace::store;

    #[test]
    fn a_template_that_the_trace_has_kept_is_as_it_was() {
        let mut info = Info::default();
        info.templates.push(store::Template {
            major: 3,
            minor: 4,
            description: "a \"name\"".to_owned(),
            format: Some("say\t\"\\\"\n1 size=%4u".to_owned()),
        });
        info.templates.push(store::Template { major: 3, minor: 5, format: Some("%9q".to_owned()), ..store::Template::default() });
        let sheet = Sheet::new(None, &info);
        let template = sheet.get(3, 4).expect("it is there");
        assert_eq!(template.description, "a \"name\"");
        let mut text = Vec::new();
        template.format(&Record { word: 8, data: vec![7, 0, 0, 0], ..Record::default() }, &mut text);
        assert_eq!(String::from_utf8(text).expect("text"), "say\t\"\\\"\n1 size=7");
        assert!(sheet.get(3, 5).is_none());
    }
}
