//! The view of a program's records, and the reloading of its templates.
//!
//! In: the number of a program. Out: how its records are shown: items, form, templates.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::line::LineView;
use crate::template::Templates;
use crate::{Form, Items, Record, Text};

/// The interval at which templates are checked for changes.
const REFRESH: Duration = Duration::from_secs(1);

/// How the records of a program are shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The header items.
    pub items: Items,
    /// The form of the logged bytes.
    pub form: Form,
    /// The templates, if any.
    pub templates: Option<Templates>,
    /// Lines for people, in targets that may have them: files and standard error. The others show
    /// the items and the form.
    pub lines: Option<LineView>,
}

impl View {
    /// Whether text is asked for, for a target that otherwise writes bytes.
    pub(super) fn is_text(&self) -> bool {
        self.form == Form::Unformatted || self.templates.is_some()
    }
}

/// When templates were last checked for changes.
#[derive(Debug)]
pub(super) struct RefreshTimer {
    /// The time of the last check.
    last: Instant,
    /// Whether the last check failed, which is reported only once.
    gone: bool,
}

impl RefreshTimer {
    /// The templates have just been read.
    pub(super) fn new() -> RefreshTimer {
        RefreshTimer { last: Instant::now(), gone: false }
    }

    /// Reads templates again if they have changed, unless they were checked a moment ago. Returns
    /// whether they were read. Mistakes in them go to `tell`.
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
            Err(error) if !was_gone => {
                tell(&format!("warning: {error}; the templates read before stay in use"))
            }
            Ok(false) | Err(_) => {}
        }
        false
    }
}

/// Formats records as text; its templates are reloaded when they change.
#[derive(Debug)]
pub struct ProgramText {
    text: Box<Text>,
    looks: RefreshTimer,
}

impl ProgramText {
    /// A formatter for this view.
    pub fn new(view: View) -> ProgramText {
        let text = Text::new(view.items, view.form);
        let text = match view.templates {
            Some(templates) => text.with_templates(templates),
            None => text,
        };
        ProgramText { text: Box::new(text), looks: RefreshTimer::new() }
    }

    /// A formatter for this view in a target that may have lines.
    pub(super) fn with_lines(view: View, colour: bool) -> ProgramText {
        let lines = view.lines.clone();
        let mut new = ProgramText::new(view);
        if let Some(lines) = lines {
            new.text = Box::new(new.text.with_lines(lines));
            new.text.set_colour(colour);
        }
        new
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

    /// The current templates, if any.
    pub fn templates(&mut self) -> Option<&Templates> {
        self.text.templates().map(|templates| &*templates)
    }

    /// Reads templates again if they have changed, unless they were checked a moment ago. Mistakes
    /// in them go to `tell`.
    pub fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        if let Some(templates) = self.text.templates() {
            self.looks.refresh(templates, tell);
        }
    }
}

/// A warning about templates that have mistakes, if there are any.
pub fn complaint(templates: &Templates) -> Option<String> {
    let problems: Vec<String> = templates.problems().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| {
        format!(
            "warning: some templates have errors; their records are shown as dumps\n{}",
            problems.join("\n")
        )
    })
}

/// The formatters of all programs of a sink, by program number. They are few, and each record looks
/// up its own.
#[derive(Debug, Default)]
pub struct ProgramTexts {
    texts: BTreeMap<u32, ProgramText>,
    /// Whether records may be shown as lines.
    has_lines: bool,
    /// Whether these are coloured.
    colour: bool,
}

impl ProgramTexts {
    /// Formatters that show records as lines, if their views have any.
    pub fn with_lines(colour: bool) -> ProgramTexts {
        ProgramTexts { has_lines: true, colour, ..ProgramTexts::default() }
    }

    /// Sets how the records of a program are shown.
    pub fn show(&mut self, program: u32, view: &View) {
        let text = match self.has_lines {
            true => ProgramText::with_lines(view.clone(), self.colour),
            false => ProgramText::new(view.clone()),
        };
        self.texts.insert(program, text);
    }

    /// Drops the formatter of a program.
    pub fn forget(&mut self, program: u32) {
        self.texts.remove(&program);
    }

    /// The formatter of a program; the default one if [`ProgramTexts::show`] was not called for it.
    pub fn of(&mut self, program: u32) -> &mut ProgramText {
        self.texts
            .entry(program)
            .or_insert_with(|| ProgramText::new(View { items: Items::DEFAULT, ..View::default() }))
    }

    /// Reads templates again that have been changed ([`ProgramText::refresh`]).
    pub fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.values_mut().for_each(|live| live.refresh(tell));
    }
}
