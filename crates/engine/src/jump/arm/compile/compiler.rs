//! Compiles one handler of a site against the memory of one address space.
//!
//! In: a probe, its site (`At`), the handler memory. Out: `CompiledHandler`: machine code of crate
//! `jit` that is not at an address yet, with the cells and the number that it uses; or the reason
//! (`NoJump`).

use std::rc::Rc;

use jit::{Environment, Handler, Limits, Variable, Waiting};
use layout::{CLOCK_WORDS, HandlerInfo, PerProcessor, state};
use patch::Mode;
use rpn::Location;
use vm::Word;

use super::{At, CompiledHandler, Handled, counted};
use crate::jump::identity::mark;
use crate::jump::numbers::Common;
use crate::jump::probe_end::can_end_itself;
use crate::jump::{Counter, HandlerMemory};
use crate::jump_counters::{DROPPED, LIMITED_HITS, MISSED, OVER};
use crate::program::has_limits;
use crate::programs::Programs;
use crate::reason::{NoJump, NotMapped};
use crate::sharing::Sharing;
use crate::spaces::Spaces;
use crate::tables::Tables;

/// Compiles handlers. It only reads the address spaces.
pub(crate) struct HandlerCompiler<'t> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) spaces: &'t Spaces,
    pub(crate) sharing: &'t mut Sharing,
    /// Whether the tracer serves requests: probes may be removed at any time.
    pub(crate) serving: bool,
}

impl HandlerCompiler<'_> {
    /// Compiles the handler of a probe (its program's number and its own) for a site, in an address
    /// space with this handler memory.
    pub(crate) fn compile(
        &mut self,
        handler_memory: &mut HandlerMemory,
        (program_number, probe): (usize, usize),
        At { site, may_fault, ahead, waits, arming }: At<'_>,
    ) -> Result<CompiledHandler, NoJump> {
        let Some(cells) = &mut self.sharing.cells else { return Err(NotMapped::NoneShared.into()) };
        let base = handler_memory.cells;
        let program = &mut self.programs[program_number];
        let locals = program.locals.address(base).ok_or(NoJump::Variables)?;
        let globals = self.sharing.globals.address(base).ok_or(NoJump::Globals)?;
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
        let tables = program.options.tables.and_then(|number| self.sharing.tables.get(number));
        let object = program.versions.of_word(Word::W8);
        let definition = &object.probes[probe];
        // A probe at points of functions counts each of its sites separately.
        let place = match definition.location {
            Location::Points { .. } if limits => {
                return Err(NoJump::CountsOneByOne);
            }
            Location::Points { .. } => {
                let places = program.places.get_mut();
                Some(places.counter(probe, &site.module, site.address, cells).ok_or(NoJump::CountersFull)?)
            }
            _ => None,
        };
        let point = place.as_ref().map(|(offset, _)| *offset).or(program.probes[probe].offset).unwrap_or(0);
        let tallies = program.probes[probe].counted(cells).ok_or(NoJump::CountersFull)?;
        let hits = place.map_or_else(|| tallies.hits.at(base), |(_, counter)| counter.at(base));
        let word = |which: usize| tallies.words.address(base) + (which * size_of::<u64>()) as u32;
        let code = if ahead.is_empty() { site.displaced.original() } else { ahead };
        let (own, shared) = handler_memory.contexts.kinds();
        let lossless = program.options.lossless.then(|| Waiting { reader: handler_memory.sign() as u32 });
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
            identity: handler_memory.identity as u32,
            contexts: handler_memory.contexts.base() as u32,
            own_contexts: own,
            shared_contexts: shared,
            ring_size: handler_memory.ring_size as u32,
            locals,
            globals,
            maps: tables.map_or(&[], |tables| &tables.infos),
            constants: tables.map(Tables::constants).unwrap_or_default(),
            tables: tables.map_or(0, |tables| tables.words.address(base) + 8 * CLOCK_WORDS as u32),
            processors: cells.processors() as u32,
            counted: &counted,
            hits,
            missed: word(MISSED),
            dropped: word(DROPPED),
            over: word(OVER),
            removable: self.serving,
            limits: limits.then(|| Limits {
                hits: word(LIMITED_HITS),
                ignore: definition.ignore,
                maxhits: definition.maxhits,
            }),
            agent: handler_memory.entries,
            // Only a handler that can leave to the interpreter needs a description.
            info: 0,
            number: number.get(),
            site: site.address,
            flags_live: !patch::flags_are_dead(Mode::Bits64, code, site.address, false),
            tentative: false,
            waits,
            mark: mark(),
            lossless,
            hidden: handler_memory.hidden as u32,
            rdpid: true,
        };
        let _program = Rc::clone(&program.alive);
        let handled = |code| Rc::new(Handled { code, _number: number, _program });
        let compile = |environment: &Environment<'_>| jit::compile(&handler, environment);
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
                hidden: handler_memory.hidden as u32,
                tables: tables.map_or(0, |tables| tables.words.address(base)),
                table_words: tables.map_or(0, |tables| tables.words.count() as u32),
                threads: tables.and_then(|tables| tables.threads).map_or(0, |map| map as u32 + 1),
                // These are put beside the bytecode.
                maps: 0,
                map_count: 0,
                constants: 0,
                constants_length: 0,
            };
            let described = (program_number, probe);
            environment.info = handler_memory.describe(described, object, tables, info)?;
        }
        compiled = compile(&environment)?;
        Ok(CompiledHandler { claims: compiled.claims, code: handled(compiled), tentative })
    }
}
