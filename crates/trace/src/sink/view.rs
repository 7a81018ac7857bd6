//! How the records of a program are shown.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::template::Templates;
use crate::{Form, Items, Record, Text};

/// How long templates are used before it is looked whether they have been changed.
const REFRESH: Duration = Duration::from_secs(1);

/// How the records of a program are shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The items of a header.
    pub items: Items,
    /// The form of the bytes.
    pub form: Form,
    /// The templates, where there are some.
    pub templates: Option<Templates>,
}

impl View {
    /// Whether text is asked for where a target has bytes, too.
    pub(super) fn is_text(&self) -> bool {
        self.form == Form::Unformatted || self.templates.is_some()
    }
}

/// When templates are looked at again.
#[derive(Debug)]
pub(super) struct Looks {
    /// When it was looked last whether they have been changed.
    last: Instant,
    /// Whether it was told that they are gone.
    gone: bool,
}

impl Looks {
    /// They have just been read.
    pub(super) fn new() -> Looks {
        Looks { last: Instant::now(), gone: false }
    }

    /// Reads templates again that have been changed, unless it was looked for that a moment ago: whether they were. What is wrong with
    /// them then is told.
    pub(super) fn refresh(&mut self, templates: &mut Templates, tell: &mut dyn FnMut(&str)) -> bool {
        if self.last.elapsed() < REFRESH {
            return false;
        }
        self.last = Instant::now();
        let refreshed = templates.refresh();
        let was_gone = std::mem::replace(&mut self.gone, refreshed.is_err());
        match refreshed {
            Ok(true) => {
                complaint(templates).iter().for_each(|complaint| tell(complaint));
                return true;
            }
            Err(error) if !was_gone => tell(&format!("warning: {error}; those that were read stay in use")),
            Ok(false) | Err(_) => {}
        }
        false
    }
}

/// Records as text, while they are made: templates that are changed meanwhile are read again.
#[derive(Debug)]
pub struct Live {
    text: Box<Text>,
    looks: Looks,
}

impl Live {
    /// Text as it is asked for.
    pub fn new(view: View) -> Live {
        let text = Text::new(view.items, view.form);
        let text = match view.templates {
            Some(templates) => text.with_templates(templates),
            None => text,
        };
        Live { text: Box::new(text), looks: Looks::new() }
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, record: &Record, out: &mut dyn Write) -> io::Result<()> {
        self.text.write(record, out)
    }

    /// Appends a record.
    pub fn append(&mut self, record: &Record, to: &mut Vec<u8>) {
        self.text.append(record, to);
    }

    /// The templates as they are now, where there are some.
    pub fn templates(&mut self) -> Option<&Templates> {
        self.text.templates().map(|templates| &*templates)
    }

    /// Reads templates again that have been changed, unless it was looked for that a moment ago. What is wrong with them then is told.
    pub fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        if let Some(templates) = self.text.templates() {
            self.looks.refresh(templates, tell);
        }
    }
}

/// What there is to say of templates that have mistakes.
pub fn complaint(templates: &Templates) -> Option<String> {
    let problems: Vec<String> = templates.problems().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| {
        format!("warning: records of templates with a mistake are shown as dumps\n{}", problems.join("\n"))
    })
}

/// The texts of all programs of a sink, by their numbers. They are few, and each record looks for its own.
#[derive(Debug, Default)]
pub struct Texts(BTreeMap<u32, Live>);

impl Texts {
    /// Says how the records of a program are shown.
    pub fn show(&mut self, program: u32, view: &View) {
        self.0.insert(program, Live::new(view.clone()));
    }

    /// No record of this program will come any more.
    pub fn forget(&mut self, program: u32) {
        self.0.remove(&program);
    }

    /// That of a program: as all are shown, if nothing else was said.
    pub fn of(&mut self, program: u32) -> &mut Live {
        self.0.entry(program).or_insert_with(|| Live::new(View { items: Items::DEFAULT, ..View::default() }))
    }

    /// Reads templates again that have been changed ([`Live::refresh`]).
    pub fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.0.values_mut().for_each(|live| live.refresh(tell));
    }
}
