//! Runs the handlers of a site on the registers of the thread that hit it.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use process::{Registers, Stopped};
use rpn::{FunctionPoint, Location};
use trace::{Items, Record};
use vm::{End, State as Machine, Word};

use crate::cache::Cache;
use crate::counts::State;
use crate::dump::Dumps;
use crate::followed::Followed;
use crate::jump::Domain;
use crate::machine::{Caller, HitMachine};
use crate::messages::Messages;
use crate::module_key::ModuleKey;
use crate::patch_registers::to_patch;
use crate::program::has_limits;
use crate::programs::Programs;
use crate::retire::{Disarmer, Trap};
use crate::sharing::Sharing;
use crate::site_use::Use;
use crate::tables::Tables;
use crate::tracked::Pending;

/// Runs the handlers of traps.
pub(crate) struct HandlerRunner<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
    pub(crate) machine: &'t mut Machine,
    pub(crate) dumps: &'t mut Dumps,
    /// Set when the session is to end: handlers stop then.
    pub(crate) stop: &'t AtomicBool,
}

/// What the handlers of a site did.
pub(crate) struct Ran {
    /// The records.
    pub(crate) records: Vec<Pending>,
    /// What the function returns at once, if a handler wants that.
    pub(crate) overridden: Option<u64>,
}

