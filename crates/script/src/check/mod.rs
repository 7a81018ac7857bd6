//! The checker: every name means something, and every value has a type that fits.
//!
//! A variable's type follows from what is assigned to it, wherever that is; so a map may be read in
//! a probe that stands before the one that sets it. The checker goes through the script until no
//! type changes, and reports only in the last pass. Types only grow (`uint8` to `int64`, unknown to
//! known), so a few passes are enough.

mod argument;
mod call;
mod checker;
mod comptime;
mod config;
mod expression;
mod format;
mod operation;
mod programs;
mod records;
mod statement;
mod unify;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use source::{Diagnostic, Messages, Span, nearest, quote};

use crate::ast::{Item, Script};
use crate::program_types::ProgramTypes;
use crate::types::Type;

use checker::Checker;
pub(crate) use config::markdown as settings_markdown;
pub use records::Bits;
pub(crate) use records::{Layout, Records};
use variables::{Locals, Maps};

/// The kinds of maps that can be declared.
const MAP_KINDS: &[&str] = &["hash", "lruhash", "percpuhash", "percpulruhash"];

/// The maximum number of passes.
const MAX_PASSES: usize = 12;

/// The types of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapTypes {
    /// The type of its keys, if it has any.
    pub key: Option<Type>,
    /// The type of its values.
    pub value: Type,
}

/// What is known about a checked script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The types of all maps.
    pub maps: BTreeMap<String, MapTypes>,
    /// Builtins and functions that need the probe's code in the kernel.
    pub in_kernel: BTreeSet<&'static str>,
    /// Functions that need `--unsafe`.
    pub unsafe_functions: BTreeSet<&'static str>,
}

/// Checks a script without macros; sets the types of its expressions.
pub(crate) fn check(
    script: &mut Script,
    programs: &Rc<dyn ProgramTypes>,
    unread: &[(String, Span)],
    messages: &mut Messages,
) -> Facts {
    definitions(script, messages);
    let records = Records::of(script, Rc::clone(programs), messages);
    let (mut maps, mut locals) = (Maps::default(), Locals::default());
    let mut facts = Facts::default();
    for pass in 1..=MAX_PASSES {
        let mut found = Messages::default();
        let mut checker = Checker::new(&records, &mut maps, &mut locals, &mut found, &mut facts);
        let changed = checker.script(script);
        if !changed || pass == MAX_PASSES {
            // What is wrong in a macro is wrong at each use.
            let mut told = BTreeSet::new();
            for message in found.in_order(&source::Sources::default()) {
                let Span { source, start, end } = message.span;
                if told.insert((source, start, end, message.message.clone())) {
                    messages.add(message);
                }
            }
            break;
        }
    }
    for item in &mut script.items {
        if let Item::Probe(probe) = item {
            let providers: Vec<_> = probe.points.iter().map(|point| point.provider).collect();
            comptime::Known { records: &records, providers: &providers }.reduce(probe);
        }
    }
    for (name, span) in unread {
        messages.add(
            Diagnostic::note(*span, format!("header {} is not read", quote(&format!("<{name}>"))))
                .label("not read")
                .help(
                    "define the structs and constants that the script uses, or include a file by `\"name\"`",
                ),
        );
    }
    facts.maps = maps.types();
    facts
}

/// Checks settings and declarations of maps, and that there is a probe.
fn definitions(script: &Script, messages: &mut Messages) {
    let mut declared: BTreeMap<&str, Span> = BTreeMap::new();
    let mut probes = false;
    for item in &script.items {
        match item {
            Item::Config(settings) => {
                if let (true, Some(first)) = (probes, settings.first()) {
                    messages.add(
                        Diagnostic::error(first.at.0, "the settings stand behind a probe")
                            .label("set here")
                            .help("move `config` to the beginning"),
                    );
                }
                config::check(settings, messages);
            }
            Item::Map(map) => {
                if !MAP_KINDS.contains(&map.kind.as_str()) {
                    messages.add(
                        Diagnostic::error(map.at.0, format!("no kind of map is called {}", quote(&map.kind)))
                            .label("expected hash, lruhash, percpuhash or percpulruhash")
                            .suggest(nearest(&map.kind, MAP_KINDS.iter().copied())),
                    );
                }
                if let Some(first) = declared.insert(&map.name, map.at.0) {
                    messages.add(
                        Diagnostic::error(
                            map.at.0,
                            format!("map {} is declared again", quote(&format!("@{}", map.name))),
                        )
                        .label("second declaration")
                        .related(first, "first declared here"),
                    );
                }
            }
            Item::Probe(probe) => {
                probes = true;
                for point in &probe.points {
                    if let Err(needs) = point.provider.row().served {
                        let message = format!("`{}` probes are not available", point.provider.name());
                        messages.add(Diagnostic::error(point.at.0, message).label(format!("needs {needs}")));
                    }
                }
            }
            Item::Record(_) | Item::Enumeration(_) | Item::Macro(_) => {}
        }
    }
}
