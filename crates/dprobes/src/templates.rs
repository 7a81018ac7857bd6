//! `dprobes templates`, and the templates by which records are shown.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use trace::template::Templates;
use trace::{Record, Text};

use crate::arguments::{self, Shown, TemplatesAction};
use crate::output::tell;
use crate::{Failure, summary};

/// How long templates are used before it is looked whether they have been changed.
const REFRESH: Duration = Duration::from_secs(1);

/// Checks or lists the templates of a directory.
pub(crate) fn templates(arguments: &arguments::Templates) -> Result<ExitCode, Failure> {
    match &arguments.action {
        TemplatesAction::Check { directory } => check(directory),
        TemplatesAction::List { directory } => list(directory),
    }
}

/// Tells all mistakes.
fn check(directory: &Path) -> Result<ExitCode, Failure> {
    let templates = Templates::open(directory).map_err(Failure::new)?;
    let problems: Vec<String> = templates.problems().map(ToString::to_string).collect();
    if !problems.is_empty() {
        return Err(Failure::complete(problems.join("\n")));
    }
    let count = summary::count(templates.templates().count() as u64, "template");
    let files = summary::count(templates.files() as u64, "file");
    // A reader that has seen enough is no error.
    let _ = writeln!(std::io::stdout(), "{}: {count} in {files}", directory.display());
    Ok(ExitCode::SUCCESS)
}

/// Shows what records hold, as far as the templates are right; the mistakes are told too.
fn list(directory: &Path) -> Result<ExitCode, Failure> {
    let templates = Templates::open(directory).map_err(Failure::new)?;
    let lines: String = templates.templates().map(|(_, template)| format!("{template}\n")).collect();
    // A reader that has seen enough is no error.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    tell_problems(&templates, tell);
    Ok(ExitCode::SUCCESS)
}

/// The templates by which records are to be shown, if any are asked for. Mistakes in them are told.
///
/// # Errors
/// The directory of the templates is not there, or has none.
pub(crate) fn open(shown: &Shown) -> Result<Option<Templates>, Failure> {
    of(shown.templates.as_deref())
}

/// The templates of a directory, if one is given. Mistakes in them are told.
///
/// # Errors
/// The directory is not there, or has no templates.
pub(crate) fn of(directory: Option<&Path>) -> Result<Option<Templates>, Failure> {
    let Some(directory) = directory else { return Ok(None) };
    let templates = Templates::open(directory).map_err(Failure::new)?;
    tell_problems(&templates, tell);
    Ok(Some(templates))
}

/// Tells what is wrong with templates.
fn tell_problems(templates: &Templates, tell: impl FnOnce(&str)) {
    let problems: Vec<String> = templates.problems().map(ToString::to_string).collect();
    if !problems.is_empty() {
        tell(&format!(
            "warning: records of templates with a mistake are shown as dumps\n{}",
            problems.join("\n")
        ));
    }
}

/// Records as text, while they are made: templates that are changed meanwhile are read again.
#[derive(Debug)]
pub(crate) struct Live {
    text: Box<Text>,
    /// When it was looked last whether templates have been changed.
    looked: Instant,
    /// Whether it was told that they are gone.
    gone: bool,
}

impl Live {
    /// Text as it is asked for, by these templates.
    pub(crate) fn new(shown: &Shown, templates: Option<Templates>) -> Live {
        let text = Text::new(shown.items(), shown.form());
        let text = match templates {
            Some(templates) => text.with_templates(templates),
            None => text,
        };
        Live { text: Box::new(text), looked: Instant::now(), gone: false }
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write(&mut self, record: &Record, out: &mut dyn Write) -> io::Result<()> {
        self.text.write(record, out)
    }

    /// Appends a record.
    pub(crate) fn append(&mut self, record: &Record, to: &mut Vec<u8>) {
        self.text.append(record, to);
    }

    /// Reads templates again that have been changed, unless it was looked for that a moment ago. What is wrong with them then is told.
    pub(crate) fn refresh(&mut self, tell: impl FnOnce(&str)) {
        let Some(templates) = self.text.templates() else { return };
        if self.looked.elapsed() < REFRESH {
            return;
        }
        self.looked = Instant::now();
        let refreshed = templates.refresh();
        let was_gone = std::mem::replace(&mut self.gone, refreshed.is_err());
        match refreshed {
            Ok(true) => tell_problems(templates, tell),
            Err(error) if !was_gone => tell(&format!("warning: {error}; those that were read stay in use")),
            Ok(false) | Err(_) => {}
        }
    }
}
