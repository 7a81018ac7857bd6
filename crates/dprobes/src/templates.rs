//! `dprobes templates`, and the templates by which records are shown.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use trace::Text;
use trace::template::Templates;

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

/// What writes records as they are to be shown. Mistakes in templates are told; there must be some templates if any are asked for.
///
/// # Errors
/// The directory of the templates is not there, or has none.
pub(crate) fn text(shown: &Shown) -> Result<Text, Failure> {
    let text = Text::new(shown.items(), shown.form());
    let Some(directory) = &shown.templates else { return Ok(text) };
    let templates = Templates::open(directory).map_err(Failure::new)?;
    tell_problems(&templates, tell);
    Ok(text.with_templates(templates))
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

/// Reads templates again that have been changed.
#[derive(Debug, Default)]
pub(crate) struct Refresh {
    /// When it was looked last.
    last: Option<Instant>,
    /// Whether it was told that they are gone.
    gone: bool,
}

impl Refresh {
    /// Looks, unless it was looked a moment ago. What is wrong then is told.
    pub(crate) fn turn(&mut self, text: &mut Text, tell: impl FnOnce(&str)) {
        let Some(templates) = text.templates() else { return };
        let now = Instant::now();
        if now.duration_since(*self.last.get_or_insert(now)) < REFRESH {
            return;
        }
        self.last = Some(now);
        let refreshed = templates.refresh();
        let was_gone = std::mem::replace(&mut self.gone, refreshed.is_err());
        match refreshed {
            Ok(true) => tell_problems(templates, tell),
            Err(error) if !was_gone => tell(&format!("warning: {error}; those that were read stay in use")),
            Ok(false) | Err(_) => {}
        }
    }
}
