//! Handles a hit of a trap: runs the handlers, then executes the instruction elsewhere than at its
//! site.
//!
//! Each hit costs one stop. The thread has executed the `int3` and is stopped at the delivery of
//! its SIGTRAP, which the tracer drops. The handlers run on the thread's registers. Then the tracer
//! emulates the instruction, or the thread continues in the site's slot. The site stays as it is,
//! and no other thread is stopped.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use patch::Mode;
use process::{Registers, Stop, Stopped};
use rpn::{FunctionPoint, Location};
use trace::{Items, Record};
use vm::{End, Word};

use crate::counts::State;
use crate::jump::Domain;
use crate::loader::{self, Arrived};
use crate::machine::{Caller, HitMachine, ThreadMemory, has_flat_segments};
use crate::module_key::ModuleKey;
use crate::patch_registers::{from_patch, to_patch};
use crate::program::has_limits;
use crate::programs::Programs;
use crate::site::Disarmed;
use crate::site_use::{INT3, OwnUses, Use};
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{InSlot, Pending};

mod records;

/// RF of rflags. It tells the guard (`guard`) that a trap has been handled although its signal is
/// still pending. The processor clears it with the next instruction.
const ANSWERED: u64 = 1 << 16;

impl Tracer<'_> {
    /// Handles an `int3` that a thread has executed. Returns the thread if the `int3` is not one of
    /// ours.
    pub(crate) fn trapped(&mut self, mut thread: Stopped) -> Result<Option<Stopped>, process::Error> {
        let tid = thread.tid();
        let mut registers = thread.registers()?;
        let Some(tracked) = self.followed.threads.get_mut(&tid) else { return Ok(Some(thread)) };
        let put_back = std::mem::take(&mut tracked.before_trap);
        if put_back {
            registers.set_rip(registers.rip().wrapping_add(1));
        }
        let address = registers.rip().wrapping_sub(1);
        let Some(space) = tracked.space.and_then(|space| self.followed.spaces.get(&space)) else {
            return Ok(Some(thread));
        };
        let armed = space.sites.get(&address);
        let Some(word) = word_at(space, address) else {
            let mut byte = [0];
            let ours_before = armed.is_some() || space.disarmed.get(&address).is_some_and(Disarmed::trapped);
            if ours_before && space.code.memory.peek(address, &mut byte).is_ok() && byte[0] != INT3 {
                // The site was disarmed after the thread had hit it: its instruction, or a jump, is
                // there now.
                registers.set_rip(address);
                registers.set_rflags(registers.rflags() | ANSWERED);
                thread.set_registers(&registers)?;
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            if put_back {
                // The thread is at the instruction already.
                self.followed.resume(thread, 0);
                return Ok(None);
            }
            return Ok(Some(thread));
        };
        registers.set_rip(address);
        let done = tracked.in_slot.take();
        if tracked.identity.rseq.is_none() {
            tracked.identity.rseq = Some(thread.rseq_area());
        }
        if let Some(done) = done {
            self.messages.commit(&mut self.programs, done.records);
        }
        let segments = registers;
        let again =
            self.followed.space_of(tid).and_then(|space| space.interrupted.take_resumed(address, &registers));
        let records = match again {
            Some(waiting) => waiting.records,
            None => self.run_handlers(&thread, address, word, &mut registers),
        };
        let waiting = InSlot { site: address, registers, records };
        self.execute(thread, waiting, &segments)?;
        Ok(None)
    }

    /// Runs the handlers of a site on the registers of the thread that hit it. Returns the records.
    fn run_handlers(
        &mut self,
        thread: &Stopped,
        address: u64,
        word: Word,
        registers: &mut Registers,
    ) -> Vec<Pending> {
        let tid = thread.tid();
        let mut records = Vec::new();
        let mut place = 0;
        // By index: a handler may remove its own probe.
        while let Some(wanted) = self.use_at(tid, address, place) {
            place += 1;
            if let Use::Probe { program, probe } = wanted
                && self.is_reached(tid, address, (program, probe), word, registers)
            {
                let ran = self.run_handler(thread, address, (program, probe), word, registers);
                records.extend(ran.into_iter().flatten().flatten());
            }
        }
        let domain = self.domain(tid);
        let over = records_over(&self.programs, domain, self.space_uses(tid, address));
        self.retire(&over, Some(domain));
        records
    }

    /// One use of a site, by its index.
    fn use_at(&mut self, tid: i32, address: u64, place: usize) -> Option<Use> {
        self.space_uses(tid, address).get(place).copied()
    }

    /// The trust domain of a thread.
    fn domain(&self, tid: i32) -> Domain {
        let space =
            self.followed.threads.get(&tid).and_then(|thread| self.followed.spaces.get(&thread.space?));
        space.map_or(Domain::OWN, |space| space.domain)
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

    /// Counts a hit of one probe and runs its handler if it is due. Returns its log, then its stack
    /// traces.
    fn run_handler(
        &mut self,
        thread: &Stopped,
        address: u64,
        (program_number, number): (usize, usize),
        word: Word,
        registers: &mut Registers,
    ) -> Option<[Option<Pending>; 2]> {
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
        let mut machine =
            HitMachine::new(thread, registers, &mut tracked.identity, space, caller, &self.session.stop);
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
            point: vm::ProbepointInfo {
                module: object.module.as_bytes(),
                offset: offset.unwrap_or(0),
                id: object.id,
                major: object.major,
                minor: definition.minor,
            },
        };
        let outcome = vm::run(&code, definition.entry, &mut self.machine, &mut machine);
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
            self.exit_to(facility, (program_number, number), (major, minor), thread, registers);
        }
        Some([log, traces])
    }

    /// Executes a site's instruction for a thread whose handlers have run: emulates it, or sends
    /// the thread to the slot. `segments`: the registers before the handlers ran, whose segment
    /// registers are known to be valid.
    fn execute(
        &mut self,
        mut thread: Stopped,
        mut waiting: InSlot,
        segments: &Registers,
    ) -> Result<(), process::Error> {
        let (tid, address) = (thread.tid(), waiting.site);
        let Some(tracked) = self.followed.threads.get_mut(&tid) else { return Ok(()) };
        let Some(space) = tracked.space.and_then(|space| self.followed.spaces.get(&space)) else {
            return Ok(());
        };
        let Some(site) = space.site(address) else { return Ok(()) };
        let own = site.own_uses();
        let mut registers = waiting.registers;
        let mut memory = ThreadMemory { tid };
        let mut emulated = to_patch(&registers);
        let done = has_flat_segments(&registers)
            && site.displaced.wants_emulation(&emulated, &mut memory)
            // If memory cannot be accessed from outside, the processor executes the instruction: it
            // raises the fault, if there is one.
            && site.displaced.emulate(&mut emulated, &mut memory).is_ok();
        if done {
            from_patch(&emulated, &mut registers);
            self.messages.commit(&mut self.programs, waiting.records);
        } else if let Some(slot) = &site.slot {
            registers.set_rip(slot.address);
            let certain = !site.displaced.may_fault();
            let complete = if certain { std::mem::take(&mut waiting.records) } else { Vec::new() };
            self.session.waiting |= !waiting.records.is_empty();
            tracked.in_slot = Some(waiting);
            self.messages.commit(&mut self.programs, complete);
        }
        registers.set_rflags(registers.rflags() | ANSWERED);
        set(&mut thread, &mut registers, segments)?;
        let before = self.followed.threads.met(&self.followed.spaces, tid, address);
        let number = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
        let trap = Stop::Signal(libc::SIGTRAP);
        let (thread, stop) = match number {
            Some(number) => self.followed.spaces.guard_again(number, thread, trap, before)?,
            None => (thread, trap),
        };
        self.after(thread, stop, own, &registers)
    }

    /// Does the engine's own work for a site of its own, then resumes the thread.
    fn after(
        &mut self,
        mut thread: Stopped,
        mut stop: Stop,
        own: OwnUses,
        registers: &Registers,
    ) -> Result<(), process::Error> {
        let tid = thread.tid();
        if own.entry {
            self.begun(tid);
            self.followed.identify_begun(&thread);
        }
        let mapped = own.mapped && loader::mapped_code(registers);
        if own.entry || own.listed || own.closes || mapped {
            let number = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
            let mapped_now = match (mapped, own.closes) {
                (true, _) => Some(Arrived::At(registers.result() as u64)),
                (false, true) => loader::closed_file(tid, registers),
                (false, false) => None,
            };
            let note = |tracer: &mut Self, mapped| {
                if let Some(space) = number.and_then(|number| tracer.followed.spaces.get_mut(&number)) {
                    space.mapped_now = mapped;
                }
            };
            note(self, mapped_now);
            let refreshed = self.refresh(thread, stop);
            note(self, None);
            (thread, stop) = refreshed?;
        }
        if matches!(stop, Stop::Interrupt | Stop::Group(_)) {
            return self.followed.go_on(thread, stop);
        }
        self.followed.resume(thread, 0);
        Ok(())
    }
}

/// The word size of the code at a site, if there is a site.
fn word_at(space: &Space, address: u64) -> Option<Word> {
    let armed = space.sites.get(&address)?;
    Some(match armed.site().displaced.mode() {
        Mode::Bits32 => Word::W4,
        Mode::Bits64 => Word::W8,
    })
}

/// Those uses of a site that are probes which are over in a domain.
fn records_over(programs: &Programs, domain: Domain, uses: &[Use]) -> HashSet<Use> {
    let over = |wanted: &Use| match *wanted {
        Use::Probe { program, probe } => programs[program].probes[probe].is_over_in(domain),
        _ => false,
    };
    uses.iter().copied().filter(over).collect()
}

/// Sets a thread's registers. If the kernel refuses a segment register that a handler has set, the
/// thread keeps the segment registers it had.
fn set(thread: &mut Stopped, registers: &mut Registers, before: &Registers) -> Result<(), process::Error> {
    match thread.set_registers(registers) {
        Err(process::Error::Refused { .. }) => {
            registers.set_ds(before.ds());
            registers.set_es(before.es());
            registers.set_fs(before.fs());
            registers.set_gs(before.gs());
            thread.set_registers(registers)
        }
        result => result,
    }
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