impl<'a> HandlerRunner<'_, 'a> {
    fn disarmer(&mut self) -> Disarmer<'_, 'a> {
        Disarmer {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            cache: self.cache,
            messages: self.messages,
        }
    }

    /// Runs the handlers of a site on the registers of the thread that hit it.
    pub(crate) fn run_handlers(
        &mut self,
        thread: &Stopped,
        address: u64,
        word: Word,
        registers: &mut Registers,
    ) -> Ran {
        let tid = thread.tid();
        let (mut records, mut overridden) = (Vec::new(), None);
        let mut place = 0;
        // By index: a handler may remove its own probe.
        while let Some(wanted) = self.use_at(tid, address, place) {
            place += 1;
            if let Use::Probe { program, probe } = wanted
                && self.is_reached(tid, address, (program, probe), word, registers)
            {
                let ran = self.run_handler(thread, address, (program, probe), word, registers);
                let (ran, result) = ran.unzip();
                records.extend(ran.into_iter().flatten().flatten());
                overridden = overridden.or(result.flatten());
            }
        }
        let domain = self.domain(tid);
        let over = records_over(self.programs, domain, self.space_uses(tid, address));
        if !over.is_empty() {
            let trap = self.module_at(tid, address).map(|module| Trap { address, module });
            if !trap.is_some_and(|trap| self.disarmer().retire_trap(&over, trap, domain)) {
                self.disarmer().retire(&over, Some(domain));
            }
        }
        Ran { records, overridden }
    }

    /// One use of a site, by its index.
    fn use_at(&mut self, tid: i32, address: u64, place: usize) -> Option<Use> {
        self.space_uses(tid, address).get(place).copied()
    }

    /// The trust domain of a thread.
    fn domain(&self, tid: i32) -> Domain {
        let space =
            self.followed.threads.get(&tid).and_then(|thread| self.followed.spaces.get(&thread.space?));
        space.map_or(Domain::OWN, |space| space.trust.domain)
    }

    /// The module that contains a site.
    fn module_at(&self, tid: i32, address: u64) -> Option<ModuleKey> {
        let space =
            self.followed.threads.get(&tid).and_then(|thread| self.followed.spaces.get(&thread.space?));
        Some(space?.sites.get(&address)?.site().module)
    }

    /// The uses of a site.
    fn space_uses(&self, tid: i32, address: u64) -> &[Use] {
        let space =
            self.followed.threads.get(&tid).and_then(|thread| self.followed.spaces.get(&thread.space?));
        space.and_then(|space| space.sites.get(&address)).map_or(&[], |armed| &armed.site().uses)
    }

    /// Whether a thread at a site has reached a probe's point. At a conditional jump out of a
    /// function, only if it jumps.
    fn is_reached(
        &self,
        tid: i32,
        address: u64,
        (program, probe): (usize, usize),
        word: Word,
        registers: &Registers,
    ) -> bool {
        let definition = self.programs[program].versions.of_word(word).probes.get(probe);
        let is_return = definition.is_some_and(|definition| {
            matches!(definition.location, Location::Points { point: FunctionPoint::Return, .. })
        });
        !is_return || {
            let space =
                self.followed.threads.get(&tid).and_then(|thread| self.followed.spaces.get(&thread.space?));
            let armed = space.and_then(|space| space.sites.get(&address));
            armed.and_then(|armed| armed.site().displaced.is_taken(&to_patch(registers))) != Some(false)
        }
    }

    /// Counts a hit of one probe and runs its handler if it is due. Returns its log, its stack
    /// traces, and what the function is to return.
    fn run_handler(
        &mut self,
        thread: &Stopped,
        address: u64,
        (program_number, number): (usize, usize),
        word: Word,
        registers: &mut Registers,
    ) -> Option<([Option<Pending>; 2], Option<u64>)> {
        let module = self.module_at(thread.tid(), address);
        let domain = self.domain(thread.tid());
        let program = &mut self.programs[program_number];
        let object = program.versions.of_word(word);
        let definition = &object.probes[number];
        let probe = &mut program.probes[number];
        let limits = has_limits(definition);
        if let Some(cells) = self.sharing.cells.as_mut().filter(|_| limits) {
            // Each domain counts its hits separately.
            probe.counted(cells);
        }
        if probe.is_over_in(domain) || probe.counted.as_ref().is_some_and(|counted| counted.is_over(domain)) {
            return None;
        }
        // Hits by traps and by jumps share one count.
        let turn = probe.counted.as_ref().map_or(probe.counts.hits + 1, |counted| counted.turn(domain));
        if limits && turn > definition.ignore.saturating_add(definition.maxhits) {
            return None;
        }
        probe.counts.hits += 1;
        let offset = match (&definition.location, module) {
            (Location::Points { .. }, Some(module)) => program.places.get_mut().hit(number, &module, address),
            _ => None,
        };
        let offset = offset.or(probe.offset);
        if turn <= definition.ignore {
            probe.counts.ignored += 1;
            return None;
        }
        probe.counts.runs += 1;
        let last = turn - definition.ignore >= definition.maxhits;
        let tracked = self.followed.threads.get_mut(&thread.tid())?;
        // The record's header shows the registers at the hit; the handler may change them.
        let before = *registers;
        let caller = Caller {
            observer: &mut *self.messages.observer,
            program: program_number,
            codes: (object.major, definition.minor),
            module: &object.module,
        };
        let space = tracked.space.and_then(|number| self.followed.spaces.get(&number));
        let tables = program.options.tables.and_then(|number| self.sharing.tables.get(number));
        let mut machine = HitMachine::new(thread, registers, &mut tracked.identity, space, caller, self.stop)
            .with_tables(tables);
        let (locals, globals) = (program.locals.memory(domain), self.sharing.globals.memory(domain));
        let code = vm::Program {
            word: object.word(),
            code: &object.code,
            jmpmax: object.jmpmax,
            insmax: object.insmax,
            logmax: object.logmax,
            mask: definition.mask,
            locals: program.locals.of(&locals),
            globals: self.sharing.globals.of(&globals, object.gvars),
            excpt_log: object.excpt_log,
            autostacktrace: object.autostacktrace,
            heap: definition.heap,
            maps: tables.map(Tables::maps).unwrap_or_default(),
            constants: tables.map(Tables::constants).unwrap_or_default(),
            point: vm::ProbepointInfo {
                module: object.module.as_bytes(),
                offset: offset.unwrap_or(0),
                id: object.id,
                major: object.major,
                minor: definition.minor,
            },
        };
        let outcome = vm::run(&code, definition.entry, self.machine, &mut machine);
        let overridden = machine.overridden;
        let probe = &mut program.probes[number];
        // An exit to a facility of the kernel removes the probe first, whether or not the facility
        // exists.
        if matches!(outcome.end, End::Remove | End::ExitTo(1 | 2)) {
            probe.ended.insert(domain, State::Removed);
        } else if last {
            probe.ended.insert(domain, State::Disabled);
        }
        let wanted = Use::Probe { program: program_number, probe: number };
        let mut pending = |major, minor, data: &[u8], counted| {
            let mut record = header(program.options.items, &before, &mut tracked.identity);
            (record.major, record.minor, record.probe) = (major, minor, number as u32);
            record.word = object.word().bytes();
            record.data.extend_from_slice(data);
            Pending { wanted, counted, logonfault: definition.logonfault, record }
        };
        let (major, minor) =
            (outcome.major.unwrap_or(object.major), outcome.minor.unwrap_or(definition.minor));
        // With `logmax = 0` nothing is logged at all.
        let kept = outcome.end != End::Abort && object.logmax > 0;
        let log = kept.then(|| pending(major, minor, self.machine.log(), true));
        // Stack traces become a record of their own, with major and minor 0.
        let traces = Some(self.machine.trace()).filter(|traces| !traces.is_empty());
        let traces = traces.map(|traces| pending(0, 0, traces, false));
        if let End::ExitTo(facility) = outcome.end {
            self.exit_to(facility, (program_number, number), (major, minor), registers);
        }
        Some(([log, traces], overridden))
    }
}

/// Those uses of a site that are probes which are over in a domain.
fn records_over(programs: &Programs, domain: Domain, uses: &[Use]) -> HashSet<Use> {
    let over = |wanted: &Use| match *wanted {
        Use::Probe { program, probe } => programs[program].probes[probe].is_over_in(domain),
        _ => false,
    };
    uses.iter().copied().filter(over).collect()
}

/// A record's header with the items of the program's options.
fn header(items: Items, registers: &Registers, identity: &mut crate::tracked::Identity) -> Record {
    let mut record = Record { pid: identity.pid as u32, tid: identity.tid as u32, ..Record::default() };
    record.cpu = identity.processor();
    if items.contains(Items::UID) {
        record.uid = process::Status::read(identity.tid).map(|status| status.uid).unwrap_or(0);
    }
    if items.contains(Items::CSEIP) {
        record.cs = registers.cs() as u32;
        record.eip = registers.rip();
    }
    if items.contains(Items::SSESP) {
        record.ss = registers.ss() as u32;
        record.esp = registers.rsp();
    }
    if items.contains(Items::TSC) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        record.time = now.as_nanos() as u64;
    }
    if items.contains(Items::PROCNAME) {
        record.name = process::name(identity.tid);
    }
    record
}
