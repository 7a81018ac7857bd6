//! The state of the compiler, and what a handler consists of.

use std::collections::BTreeMap;

use source::{Diagnostic, Messages, Span};

use crate::ast::{At, Block, Expr, ExprKind, Local, Probe, Script};
use crate::check::Facts;
use crate::compiled::{Action, Compiled, Event, Handler, Settings};
use crate::library::{self, Gives};
use crate::provider::Provider;
use crate::types::Type;

use super::assembler::{Assembler, Finished, Label, MAX_CODE};
use super::forms::{Form, Forms};
use super::frame::{Frame, LIMIT, Mark};
use super::groups::{self, Group, Served};
use super::parameters::Parameters;
use super::refuse;
use super::tables::{Constants, Maps};
use crate::walk;
use vm::Op;

/// What a part of a script becomes, or why it does not.
pub(super) type Result<T> = std::result::Result<T, Diagnostic>;

/// A scratch variable.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    /// Where it is in the frame.
    pub(super) at: u16,
    /// Its type.
    pub(super) ty: Type,
}

/// Where `continue` and `break` lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) next: Label,
    pub(super) end: Label,
}

/// The most fields of tracepoints that a program can name.
const MOST_FIELDS: u16 = 1000;

/// The compiler. It has this many fields since each part of a script adds to what all handlers
/// share.
pub(super) struct Compiler<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) settings: Settings,
    pub(super) forms: Forms,
    pub(super) maps: Maps,
    pub(super) asm: Assembler,
    pub(super) frame: Frame,
    pub(super) constants: Constants,
    events: Vec<Event>,
    handlers: Vec<Handler>,
    /// The place of the action among the script's.
    action: usize,
    scopes: Vec<BTreeMap<Local, Variable>>,
    pub(super) loops: Vec<Loop>,
    /// The `abort` of the handler.
    none: Label,
    /// Whether the handler may log; whether it surely has when it is here.
    logs: (bool, bool),
    /// What the handler serves.
    pub(super) served: Served,
    /// The fields of tracepoints' records, by index.
    fields: Vec<String>,
    /// The literal of [`Compiled::addresses`], and whether the handler uses it.
    addresses: (Option<usize>, bool),
    messages: Messages,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(
        script: &Script,
        facts: &Facts,
        parameters: &'a Parameters,
        settings: Settings,
        forms: Forms,
    ) -> Compiler<'a> {
        let mut asm = Assembler::default();
        let none = asm.label();
        Compiler {
            parameters,
            maps: Maps::new(script, facts, &settings, &forms),
            settings,
            forms,
            asm,
            frame: Frame::default(),
            constants: Constants::default(),
            events: Vec::new(),
            handlers: Vec::new(),
            action: 0,
            scopes: Vec::new(),
            loops: Vec::new(),
            none,
            logs: (false, false),
            served: Served::default(),
            fields: Vec::new(),
            addresses: (None, false),
            messages: Messages::default(),
        }
    }

    /// What was compiled, and what was refused.
    pub(super) fn finish(mut self) -> (Compiled, Messages, Forms) {
        if self.asm.is_full() {
            let message = format!("the script's code is larger than {MAX_CODE} bytes");
            self.messages.add(Diagnostic::error(Span::default(), message).help("divide the script"));
        }
        let Finished { code, notes, lines } =
            if self.messages.has_errors() { Finished::default() } else { self.asm.finish() };
        let child = self.maps.child_if_read();
        let compiled = Compiled {
            code,
            child,
            addresses: self.addresses.0,
            handlers: self.handlers,
            maps: self.maps.finish(),
            constants: self.constants.finish(),
            fields: self.fields,
            events: self.events,
            settings: self.settings,
            notes,
            lines,
            ..Compiled::default()
        };
        (compiled, self.messages, self.forms)
    }

    /// Compiles a probe: to a handler, or to several where arguments are in different places.
    pub(super) fn probe(&mut self, probe: &Probe) {
        let served: Vec<Option<()>> =
            probe.points.iter().map(|point| self.keep(refuse::provider(point))).collect();
        if served.contains(&None) {
            return;
        }
        for group in groups::groups(probe, &self.parameters.sites) {
            self.handler(probe, group);
            if self.messages.has_errors() {
                return;
            }
        }
        self.action += 1;
    }

    /// Pushes a field of the tracepoint's record: a number, or the address of a string or an array.
    pub(super) fn record_field(&mut self, name: &str, span: Span) -> Result<()> {
        let known = self.fields.iter().position(|field| field == name);
        let index = known.unwrap_or_else(|| {
            self.fields.push(name.to_owned());
            self.fields.len() - 1
        });
        match u16::try_from(index).ok().filter(|index| *index < MOST_FIELDS) {
            Some(index) => {
                self.asm.short(Op::PushField, index);
                Ok(())
            }
            None => Err(source::Diagnostic::error(span, "the script names too many fields of tracepoints")
                .label("one too many")
                .help("divide it into several scripts")),
        }
    }

    fn handler(&mut self, probe: &Probe, group: Group) {
        self.served = Served::of(probe, &group, self.forms.records.programs());
        // The fields of a tracepoint are read where they are named.
        let is_record = self.served.providers.iter().all(|provider| *provider == Provider::Tracepoint);
        if self.served.probed.signature.is_none()
            && !is_record
            && let Some(span) =
                walk::find(probe, &|expr| matches!(&expr.kind, ExprKind::Name(name) if name == "args"))
        {
            let message = self.served.no_arguments(span);
            self.messages.add(message);
            return;
        }
        let points = group.points;
        self.frame = Frame::default();
        self.scopes = vec![BTreeMap::new()];
        self.loops.clear();
        self.none = self.asm.label();
        self.logs = (logs(probe), false);
        let entry = self.asm.here();
        self.asm.line(probe.points.first().map_or(Span::default(), |point| point.at.0));
        if let Some(predicate) = &probe.predicate {
            self.asm.note(format!("/{}/", crate::print::expression(predicate)));
            self.asm.line(predicate.at.0);
            let mark = self.frame.mark();
            let none = self.none;
            let tested = self.test(predicate, false, none);
            self.keep(tested);
            self.asm.drop();
            self.frame.release(mark);
        }
        self.statements(&probe.action);
        if self.logs.0 {
            self.end_run();
        }
        self.asm.bind(self.none);
        self.asm.op(Op::Abort);
        let (end, frame) = (self.asm.here(), self.frame.most());
        let sites = self.served.sites.take().unwrap_or_default();
        let (action, addressed) = (self.action, std::mem::take(&mut self.addresses.1));
        let logs = self.logs.0;
        self.handlers.push(Handler { action, points, sites, entry, end, logs, addressed, frame });
    }

    /// Ends the run: keeps the log if there is something in it.
    pub(super) fn end_run(&mut self) {
        let none = self.none;
        match self.logs {
            (false, _) => self.asm.op(Op::Abort),
            (true, true) => self.asm.op(Op::Exit),
            (true, false) => {
                self.asm.op(Op::PushLp);
                self.asm.jump(Op::Jz, none);
                self.asm.op(Op::Exit);
            }
        }
    }

    /// Compiles what may not be reached: what it logs is not sure to be in the log.
    pub(super) fn perhaps<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.logs.1;
        let result = part(self);
        self.logs.1 = before;
        result
    }

    /// An event of the script; its number. It is logged next.
    pub(super) fn event(&mut self, action: Action, arguments: Vec<Type>, at: At) -> u64 {
        self.logs.1 = true;
        self.events.push(Event { action, arguments, at });
        self.events.len() as u64 - 1
    }

    /// Adds the message of what is refused.
    pub(super) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|message| self.messages.add(message)).ok()
    }

    /// Bytes of the frame.
    pub(super) fn take(&mut self, bytes: usize, span: Span) -> Result<u16> {
        self.frame.take(bytes).map_err(|needed| {
            let message = format!("the action needs {needed} bytes for its values and has {LIMIT}");
            let help = format!(
                "read shorter strings: `str(x, 64)`, or `config = {{ max_strlen = {} }}`",
                (self.settings.max_strlen / 4).max(16)
            );
            Diagnostic::error(span, message).label("there is no room for this").help(help)
        })
    }

    pub(super) fn open(&mut self) -> Mark {
        self.scopes.push(BTreeMap::new());
        self.frame.mark()
    }

    /// Ends a block; its places are free again if `mark` is given.
    pub(super) fn close(&mut self, mark: Option<Mark>) {
        self.scopes.pop();
        if let Some(mark) = mark {
            self.frame.release(mark);
        }
    }

    pub(super) fn find(&self, name: &Local) -> Option<&Variable> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// A new variable in the innermost block.
    pub(super) fn declare(&mut self, name: &Local, ty: &Type, span: Span) -> Result<Variable> {
        let Some(bytes) = self.forms.stored(ty) else { return Err(refuse::unknown_type(ty, span)) };
        let variable = Variable { at: self.take(bytes, span)?, ty: ty.clone() };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.clone(), variable.clone());
        }
        Ok(variable)
    }

    /// The form of an expression's value.
    pub(super) fn form(&self, expr: &Expr) -> Result<Form> {
        self.forms.form(&expr.ty).ok_or_else(|| {
            if let Some(value) = self.served.value(expr) {
                return refuse::nowhere(&value, expr.at.0);
            }
            match refuse::unknown_record(expr) {
                Some((tag, name, span)) => {
                    let records = &self.forms.records;
                    let reason = records.reason(name);
                    let reason = reason.or_else(|| records.refused(&self.served.homes, tag, name));
                    refuse::not_defined(tag, name, reason, span)
                }
                None => refuse::unknown(expr),
            }
        })
    }

    /// The number of the literal that tells where the addresses of probed instructions are among
    /// the constants.
    pub(super) fn addresses(&mut self) -> u64 {
        self.addresses.1 = true;
        *self.addresses.0.get_or_insert_with(|| self.constants.own()) as u64
    }

    /// The number of a literal.
    pub(super) fn constant(&mut self, text: &[u8]) -> u64 {
        self.constants.number(text)
    }
}

/// Whether a probe has a function that gives nothing: those of the reader are among them.
fn logs(probe: &Probe) -> bool {
    let is_event = |expr: &Expr| match &expr.kind {
        ExprKind::Call(name, _) => library::find(name).is_some_and(|entry| entry.gives == Gives::Nothing),
        _ => false,
    };
    let mut found = false;
    let mut see = |expr: &Expr| found = found || walk::any(expr, &is_event);
    let Block { .. } = &probe.action;
    walk::of_block(&probe.action, &mut see);
    probe.predicate.iter().for_each(&mut see);
    found
}
