//! Compiles the handlers of jump probes to machine code.

use std::collections::HashMap;
use std::rc::Rc;

use jit::{Compiled, Environment, Handler, Limits, SiteField, Variable, Waiting};
use layout::{HandlerInfo, PerProcessor, state};
use patch::Mode;
use rpn::{Location, Object};
use vm::{Effects, Word};

use super::identity::mark;
use super::numbers::{Common, Number};
use super::probe_end::can_end_itself;
use super::{Code, Counter, HandlerMemory};
use crate::program::{DROPPED, LIMITED_HITS, MISSED, OVER, Program};
use crate::site::Site;
use crate::tracer::Tracer;
use crate::versions::Versions;

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

    fn place(&self, address: u64, to: &mut Vec<u8>) {
        self.code.place(address, to);
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

impl Tracer<'_> {
    /// Compiles the handler of a probe (its program's number and its own) for a site, in an address
    /// space with this ground.
    pub(crate) fn compile(
        &mut self,
        ground: &mut HandlerMemory,
        (program_number, probe): (usize, usize),
        At { site, may_fault, ahead, waits, arming }: At<'_>,
    ) -> Result<CompiledHandler, String> {
        const NOWHERE: &str = "there is no memory to share with the process";
        let Some(cells) = &mut self.sharing.cells else { return Err(NOWHERE.to_owned()) };
        let base = ground.cells;
        let program = &mut self.programs[program_number];
        let locals = program.locals.address(base).ok_or("its variables have no room in shared memory")?;
        let globals =
            self.sharing.globals.address(base).ok_or("the global variables are not in shared memory")?;
        if program.counters.is_none() {
            let variables = counted(&program.versions);
            let counter = |variable: u16| Some((variable, cells.counter(program.locals.offset(variable))?));
            program.counters = Some(variables.into_iter().filter_map(counter).collect());
        }
        let counters = program.counters.iter().flatten();
        let counted: Vec<(Variable, PerProcessor)> = counters
            .map(|(&variable, counter): (_, &Counter)| (Variable::Local(variable), counter.at(base)))
            .collect();
        let limits = has_limits(&program.versions.of_word(Word::W8).probes[probe]);
        if !std::mem::replace(&mut program.probes[probe].is_compiled, true) && can_end_itself(program, probe)
        {
            self.sharing.mortal.push((program_number, probe));
        }
        let program = &mut self.programs[program_number];
        let object = program.versions.of_word(Word::W8);
        let definition = &object.probes[probe];
        const FULL: &str = "there is no more room to count in";
        // A probe at points of functions counts each of its sites separately.
        let place = match definition.location {
            Location::Points { .. } if limits => {
                return Err("it has many sites, and counts its hits one by one".to_owned());
            }
            Location::Points { .. } => {
                let places = program.places.get_mut();
                Some(places.counter(probe, &site.module, site.address, cells).ok_or(FULL)?)
            }
            _ => None,
        };
        let point = place.as_ref().map(|(offset, _)| *offset).or(program.probes[probe].offset).unwrap_or(0);
        let tallies = program.probes[probe].counted(cells).ok_or(FULL)?;
        let hits = place.map_or_else(|| tallies.hits.at(base), |(_, counter)| counter.at(base));
        let word = |which: usize| tallies.words.address(base) + (which * size_of::<u64>()) as u32;
        let code = if ahead.is_empty() { site.displaced.original() } else { ahead };
        let (own, shared) = ground.contexts.kinds();
        let lossless = program.options.lossless.then(|| Waiting { reader: ground.sign() as u32 });
        let handler = Handler {
            code: &object.code,
            entry: definition.entry,
            jmpmax: object.jmpmax,
            insmax: object.insmax,
            logmax: object.logmax,
            mask: definition.mask,
            locals: object.vars,
            globals: object.gvars,
            major: object.major,
            minor: definition.minor,
        };
        let number = self.sharing.numbers.take(Common {
            program: program_number,
            probe,
            address: site.address,
            arming,
            codes: (object.major, definition.minor),
            bounds: rings::Bounds {
                log: object.logmax.min(vm::LOG_LIMIT),
                traces: object.excpt_log.min(vm::TRACE_LIMIT),
            },
        });
        let mut environment = Environment {
            identity: ground.identity as u32,
            contexts: ground.contexts.base() as u32,
            own_contexts: own,
            shared_contexts: shared,
            ring_size: ground.ring_size as u32,
            locals,
            globals,
            counted: &counted,
            hits,
            missed: word(MISSED),
            dropped: word(DROPPED),
            over: word(OVER),
            removable: self.session.serving,
            limits: limits.then(|| Limits {
                hits: word(LIMITED_HITS),
                ignore: definition.ignore,
                maxhits: definition.maxhits,
            }),
            agent: ground.entries,
            // Only a handler that can leave to the interpreter needs a description.
            info: 0,
            number: number.get(),
            site: site.address,
            flags_live: !patch::flags_are_dead(Mode::Bits64, code, site.address, false),
            tentative: false,
            waits,
            mark: mark(),
            lossless,
            hidden: ground.hidden as u32,
            rdpid: true,
        };
        let _program = Rc::clone(&program.alive);
        let handled = |code| Rc::new(Handled { code, _number: number, _program });
        let compile = |environment: &Environment<'_>| {
            jit::compile(&handler, environment).map_err(|unsupported| unsupported.to_string())
        };
        let mut compiled = compile(&environment)?;
        let tentative = may_fault && compiled.claims && !definition.logonfault;
        if !tentative && !compiled.leaves {
            return Ok(CompiledHandler { claims: compiled.claims, code: handled(compiled), tentative });
        }
        environment.tentative = tentative;
        if compiled.leaves {
            let info = HandlerInfo {
                point,
                code: 0,
                code_length: object.code.len() as u32,
                entry: definition.entry as u32,
                jmpmax: object.jmpmax,
                insmax: object.insmax,
                logmax: object.logmax as u32,
                excpt_log: object.excpt_log as u32,
                heap: definition.heap as u32,
                mask: definition.mask.into(),
                autostacktrace: object.autostacktrace.into(),
                locals,
                local_count: object.vars.into(),
                globals,
                global_count: object.gvars.into(),
                module: 0,
                module_length: object.module.len() as u32,
                id: object.id,
                major: object.major,
                minor: definition.minor,
                record: if tentative { state::TENTATIVE } else { state::COMMITTED },
                lossless: lossless.is_some().into(),
                dropped: word(DROPPED),
                over: word(OVER),
                hidden: ground.hidden as u32,
            };
            environment.info = ground.describe((program_number, probe), object, info)?;
        }
        compiled = compile(&environment)?;
        Ok(CompiledHandler { claims: compiled.claims, code: handled(compiled), tentative })
    }
}

/// Whether hits of a probe must be counted one by one, because `ignore` or `maxhits` is set. The
/// greatest `maxhits` means no limit.
pub(crate) fn has_limits(definition: &rpn::Probe) -> bool {
    const UNLIMITED: u64 = 0x7fff_ffff;
    definition.ignore > 0 || definition.maxhits < UNLIMITED
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
