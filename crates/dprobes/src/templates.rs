//! `dprobes templates`, and opening the templates that records are shown with.

use std::path::Path;
use std::process::ExitCode;

use trace::sink::complaint;
use trace::template::Templates;

use crate::arguments::{self, Shown, TemplatesAction};
use crate::messages::tell;
use crate::stdout;
use crate::{Failure, messages};

/// Checks or lists the templates of a directory.
pub(crate) fn templates(arguments: &arguments::Templates) -> Result<ExitCode, Failure> {
    match &arguments.action {
        TemplatesAction::Check { directory } => check(directory),
        TemplatesAction::List { directory } => list(directory),
    }
}

/// Reports all mistakes.
fn check(directory: &Path) -> Result<ExitCode, Failure> {
    let templates = Templates::open(directory).map_err(Failure::new)?;
    let problems: Vec<String> = templates.problems().map(ToString::to_string).collect();
    if !problems.is_empty() {
        return Err(Failure::complete(problems.join("\n")));
    }
    let count = messages::count(templates.templates().count() as u64, "template");
    let files = messages::count(templates.files() as u64, "file");
    stdout::show(&format!("{}: {count} in {files}\n", printable::path(directory)))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the fields of the correct templates; reports mistakes in others too.
fn list(directory: &Path) -> Result<ExitCode, Failure> {
    let templates = Templates::open(directory).map_err(Failure::new)?;
    let lines: String = templates.templates().map(|(_, template)| format!("{template}\n")).collect();
    stdout::show(&printable::lines(&lines))?;
    tell_problems(&templates);
    Ok(ExitCode::SUCCESS)
}

/// Opens the templates that records are to be shown with, if any. Reports mistakes in them.
///
/// # Errors
/// The directory does not exist, or has no templates.
pub(crate) fn open(shown: &Shown) -> Result<Option<Templates>, Failure> {
    of(shown.templates.as_deref())
}

/// Opens the templates of a directory, if one is given. Reports mistakes in them.
///
/// # Errors
/// The directory does not exist, or has no templates.
pub(crate) fn of(directory: Option<&Path>) -> Result<Option<Templates>, Failure> {
    let Some(directory) = directory else { return Ok(None) };
    let templates = Templates::open(directory).map_err(Failure::new)?;
    tell_problems(&templates);
    Ok(Some(templates))
}

/// Reports mistakes in templates.
fn tell_problems(templates: &Templates) {
    complaint(templates).iter().for_each(|complaint| tell(complaint));
}
