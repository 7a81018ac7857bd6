//! Compiles the handlers of jump probes to machine code.

use std::collections::HashMap;
use std::rc::Rc;

use jit::{Compiled, SiteField};
use rpn::Object;
use vm::Effects;

use crate::jump::numbers::Number;
use crate::jump::{Code, Counter};
use crate::program::Program;
use crate::site::Site;
use crate::versions::Versions;

pub(super) mod compiler;

/// A compiled handler. While it exists, its program keeps the cells that it counts in, and its
/// number stays taken.
#[derive(Debug)]
struct Handled {
    code: Compiled,
    _number: Number,
    _program: Rc<()>,
}

impl Code for Handled {
    fn length(&self) -> usize {
        self.code.len()
    }

    fn entry(&self) -> u32 {
        self.code.entry()
    }

    fn append_at(&self, address: u64, to: &mut Vec<u8>) {
        self.code.append_at(address, to);
    }

    fn repair(&self, offset: u32) -> Option<u32> {
        self.code.repair(offset)
    }

    fn undo(&self, offset: u32) -> Option<u32> {
        self.code.undo(offset)
    }

    fn site_fields(&self) -> Option<Vec<SiteField>> {
        Some(self.code.site_fields()?.collect())
    }
}

/// A handler that was compiled for a site.
pub(crate) struct CompiledHandler {
    pub(crate) code: Rc<dyn Code>,
    /// Whether its record is committed behind the displaced instruction (TENTATIVE until then).
    pub(crate) tentative: bool,
    /// Whether it works in a context.
    pub(crate) claims: bool,
}

/// Where a handler runs.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) site: &'a Site,
    /// Whether the displaced instruction can fault.
    pub(crate) may_fault: bool,
    /// The program's code from the site on.
    pub(crate) ahead: &'a [u8],
    /// Whether an earlier handler of the site makes a record that waits for the displaced
    /// instruction.
    pub(crate) waits: bool,
    /// The number of the arming, if that may be copied; else 0.
    pub(crate) arming: u32,
}

/// The local variables that every version of a program only increments and decrements.
fn counted(versions: &Versions) -> Vec<u16> {
    let mut versions = versions.all();
    let mut counted = versions.next().map(counted_in).unwrap_or_default();
    for version in versions {
        let other = counted_in(version);
        counted.retain(|variable| other.contains(variable));
    }
    counted
}

/// The same for one version. Variables that it does not use at all are not included.
fn counted_in(object: &Object) -> Vec<u16> {
    let mut used: HashMap<u16, bool> = HashMap::new();
    for decoded in vm::instructions(&object.code, object.word()) {
        let Some(instruction) = decoded.instruction() else { return Vec::new() };
        let effects = instruction.effects();
        match instruction.variable() {
            Some(variable) if effects.intersects(Effects::SEES_LOCALS) => {
                used.insert(variable, false);
            }
            Some(variable) if effects.intersects(Effects::COUNTS_LOCALS) => {
                used.entry(variable).or_insert(true);
            }
            // The variable's number is on the stack: it may be any.
            None if effects.intersects(Effects::SEES_LOCALS) => return Vec::new(),
            _ => {}
        }
    }
    let vars = object.vars;
    let mut counted: Vec<u16> = used
        .into_iter()
        .filter(|&(variable, only)| only && variable < vars)
        .map(|(variable, _)| variable)
        .collect();
    counted.sort_unstable();
    counted
}

impl Program {
    /// The counter of a local variable that is only incremented and decremented.
    pub(crate) fn counted(&self, variable: usize) -> Option<&Counter> {
        self.counters.as_ref()?.get(&u16::try_from(variable).ok()?)
    }
}
