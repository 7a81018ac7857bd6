//! `dprobes templates`, and the templates by which records are shown.

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

/// Tells all mistakes.
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

/// Shows what records hold, as far as the templates are right; the mistakes are told too.
fn list(directory: &Path) -> Result<ExitCode, Failure> {
    let templates = Templates::open(directory).map_err(Failure::new)?;
    let lines: String = templates.templates().map(|(_, template)| format!("{template}\n")).collect();
    stdout::show(&printable::lines(&lines))?;
    tell_problems(&templates);
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
    tell_problems(&templates);
    Ok(Some(templates))
}

/// Tells what is wrong with templates.
fn tell_problems(templates: &Templates) {
    complaint(templates).iter().for_each(|complaint| tell(complaint));
}
