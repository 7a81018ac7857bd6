//! The targets of a command line, and the header items and views for them.

mod all;
mod open;
mod opening;
mod spans;

use std::path::Path;
use std::sync::Arc;

use trace::Items;
use trace::line::{Functions, LineProbe, LineView, LoggedForms, Piece};
use trace::sink::{Target, View};
use trace::template::Templates;

use crate::Failure;
use crate::addresses::SharedAddresses;
use crate::arguments::{Format, Shown};
pub(crate) use all::Targets;
pub(crate) use open::{Open, TargetCounts};
pub(crate) use opening::How;

/// The targets of a command line, each once; `usual`, if given, when there are none.
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

/// Checks that the options for showing records apply to at least one of the targets.
///
/// # Errors
/// They apply to none.
pub(crate) fn suit(targets: &[Target], shown: &Shown) -> Result<(), Failure> {
    if !shown.unformatted_output || targets.iter().any(Target::has_text) {
        return Ok(());
    }
    Err(Failure::new(match targets {
        [Target::Store(_)] => {
            "--unformatted-output is for text, not for a trace store; give it to `dprobes show`".to_owned()
        }
        _ => format!("--unformatted-output is for text, not for {}", names(targets)),
    }))
}

/// The names of targets, for messages.
fn names(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

/// The header items of records for these targets. Targets that hold all items get all, unless the
/// user names some, since items are chosen when a trace is read; such targets always get the time.
pub(crate) fn items(targets: &[Target], shown: &Shown) -> Items {
    let has_lines = targets.iter().any(Target::has_lines);
    match shown.line_items().filter(|_| has_lines) {
        // The address says which of a probe's sites was hit.
        Some(items) => header_items(targets, shown).with(items).with(Items::CSEIP),
        None => header_items(targets, shown),
    }
}

/// The header items of records as bytes.
pub(crate) fn header_items(targets: &[Target], shown: &Shown) -> Items {
    match (targets.iter().any(Target::holds_all), shown.log.is_empty()) {
        (false, _) => shown.items(),
        (true, true) => Items::ALL,
        (true, false) => shown.items().with(Items::TSC),
    }
}

/// How the records of a program are shown; in lines, with the functions at these addresses.
pub(crate) fn view(shown: &Shown, templates: Option<Templates>, addresses: &SharedAddresses) -> View {
    let functions = Some(Arc::new(addresses.clone()) as Arc<dyn Functions>);
    let lines = shown.line_items().map(|items| LineView::new(items, functions));
    View { items: shown.items(), form: shown.form(), templates, lines }
}

/// A view of a program whose probes are these.
pub(crate) fn view_of(view: &View, object: &rpn::Object) -> View {
    let probe = |probe: &rpn::Probe| {
        LineProbe::new(&object.module, &probe.point, (object.major, probe.minor), logged(object, probe))
    };
    let lines = view
        .lines
        .clone()
        .map(|lines| LineView { probes: object.probes.iter().map(probe).collect(), ..lines });
    View { lines, ..view.clone() }
}

/// What a handler logs.
pub(crate) fn logged(object: &rpn::Object, probe: &rpn::Probe) -> LoggedForms {
    let piece = |piece: rpn::Logged| match piece {
        rpn::Logged::Words(words) => Piece::Words(words),
        rpn::Logged::Prefixed => Piece::Prefixed,
    };
    let forms = object.logged(probe).unwrap_or_default();
    LoggedForms::new(forms.into_iter().map(|form| form.into_iter().map(piece).collect()))
}
