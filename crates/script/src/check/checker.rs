//! The state of a pass through a script.

use source::{Diagnostic, Messages, Span};

use super::Facts;
use super::records::Records;
use super::variables::{Locals, Maps};
use crate::ast::{Item, Probe, Script};
use crate::attach_point::AttachPoint;
use crate::library::{Entry, Needs};
use crate::provider::{Provider, Providers};
use crate::types::Type;

use super::programs::{self, Names};
use super::unify;

/// A pass.
pub(crate) struct Checker<'a> {
    pub(crate) records: &'a Records,
    pub(crate) maps: &'a mut Maps,
    pub(crate) locals: &'a mut Locals,
    pub(crate) facts: &'a mut Facts,
    messages: &'a mut Messages,
    /// The providers of the probe's points.
    pub(crate) providers: Vec<Provider>,
    /// The probe's points.
    pub(crate) points: Vec<AttachPoint>,
    /// An attach point of each program that the probe's names may be from.
    pub(crate) homes: Vec<AttachPoint>,
    /// One of each program of the script.
    binaries: Vec<AttachPoint>,
    /// The loops around the statement.
    pub(crate) loops: usize,
    /// The conditions around the statement.
    pub(crate) conditions: usize,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(
        records: &'a Records,
        maps: &'a mut Maps,
        locals: &'a mut Locals,
        messages: &'a mut Messages,
        facts: &'a mut Facts,
    ) -> Checker<'a> {
        Checker {
            records,
            maps,
            locals,
            facts,
            messages,
            providers: Vec::new(),
            points: Vec::new(),
            homes: Vec::new(),
            binaries: Vec::new(),
            loops: 0,
            conditions: 0,
        }
    }

    /// Goes through the script; whether a type changed.
    pub(crate) fn script(&mut self, script: &mut Script) -> bool {
        self.maps.begin_pass();
        self.locals.begin_pass();
        self.binaries = programs::binaries(script);
        for item in &mut script.items {
            if let Item::Probe(probe) = item {
                self.probe(probe);
            }
        }
        self.maps.changed() || self.locals.changed()
    }

    fn probe(&mut self, probe: &mut Probe) {
        self.providers = probe.points.iter().map(|point| point.provider).collect();
        self.points.clone_from(&probe.points);
        self.homes = programs::homes(probe, &self.binaries);
        self.locals.begin_probe();
        self.locals.open();
        self.conditions = 0;
        if let Some(predicate) = &mut probe.predicate {
            self.condition(predicate);
            self.conditions = 1;
        }
        self.statements(&mut probe.action);
        self.locals.close();
    }

    /// The names of programs that can be used here.
    pub(crate) fn names(&self) -> Names<'_> {
        Names { records: self.records, homes: &self.homes, points: &self.points, messages: Vec::new() }
    }

    /// Puts the types of programs in the place of names that the script does not define.
    pub(crate) fn resolve(&mut self, ty: &mut Type, span: Span) {
        let mut names = self.names();
        names.resolve(ty, span);
        for message in names.messages {
            self.report(message);
        }
    }

    /// Whether the probe is at the return of a function of the kernel that nobody knows.
    pub(crate) fn is_untyped_exit(&mut self) -> bool {
        self.providers.contains(&Provider::Fexit) && !self.names().knows_function()
    }

    /// Adds a message.
    pub(crate) fn report(&mut self, message: Diagnostic) {
        self.messages.add(message);
    }

    /// Adds an error with the text at its place.
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, label: impl Into<String>) {
        self.report(Diagnostic::error(span, message).label(label));
    }

    /// Unwraps a result; adds its message.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|message| self.report(message)).ok()
    }

    /// Checks that a builtin has a meaning in this probe, and notes what it needs.
    pub(crate) fn available(&mut self, entry: &'static Entry, name: &str, span: Span) {
        match entry.needs {
            Needs::Nothing => {}
            Needs::Kernel => {
                self.facts.in_kernel.insert(entry.name);
            }
            Needs::Unsafe => {
                self.facts.unsafe_functions.insert(entry.name);
            }
            Needs::Missing(what) => {
                let message = Diagnostic::error(span, format!("`{name}` is not available"));
                self.report(message.label("no engine of dprobes has it").help(format!("it needs {what}")));
                return;
            }
        }
        let Some(provider) = self.providers.iter().copied().find(|provider| !entry.meaning.has(*provider))
        else {
            return;
        };
        let help = match provider {
            Provider::Uretprobe | Provider::Kretprobe if entry.meaning == Providers::ARGUMENTS => {
                "keep the argument at the entry: `@x[tid] = arg0;` in a probe of the entry".to_string()
            }
            Provider::Fentry if entry.meaning == Providers::ARGUMENTS => "use `args.name`".to_string(),
            _ => format!("it has one in: {}", entry.meaning.names()),
        };
        let message = format!("`{name}` has no meaning in `{}` probes", provider.name());
        self.report(Diagnostic::error(span, message).label("not known there").help(help));
    }

    /// The message for a value that is no condition.
    pub(crate) fn must_be_condition(&mut self, ty: &Type, span: Span) {
        if !unify::is_condition(ty) {
            let message =
                Diagnostic::error(span, format!("a value of type `{ty}` is neither true nor false"))
                    .label("expected a condition");
            self.report(match ty {
                Type::Text => message.help("compare it: `... != \"\"`"),
                _ => message,
            });
        }
    }
}
