//! The targets of a command line, and what is given to them.

mod all;
mod open;
mod opening;

use std::path::Path;

use trace::Items;
use trace::sink::{Target, View};
use trace::template::Templates;

use crate::Failure;
use crate::arguments::{Format, Shown};
pub(crate) use all::Targets;
pub(crate) use open::{Open, Taken};
pub(crate) use opening::How;

/// The targets that a command line names, each once; `usual`, if there is one, without any.
pub(crate) fn named(
    targets: &[Target],
    output: Option<&Path>,
    format: Option<Format>,
    usual: Option<Target>,
) -> Vec<Target> {
    let file = output.map(|path| match Format::of(output, format) {
        Format::Text => Target::File(path.to_owned()),
        Format::Dpt => Target::Store(path.to_owned()),
    });
    let mut all = Vec::new();
    for target in targets.iter().cloned().chain(file) {
        if !all.contains(&target) {
            all.push(target);
        }
    }
    if all.is_empty() {
        all.extend(usual);
    }
    all
}

/// Checks that what is asked to be shown has a meaning for one of the targets.
///
/// # Errors
/// It has not.
pub(crate) fn suit(targets: &[Target], shown: &Shown) -> Result<(), Failure> {
    let has_text = |target: &Target| !matches!(target, Target::Store(_) | Target::Ctf(_) | Target::Ltt(_));
    if !shown.unformatted_output || targets.iter().any(has_text) {
        return Ok(());
    }
    Err(Failure::new(match targets {
        [Target::Store(_)] => {
            "--unformatted-output is for text, and a trace store is none; give it to `dprobes show`"
                .to_owned()
        }
        _ => format!("--unformatted-output is for text, and {} is none", names(targets)),
    }))
}

/// Targets, as they are told.
fn names(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

/// The header items of records that go to these targets. Those that hold all have all items unless some are asked for, since they are
/// chosen when they are read; and always the time.
pub(crate) fn items(targets: &[Target], shown: &Shown) -> Items {
    match (targets.iter().any(Target::holds_all), shown.log.is_empty()) {
        (false, _) => shown.items(),
        (true, true) => Items::ALL,
        (true, false) => shown.items().with(Items::TSC),
    }
}

/// How the records of a program are shown.
pub(crate) fn view(shown: &Shown, templates: Option<Templates>) -> View {
    View { items: shown.items(), form: shown.form(), templates }
}
