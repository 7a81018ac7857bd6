//! Probes at tracepoints of the kernel: a program for each layout of their records.

use std::collections::BTreeMap;

use engine::Refused;
use engine::reason::NotPlaced;
use image::Pattern;
use kernel::AttachKind;
use kernel::session::{TracepointSite, attach_tracepoints};
use kernel::tracepoints::{FieldAccess, Format, Tracefs};
use kernel::{Reason, cookie};
use rpn::{Location, Object, Probe};

use super::attaching::{Outcome, Program};
use super::attempt::Attempt;
use super::handlers::Spot;
use super::in_kernel::Kernel;
use super::refusals::refusal_of_tracepoint;
use crate::Failure;

/// How each field that the program names is accessed, where the record has it.
type Layout = Vec<Option<FieldAccess>>;

/// Whether a probe is at tracepoints.
pub(super) fn is_one(probe: &Probe) -> bool {
    matches!(probe.location, Location::Tracepoint { .. })
}

/// Whether a program needs the kernel's symbols: for its probes, or to push them.
pub(super) fn needs_symbols(object: &Object) -> bool {
    !object.symbols.is_empty() || object.probes.iter().any(|probe| !is_one(probe))
}

/// The tracepoints of a probe, with their names.
fn find(tracefs: &Tracefs, system: &str, name: &str) -> Result<Vec<(String, Format)>, String> {
    let names = match Pattern::is_one(name) {
        false => vec![name.to_owned()],
        true => {
            let pattern = Pattern::new(name).map_err(|error| error.to_string())?;
            let names = tracefs.names(system)?.into_iter();
            let names: Vec<String> = names.filter(|name| pattern.matches(name)).collect();
            if names.is_empty() {
                return Err(format!("no tracepoint of the system `{system}` matches `{name}`"));
            }
            names
        }
    };
    names.into_iter().map(|name| Ok((name.clone(), tracefs.format(system, &name)?))).collect()
}

fn layout(object: &Object, format: &Format) -> Layout {
    object.fields.iter().map(|field| format.access(field)).collect()
}

impl Program {
    /// Checks that a handler can run at one at least of the probe's tracepoints, if there are any:
    /// that there are none is told when it is attached.
    pub(super) fn check_tracepoint(&self, object: &Object, probe: &Probe) -> Result<(), Failure> {
        let Location::Tracepoint { system, name } = &probe.location else { return Ok(()) };
        let Ok(found) = Tracefs::open().and_then(|tracefs| find(&tracefs, system, name)) else {
            return Ok(());
        };
        let mut refused = Ok(());
        for (name, format) in found {
            let layout = layout(object, &format);
            let spot = Spot { fields: Some(&layout), ..Spot::at(AttachKind::Tracepoint) };
            match self.handlers.compile(object, probe, spot, &self.maps) {
                Ok(_) => return Ok(()),
                Err(refusal) => {
                    let help = (refusal.reason == Reason::NoSuchField).then(|| {
                        let fields: Vec<&str> =
                            format.fields.iter().map(|field| field.name.as_str()).collect();
                        format!("{system}:{name} has {}", fields.join(", "))
                    });
                    refused = refused.and(Err(self.refused(&refusal, object, probe, help)));
                }
            }
        }
        refused
    }

    /// Attaches its probes to tracepoints. `kernel`: the kernel's symbols, if it needs them.
    pub(super) fn attach_tracepoints(&mut self, kernel: Option<&Kernel>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut object = self.versions.main().clone();
        // A symbol that is not there is told of the other probes.
        if kernel.is_some_and(|kernel| kernel.link(&mut object).is_err()) {
            return outcome;
        }
        let wanted: Vec<usize> =
            (0..object.probes.len()).filter(|&probe| is_one(&object.probes[probe])).collect();
        if wanted.is_empty() {
            return outcome;
        }
        let tracefs = Tracefs::open();
        let mut by_probe: BTreeMap<usize, Attempt> = BTreeMap::new();
        for probe in wanted.into_iter().filter(|&probe| !self.is_over(probe)).collect::<Vec<_>>() {
            let definition = &object.probes[probe];
            let Location::Tracepoint { system, name } = &definition.location else { continue };
            let found =
                tracefs.as_ref().map_err(String::clone).and_then(|tracefs| find(tracefs, system, name));
            match found {
                Ok(found) => {
                    by_probe.insert(probe, self.attach_to(&object, probe, system, found));
                }
                Err(reason) => outcome.refused.push(Refused {
                    module: "the kernel".to_owned(),
                    point: definition.point.clone(),
                    probe,
                    reason: NotPlaced::Other(reason),
                }),
            }
        }
        self.conclude(&object, by_probe, "the kernel", &mut outcome);
        outcome
    }

    /// Attaches a probe to its tracepoints: one program to all with the same layout.
    fn attach_to(
        &mut self,
        object: &Object,
        probe: usize,
        system: &str,
        found: Vec<(String, Format)>,
    ) -> Attempt {
        let mut groups: BTreeMap<Layout, (Vec<String>, Vec<u32>)> = BTreeMap::new();
        for (name, format) in found {
            let group = groups.entry(layout(object, &format)).or_default();
            group.0.push(name);
            group.1.push(format.id);
        }
        let mut attempt = Attempt::default();
        for (layout, (names, ids)) in groups {
            let spot = Spot { fields: Some(&layout), ..Spot::at(AttachKind::Tracepoint) };
            let definition = &object.probes[probe];
            match self.handlers.load(object, definition, spot, &self.maps, self.sources.as_ref()) {
                Ok(program) => {
                    let sites = names.iter().zip(ids).map(|(name, id)| {
                        let number = self.numbers.number(probe, system, name, id.into());
                        TracepointSite { id, cookie: cookie(number, self.new_site(None, id.into())) }
                    });
                    let sites: Vec<TracepointSite> = sites.collect();
                    let attached = attach_tracepoints(&program, &sites);
                    attached.refused.iter().for_each(|(place, _)| {
                        self.numbers.leave_out(sites[*place].cookie as u32);
                    });
                    attempt.note(&names, attached, "tracepoint", refusal_of_tracepoint);
                }
                Err(reason) => attempt.failed(&names, &reason),
            }
        }
        attempt
    }
}
