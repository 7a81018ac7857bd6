//! Attach points that match nothing: which of them end a script before it begins.

use std::collections::{BTreeMap, BTreeSet};

use script::{AttachPoint, MissingProbes};
use source::{Diagnostic, Sources};

use crate::messages::{WARNING, say, tell};

/// An attach point that matches nothing, and why.
#[derive(Debug)]
struct Absent {
    point: AttachPoint,
    reason: String,
}

/// The attach points of a script that match nothing, by action.
#[derive(Debug)]
pub(super) struct Missing {
    setting: MissingProbes,
    absent: BTreeMap<usize, Vec<Absent>>,
    /// The actions of which an attach point matches something.
    served: BTreeSet<usize>,
    /// Whether the script has no other attach point than one.
    is_only: bool,
}

impl Missing {
    pub(super) fn new(setting: MissingProbes, is_only: bool) -> Missing {
        Missing { setting, absent: BTreeMap::new(), served: BTreeSet::new(), is_only }
    }

    /// An attach point of an action matches something.
    pub(super) fn is_served(&mut self, action: usize) {
        self.served.insert(action);
    }

    /// An attach point of an action matches nothing, which is so for a reason about a file.
    pub(super) fn add(&mut self, action: usize, point: &AttachPoint, file: &str, reason: &str) {
        let (file, reason) = (printable::text(file), printable::text(reason));
        match self.setting {
            MissingProbes::Unsaid | MissingProbes::Error => {
                let absent = Absent { point: point.clone(), reason: format!("{file}: {reason}") };
                self.absent.entry(action).or_default().push(absent);
            }
            MissingProbes::Warn => tell(&format!("{WARNING}{point}: {reason}")),
            MissingProbes::Ignore => {}
        }
    }

    /// Whether a file that is not there is waited for.
    pub(super) fn waits(&self) -> bool {
        matches!(self.setting, MissingProbes::Warn | MissingProbes::Ignore)
    }

    /// Warns of what is left out, and gives the errors.
    pub(super) fn end(self, sources: &Sources) -> Vec<Diagnostic> {
        let mut errors = Vec::new();
        for (action, absent) in self.absent {
            match (self.setting, &absent[..]) {
                (MissingProbes::Unsaid, [first, ..]) if self.served.contains(&action) => {
                    say(left_out(first, &absent).render(sources, false));
                }
                _ => errors.extend(absent.iter().map(|absent| refused(absent, self.is_only))),
            }
        }
        errors
    }
}

/// The warning for an action that has other attach points, which match something.
fn left_out(first: &Absent, all: &[Absent]) -> Diagnostic {
    let message = match all {
        [_] => format!("{}; it is left out, others of its action are traced", first.reason),
        _ => {
            let names: Vec<String> = all.iter().map(|absent| absent.point.to_string()).collect();
            format!(
                "{}; {} attach points are left out, others of their action are traced: {}",
                first.reason,
                all.len(),
                printable::text(&names.join(", "))
            )
        }
    };
    Diagnostic::warning(first.point.at.0, message)
        .label("nothing is there")
        .help("`missing_probes = \"error\"` in `config` refuses this, \"ignore\" says nothing of it")
}

/// The error for an attach point.
fn refused(absent: &Absent, is_only: bool) -> Diagnostic {
    let message = Diagnostic::error(absent.point.at.0, &*absent.reason).label("this attach point");
    match is_only {
        true => message,
        false => message.help("`missing_probes = \"warn\"` in `config` lets the others be traced"),
    }
}
