//! Probes at functions of the kernel by their types (`fentry`, `fexit`), and at tracepoints with
//! the arguments as the kernel passes them (`rawtracepoint`): scripts have them.
//!
//! Handlers read words with which the kernel calls them, as fields: `arg0` and those that follow,
//! and at the return of a function `retval`, which is behind all arguments.

use std::collections::BTreeMap;

use bpf::{AttachError, Errno, Feature, KernelTypes};
use engine::Refused;
use engine::reason::NotPlaced;
use image::Pattern;
use kernel::session::{Attached, attach_function, attach_raw_tracepoint};
use kernel::tracepoints::FieldAccess;
use kernel::{AttachKind, cookie};
use rpn::{FunctionPoint, Location, Object, Probe};

use super::attaching::{Outcome, Program};
use super::attempt::Attempt;
use super::handlers::Spot;
use super::kinds::TYPED;
use crate::Failure;

/// The most places of one probe: the kernel verifies a handler for each.
const MOST: usize = 1000;

/// One place of a probe.
struct Spotted {
    name: String,
    place: AttachKind,
    /// The number of words before what a function returns.
    words: usize,
}

impl Program {
    /// Checks that a handler can run there, whatever the function or tracepoint is.
    pub(super) fn check_typed(&self, object: &Object, probe: &Probe) -> Result<(), Failure> {
        let place = match probe.location {
            Location::Points { point: FunctionPoint::Return, .. } => AttachKind::Fexit(0),
            Location::Points { .. } => AttachKind::Fentry(0),
            _ => AttachKind::RawTracepoint,
        };
        let layout = layout(object, 0);
        let spot = Spot { fields: Some(&layout), ..Spot::at(place) };
        let compiled = self.handlers.compile(object, probe, spot, &self.maps);
        compiled.map(drop).map_err(|refusal| self.refused(&refusal, object, probe, None))
    }

    /// Attaches its probes.
    pub(super) fn attach_typed(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let object = self.versions.main().clone();
        let types = KernelTypes::read();
        let mut by_probe: BTreeMap<usize, Attempt> = BTreeMap::new();
        let open: Vec<usize> = (0..object.probes.len()).filter(|&probe| !self.is_over(probe)).collect();
        for probe in open {
            match places(&object.probes[probe].location, types.as_ref().map_err(|error| *error)) {
                Ok(places) => {
                    by_probe.insert(probe, self.attach_each(&object, probe, &places));
                }
                Err(reason) => outcome.refused.push(Refused {
                    module: "the kernel".to_owned(),
                    point: object.probes[probe].point.clone(),
                    probe,
                    reason: NotPlaced::Other(reason),
                }),
            }
        }
        self.conclude(&object, by_probe, "the kernel", &mut outcome);
        outcome
    }

    fn attach_each(&mut self, object: &Object, probe: usize, places: &[Spotted]) -> Attempt {
        let mut attempt = Attempt::default();
        for Spotted { name, place, words } in places {
            let names = [name.clone()];
            let number = self.numbers.number(probe, TYPED, name, 0);
            let cookie = cookie(number, self.new_site(None, 0));
            let layout = layout(object, *words);
            let spot = Spot { fields: Some(&layout), cookie: Some(cookie), ..Spot::at(*place) };
            let definition = &object.probes[probe];
            let loaded = self.handlers.load(object, definition, spot, &self.maps, self.sources.as_ref());
            let attached = loaded.map_err(|reason| not_loaded(*place, name, reason)).and_then(|program| {
                match place {
                    AttachKind::RawTracepoint => attach_raw_tracepoint(&program, name),
                    _ => attach_function(&program),
                }
                .map_err(|error| not_attached(*place, name, error))
            });
            match attached {
                Ok(attached) => note(&mut attempt, &names, attached, *place),
                Err(reason) => {
                    self.numbers.leave_out(number);
                    attempt.failed(&names, &reason);
                }
            }
        }
        if places.len() > 1 {
            attempt.only = None;
        }
        attempt
    }
}

fn note(attempt: &mut Attempt, names: &[String], attached: Attached, place: AttachKind) {
    let kind = match place {
        AttachKind::RawTracepoint => "rawtracepoint",
        AttachKind::Fentry(_) => "fentry",
        _ => "fexit",
    };
    attempt.note(names, attached, kind, |error| error.to_string());
}

/// Where the words are that a program names as fields.
fn layout(object: &Object, words: usize) -> Vec<Option<FieldAccess>> {
    let word = |number: usize| u16::try_from(8 * number).ok().map(|offset| FieldAccess::Word { offset });
    let access = |name: &String| match name.strip_prefix("arg") {
        Some(number) => number.parse().ok().filter(|number| *number < 64).and_then(word),
        None if name == "retval" => word(words),
        None => None,
    };
    object.fields.iter().map(access).collect()
}

