//! Static probes (`usdt`): their arguments are where the program's notes say, which differs from
//! site to site. So an action is compiled once for all sites that have them in the same places.
//!
//! ```text
//! usdt:x:p { print(arg0); }     site 1: -4@%eax            push r, eax; extend
//!                               sites 2, 3: 8@-16(%rbp)    push 8; push r, rbp; add -16; push AT;
//!                                                          read fr; drop; push fr AT
//! ```

use std::collections::BTreeMap;

use source::{Diagnostic, Span};
use vm::{Op, Register};

use crate::ast::{Expr, ExprKind, Probe};
use crate::library;
use crate::point::AttachPoint;
use crate::provider::Provider;

use super::compiler::{Compiler, Result};
use super::walk;

/// The sites of `usdt` attach points, by the attach point's text in full form.
pub type StaticSites = BTreeMap<String, Vec<StaticSite>>;

/// A static probe in a program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSite {
    /// The program or library, as the engine names it.
    pub file: String,
    /// Its provider and its name: `python:gc__start`.
    pub name: String,
    /// Where its instruction is in the file.
    pub offset: u64,
    /// Where its arguments are.
    pub arguments: Vec<SiteArgument>,
}

/// An argument of a static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteArgument {
    /// Its size: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// Where it is; `None` if a handler cannot read it.
    pub place: Option<SitePlace>,
}

/// Where an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SitePlace {
    /// It is this number.
    Constant(i64),
    /// The bits of a register from the given one on.
    Register(Register, u8),
    /// In memory, at the sum of these.
    Memory {
        /// A register.
        base: Option<Register>,
        /// Another one, and by what it is multiplied: 1, 2, 4 or 8.
        index: Option<(Register, u8)>,
        /// A number.
        displacement: i64,
    },
}

/// What one handler serves.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) points: Vec<AttachPoint>,
    /// The sites of a `usdt` point; `None` for others, and where notes are not known.
    pub(super) sites: Option<Vec<StaticSite>>,
}

/// The handlers that a probe becomes. A point without a site has one too: it is checked like the
/// others.
pub(super) fn groups(probe: &Probe, sites: &StaticSites) -> Vec<Group> {
    let is_argument = |expr: &Expr| matches!(&expr.kind, ExprKind::Name(name) if named(name));
    let mut reads = false;
    let mut see = |expr: &Expr| reads = reads || walk::any(expr, &is_argument);
    walk::of_block(&probe.action, &mut see);
    probe.predicate.iter().for_each(&mut see);
    let mut groups: Vec<Group> = Vec::new();
    let mut others = Group::default();
    for point in &probe.points {
        let known = (point.provider == Provider::Usdt).then(|| sites.get(&point.to_string())).flatten();
        let Some(known) = known else {
            others.points.push(point.clone());
            continue;
        };
        let first = groups.len();
        for site in known {
            let is_like = |group: &&mut Group| {
                let like = group.sites.as_ref().and_then(|sites| sites.first());
                !reads || like.is_some_and(|like| like.arguments == site.arguments)
            };
            match groups[first..].iter_mut().find(is_like) {
                Some(Group { sites: Some(sites), .. }) => sites.push(site.clone()),
                _ => groups.push(Group { points: vec![point.clone()], sites: Some(vec![site.clone()]) }),
            }
        }
        if known.is_empty() {
            groups.push(Group { points: vec![point.clone()], sites: Some(Vec::new()) });
        }
    }
    if !others.points.is_empty() {
        groups.insert(0, others);
    }
    groups
}

/// Whether a name is one of an argument.
fn named(name: &str) -> bool {
    library::find(name).is_some_and(|entry| entry.name == "argN")
}

impl Compiler<'_> {
    /// Pushes an argument of the static probe that is compiled.
    pub(super) fn static_argument(&mut self, name: &str, number: u32, span: Span) -> Result<()> {
        let Some(site) = self.sites.as_deref().and_then(<[StaticSite]>::first) else {
            // No site has been found, so this is never run.
            self.asm.push(0);
            return Ok(());
        };
        let Some(argument) = site.arguments.get(number as usize) else {
            let message = format!("the static probe {} has no `{name}`", site.name);
            let help = match site.arguments.len() {
                0 => "it has no arguments".to_owned(),
                1 => "it has `arg0` only".to_owned(),
                count => format!("it has `arg0` to `arg{}`", count - 1),
            };
            return Err(Diagnostic::error(span, message).label("this argument").help(help));
        };
        let SiteArgument { bytes, signed, place } = argument.clone();
        match place {
            Some(SitePlace::Constant(value)) => self.asm.push(value as u64),
            Some(SitePlace::Register(register, shift)) => {
                self.asm.short(Op::PushR, register as u16);
                if shift > 0 {
                    self.asm.byte(Op::ShrImm, shift);
                }
            }
            Some(SitePlace::Memory { base, index, displacement }) => {
                let at = self.take(8, span)?;
                self.asm.push(bytes.into());
                match base {
                    Some(base) => self.asm.short(Op::PushR, base as u16),
                    None => self.asm.push(0),
                }
                if let Some((index, scale)) = index {
                    self.asm.short(Op::PushR, index as u16);
                    if scale > 1 {
                        self.asm.byte(Op::ShlImm, scale.trailing_zeros() as u8);
                    }
                    self.asm.op(Op::Add);
                }
                self.asm.plus(displacement as u64);
                self.asm.push(at.into());
                self.asm.op(Op::ReadF);
                self.asm.drop();
                self.asm.get(at);
            }
            None => {
                let message = format!("`{name}` of the static probe {} cannot be read", site.name);
                return Err(Diagnostic::error(span, message)
                    .label("where it is is not understood, or a float")
                    .help("`dprobes list -u FILE` shows arguments; `reg()` reads registers"));
            }
        }
        self.asm.extend(bytes, signed);
        Ok(())
    }
}