/// The places that a location means.
///
/// # Errors
/// There is none, or the kernel does not tell them.
fn places(location: &Location, types: Result<&KernelTypes, Errno>) -> Result<Vec<Spotted>, String> {
    let untold =
        |error: Errno| format!("the kernel does not tell its types (/sys/kernel/btf/vmlinux): {error}");
    match location {
        Location::Tracepoint { name, .. } if !Pattern::is_one(name) => {
            // One of a module is not among those that the kernel tells.
            Ok(vec![Spotted { name: name.clone(), place: AttachKind::RawTracepoint, words: 0 }])
        }
        Location::Tracepoint { name, .. } => {
            let names = matching(name, types.map_err(untold)?.tracepoints())?;
            let spotted = |name| Spotted { name, place: AttachKind::RawTracepoint, words: 0 };
            Ok(names.into_iter().map(spotted).collect())
        }
        Location::Points { function, point } => {
            let types = types.map_err(untold)?;
            let names = match Pattern::is_one(function) {
                true => matching(function, types.functions())?,
                false => vec![function.clone()],
            };
            let spotted = |name: String| {
                let found = types.function(&name).ok_or_else(|| {
                    format!("the kernel has no function `{}` whose type it tells", printable::text(&name))
                })?;
                let place = match point {
                    FunctionPoint::Return => AttachKind::Fexit(found.function),
                    _ => AttachKind::Fentry(found.function),
                };
                Ok(Spotted { name, place, words: found.parameters.len() })
            };
            names.into_iter().map(spotted).collect()
        }
        _ => Err("it is no function and no tracepoint".to_owned()),
    }
}

fn matching(pattern: &str, names: Vec<String>) -> Result<Vec<String>, String> {
    let found = Pattern::new(pattern).map_err(|error| error.to_string())?;
    let names: Vec<String> = names.into_iter().filter(|name| found.matches(name)).collect();
    match names.len() {
        0 => Err(format!("nothing of the kernel matches `{}`", printable::text(pattern))),
        1..=MOST => Ok(names),
        count => Err(format!(
            "`{}` means {count} places, and the kernel verifies a handler for each: {MOST} at most; `kprobe` and \
             `tracepoint` take more",
            printable::text(pattern)
        )),
    }
}

/// Why a handler is not loaded. A kernel that loads none of its kind says nothing of the handler.
fn not_loaded(place: AttachKind, name: &str, reason: String) -> String {
    let (kind, instead) = match place {
        AttachKind::Fentry(_) => ("fentry", "kprobe"),
        AttachKind::Fexit(_) => ("fexit", "kretprobe"),
        _ => return reason,
    };
    if Feature::Fentry.is_available() {
        return reason;
    }
    let also = match Feature::Kprobe.is_available() {
        true => "",
        false => ", but this kernel has no kprobes, either",
    };
    format!(
        "this kernel runs no programs at functions by their types (`{kind}`): {reason}; use `{instead}:{name}`{also}"
    )
}

/// Why the kernel refuses to attach a handler.
fn not_attached(place: AttachKind, name: &str, error: AttachError) -> String {
    match (place, error.errno()) {
        (AttachKind::RawTracepoint, Some(Errno::ENOENT)) => {
            format!("the kernel has no tracepoint `{}`", printable::text(name))
        }
        (AttachKind::RawTracepoint, Some(Errno::EINVAL)) => {
            "the handler reads an argument that the tracepoint does not have".to_owned()
        }
        (_, Some(Errno::EBUSY)) => "the kernel has no room for another program there".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_names() {
        let fields = ["arg0", "arg3", "retval", "arg99", "other", "argx"];
        let object = Object { fields: fields.map(String::from).into(), ..Object::default() };
        let word = |offset| Some(FieldAccess::Word { offset });
        assert_eq!(layout(&object, 2), [word(0), word(24), word(16), None, None, None]);
    }

    #[test]
    fn patterns_match_whole_names() {
        let names = || ["sched_switch", "sched_waking", "sys_enter"].map(String::from).to_vec();
        assert_eq!(matching("sched_*", names()).expect("some do").len(), 2);
        assert!(matching("no*", names()).is_err());
        let many: Vec<String> = (0..2000).map(|number| format!("f{number}")).collect();
        assert!(matching("f*", many).is_err_and(|reason| reason.contains("2000 places")));
    }
}
