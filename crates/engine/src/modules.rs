//! Modules that appear: the programs' probes are placed in them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;
use std::path::Path;

use process::{Error as ProcessError, Machine, Module, Status, Stop, Stopped};

use crate::error::{self, Error, Refused};
use crate::foresee::Foreseen;
use crate::jump::{Draft, Left, Sites};
use crate::loader;
use crate::mapping::{Called, Wanted};
use crate::observer::Note;
use crate::place::{self, Checks, Expected, Plan, Text};
use crate::placed::{About, probes_of};
use crate::program::{Engine, Program, State};
use crate::site::{Armed, Planned, Use};
use crate::slots::{self, Area};
use crate::space::{ModuleKey, module_key};
use crate::tracer::Tracer;
use crate::window::Window;

/// What is to be armed in one module.
struct Work {
    module: Module,
    program: Option<usize>,
    plan: Plan,
    /// How to arm what was planned, if that was worked out before.
    draft: Option<Box<Draft>>,
    /// How many sites were planned, and for which probes.
    count: usize,
    probes: Vec<About>,
}

impl Work {
    fn new(module: &Module, program: Option<usize>, plan: Plan) -> Work {
        let (count, probes) = (plan.planned.len(), probes_of(&plan.planned));
        Work { module: module.clone(), program, plan, draft: None, count, probes }
    }
}

impl Tracer<'_> {
    /// Looks for modules that have been mapped or unmapped in the address space of a stopped thread, and places
    /// the programs' probes in new ones. Gives the thread back, with why it is stopped now: making a system call
    /// in it settles it.
    pub(crate) fn refresh(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        let Some(number) = self.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        if let Some(space) = self.spaces.get_mut(&number) {
            space.stale = false;
            if !space.watched && !space.starting {
                self.seize_strays(tid, number);
            }
        }
        if let Some(space) = self.spaces.get(&number)
            && space.members == 1
            && !space.starting
        {
            // Nobody else runs.
            self.holds.begin();
        }
        let Some(modules) = self.modules_of(tid) else { return Ok((thread, stop)) };
        self.forget_unmapped(number, &modules);
        let works = self.plan_new(number, tid, &modules);
        if let Some(space) = self.spaces.get_mut(&number) {
            space.foreseen = None;
        }
        let mut state = (thread, stop);
        for work in works {
            state = self.place(number, state.0, state.1, work)?;
        }
        self.tell_waiting(number, tid, &modules);
        Ok(state)
    }

    /// Makes sure that modules are seen which are loaded later, and places nothing else: the first part of [`Tracer::refresh`].
    pub(crate) fn watch(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        let Some(number) = self.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        if self.spaces.get(&number).is_none_or(|space| space.watched) {
            return Ok((thread, stop));
        }
        self.seize_strays(tid, number);
        let Some(modules) = self.modules_of(tid) else { return Ok((thread, stop)) };
        let mut state = (thread, stop);
        for work in self.plan_own(number, tid, &modules) {
            state = self.place(number, state.0, state.1, work)?;
        }
        Ok(state)
    }

    /// The modules of a process; none if it cannot be probed, which is told.
    pub(crate) fn modules_of(&mut self, tid: i32) -> Option<Vec<Module>> {
        match process::modules(tid, &mut self.images) {
            Err(error) => self.cannot_probe(tid, error.to_string()),
            Ok(modules) if modules.iter().any(|module| module.image.machine().bitness().is_some()) => {
                return Some(modules);
            }
            Ok(_) => self.cannot_probe(tid, "it is no x86-64 or i386 program".to_owned()),
        }
        None
    }

    /// What would keep the programs from being placed in a process that is not traced yet. Nothing is changed.
    pub(crate) fn refusals(&mut self, pid: i32) -> Result<Vec<Refused>, Error> {
        let mut refused = Vec::new();
        self.checked.clear();
        for number in 0..self.programs.len() {
            for (module, mut plan) in self.plans_of(number, pid)? {
                // It is not made again when the program is placed.
                match plan.refused.is_empty() {
                    true => self.checked.push(((number, module), plan)),
                    false => refused.append(&mut plan.refused),
                }
            }
        }
        Ok(refused)
    }

    /// The same for one program.
    pub(crate) fn refusals_of(&mut self, number: usize, pid: i32) -> Result<Vec<Refused>, Error> {
        Ok(self.plans_of(number, pid)?.into_iter().flat_map(|(_, plan)| plan.refused).collect())
    }

    /// What is planned for a program in the modules of a process.
    fn plans_of(&mut self, number: usize, pid: i32) -> Result<Vec<(ModuleKey, Plan)>, Error> {
        let memory = process::Memory::open(pid)?;
        let followed = self.threads.values().find(|thread| thread.identity.pid == pid);
        let space = followed.and_then(|thread| self.spaces.get(&thread.space?));
        let text = Text::new(&memory, space.map(|space| &space.sites));
        let modules = process::modules(pid, &mut self.images)?;
        let checks = self.checks(pid);
        let program = &self.programs[number];
        if !program.is_for(pid) {
            return Ok(Vec::new());
        }
        let checks = Checks { opcodes: program.options.verify_opcodes, ..checks };
        let named = modules.iter().filter(|module| is_named(module, program.module(), pid));
        let plan =
            |module: &Module| (module_key(module), place::plan(number, program, module, &text, checks));
        Ok(named.map(plan).collect())
    }

    /// How the probes of a process are checked; each program says whether opcodes are.
    fn checks(&self, tid: i32) -> Checks {
        Checks { opcodes: true, shadow_stack: Status::read(tid).is_ok_and(|status| status.shadow_stack) }
    }

    /// A process that cannot be probed is followed all the same; the first one is a failure.
    fn cannot_probe(&mut self, tid: i32, reason: String) {
        if self.is_first() {
            let error = ProcessError::Unsuitable { pid: tid, reason };
            self.failure.get_or_insert(error.into());
        } else {
            let pid = self.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
            self.tell_once(Note::NotProbed { pid, reason });
        }
    }

    /// Whether no program has begun with the probes in: then an error ends the session.
    pub(crate) fn is_first(&self) -> bool {
        self.begun.is_empty() && !self.serving
    }

    /// Forgets the sites of modules that are unmapped, and makes sure of those whose module may have been mapped
    /// anew in the same place.
    fn forget_unmapped(&mut self, number: u32, modules: &[Module]) {
        let Some(space) = self.spaces.get_mut(&number) else { return };
        let by_key: HashMap<ModuleKey, &Module> =
            modules.iter().map(|module| (module_key(module), module)).collect();
        space.placed.retain(|(_, placed)| by_key.contains_key(placed));
        let window = Window::new(&space.code.memory);
        let is_gone = |(address, armed): &(&u64, &Armed)| {
            let module = by_key.get(&armed.site().module);
            !module.is_some_and(|module| module.contains(**address))
                || !armed.refresh(&window, &space.sites).unwrap_or(false)
        };
        let gone: Vec<u64> = space.sites.iter().filter(is_gone).map(|(&address, _)| address).collect();
        if !gone.is_empty() {
            space.generation += 1;
        }
        if let Some(planner) = &mut space.planner {
            planner.remove(&gone);
        }
        for address in gone {
            let Some(armed) = space.sites.remove(&address) else { continue };
            if let Some(jump) = armed.jump() {
                space.jumps.retire(jump.trampoline);
                // Where its module was mapped anew in the same place, it is planned anew.
                for wanted in &armed.site().uses {
                    if let Use::Probe { program, .. } = *wanted {
                        space.placed.remove(&(program, armed.site().module));
                    }
                }
            }
            space.disarmed.insert(address, armed.forget());
        }
    }

    /// Plans what is to be armed in modules that were not there before.
    fn plan_new(&mut self, number: u32, tid: i32, modules: &[Module]) -> Vec<Work> {
        let checks = self.checks(tid);
        let pid = self.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let mut works = self.plan_own(number, tid, modules);
        let Some(space) = self.spaces.get_mut(&number) else { return Vec::new() };
        for (program_number, program) in
            self.programs.iter().enumerate().filter(|(_, program)| program.is_for(pid))
        {
            let checks = Checks { opcodes: program.options.verify_opcodes, ..checks };
            for module in modules {
                let here = (program_number, module_key(module));
                if space.placed.contains(&here) || !is_named(module, program.module(), tid) {
                    continue;
                }
                space.placed.insert(here);
                let foreseen = space.foreseen.as_mut().and_then(|all| Foreseen::take(all, here));
                works.push(match foreseen {
                    Some(Foreseen { plan, draft, count, probes, .. }) => {
                        let draft = Some(Box::new(draft));
                        Work {
                            module: module.clone(),
                            program: Some(program_number),
                            plan,
                            draft,
                            count,
                            probes,
                        }
                    }
                    None => {
                        let plan = place::plan(program_number, program, module, &space.text(), checks);
                        Work::new(module, Some(program_number), plan)
                    }
                });
            }
        }
        works
    }

    /// Plans the engine's own sites, unless they are there. They trap; they are first, so that probes at the same places do.
    fn plan_own(&mut self, number: u32, tid: i32, modules: &[Module]) -> Vec<Work> {
        let checks = self.checks(tid);
        match self.spaces.get_mut(&number) {
            Some(space) if !space.watched => {
                space.watched = true;
                own_sites(tid, modules, &space.text(), space.starting, checks)
            }
            _ => Vec::new(),
        }
    }

    /// The modules in which a program is to be placed and is not, with how its probes are checked.
    pub(crate) fn unplaced(&self, number: u32, tid: i32, modules: &[Module]) -> Vec<(usize, Module, Checks)> {
        let (checks, mut unplaced) = (self.checks(tid), Vec::new());
        let pid = self.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let Some(space) = self.spaces.get(&number) else { return unplaced };
        for (program_number, program) in self.programs.iter().enumerate() {
            let checks = Checks { opcodes: program.options.verify_opcodes, ..checks };
            let named = modules.iter().filter(|module| {
                program.is_for(pid)
                    && !space.placed.contains(&(program_number, module_key(module)))
                    && is_named(module, program.module(), tid)
            });
            unplaced.extend(named.map(|module| (program_number, module.clone(), checks)));
        }
        unplaced
    }

    /// Arms what was planned in one module.
    fn place(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        mut work: Work,
    ) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        if !work.plan.refused.is_empty() && self.refuse(tid, &mut work) {
            return Ok((thread, stop));
        }
        for remark in std::mem::take(&mut work.plan.remarks) {
            self.tell_once(remark);
        }
        if work.count == 0 {
            return Ok((thread, stop));
        }
        let mut count = work.count;
        let (mut thread, mut stop) = (thread, stop);
        let mut traps = std::mem::take(&mut work.plan.planned);
        note_offsets(&mut self.programs, &work.module, &traps);
        // Where there are jumps, no byte is changed that they do not know of.
        let planned = self.spaces.get(&number).is_some_and(|space| space.planner.is_some());
        if let Some(program) =
            work.program.filter(|&program| planned || self.programs[program].options.engine != Engine::Trap)
        {
            let strict = self.programs[program].options.engine == Engine::Jump;
            let sites = work
                .draft
                .take()
                .map_or_else(|| Sites::Planned(join(std::mem::take(&mut traps))), Sites::Drafted);
            let (stopped, now, left) = self.arm_jumps(number, thread, stop, &work.module, sites, strict)?;
            (thread, stop) = (stopped, now);
            traps = self.settle_left(&mut work, program, left.unwrap_or_default());
            count -= work.plan.refused.len();
            if !work.plan.refused.is_empty() && self.refuse(tid, &mut work) {
                return Ok((thread, stop));
            }
        }
        let planned = self.spaces.get(&number).is_some_and(|space| space.planner.is_some());
        if !traps.is_empty() {
            let (stopped, now, area) = self.map_area(number, thread, stop, &work.module, &traps)?;
            (thread, stop) = (stopped, now);
            let addresses: Vec<u64> = traps.iter().map(|site| site.0.address).collect();
            if let Err(reason) = area.and_then(|area| self.arm(number, area, traps)) {
                if planned {
                    self.take_out_jumps(number, &addresses);
                }
                self.cannot_place(tid, &work, reason);
                return Ok((thread, stop));
            }
        }
        if work.program.is_some() {
            let pid = self.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
            self.tell_placed(number, pid, &work.module, &work.probes);
            self.observer.note(&Note::Armed { pid, module: work.module.path.clone(), probes: count });
        }
        Ok((thread, stop))
    }

    /// Sites that did not become jumps: those that are to be traps, with the reason noted. The others are refused.
    fn settle_left(&mut self, work: &mut Work, number: usize, left: Vec<Left>) -> Vec<Planned> {
        let program = &mut self.programs[number];
        let mut traps = Vec::with_capacity(left.len());
        for Left { site, reason, can_trap } in left {
            let probes = site.0.uses.iter().filter_map(|wanted| match *wanted {
                Use::Probe { program, probe } if program == number => Some(probe),
                _ => None,
            });
            for probe in probes {
                if program.options.engine == Engine::Jump || !can_trap {
                    work.plan.refused.push(Refused {
                        module: work.module.path.display().to_string(),
                        point: program.versions.main().probes[probe].point.clone(),
                        probe,
                        reason: match can_trap {
                            true => format!("no jump can stand there: {reason}"),
                            false => format!("nothing can be written there: {reason}"),
                        },
                    });
                } else {
                    program.probes[probe].why_trapped.get_or_insert_with(|| reason.clone());
                    program.probes[probe].sites.trap(&reason);
                }
            }
            if program.options.engine != Engine::Jump && can_trap {
                traps.push(site);
            }
        }
        traps
    }

    /// Tells what of a plan is refused, or ends the session with it before it has begun.
    fn refuse(&mut self, tid: i32, work: &mut Work) -> bool {
        let refused = std::mem::take(&mut work.plan.refused);
        for one in &refused {
            if let Some(program) = work.program
                && self.programs[program].probes[one.probe].state == State::Waiting
            {
                self.programs[program].probes[one.probe].state = State::Refused;
            }
        }
        if self.is_first() {
            self.failure.get_or_insert(Error::Refused(refused));
            return true;
        }
        for line in error::lines(&refused) {
            self.tell_once(Note::Other(format!("process {tid}: {line}")));
        }
        false
    }

    /// A module's probes cannot be armed at all.
    fn cannot_place(&mut self, tid: i32, work: &Work, reason: String) {
        let reason = format!("{}: {reason}", work.module.path.display());
        match work.program {
            Some(_) => self.cannot_probe(tid, reason),
            None => self.tell_once(Note::Other(format!(
                "process {tid}: {reason}; modules that it loads later are not seen"
            ))),
        }
    }

    /// Maps a slot area for the sites planned in a module, by a system call of the process itself.
    fn map_area(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        module: &Module,
        planned: &[Planned],
    ) -> Called<Area> {
        let size = Area::size_for(planned.len());
        let machine = if thread.registers()?.is_32_bit() { Machine::I386 } else { Machine::X86_64 };
        let reach =
            planned.iter().map(|site| site.0.displaced.reach()).fold(slots::range(machine), intersect);
        let near = planned.first().map_or(module.bias, |site| site.0.address);
        let (thread, stop, base) = self.map_code(number, thread, stop, &Wanted { size, near, reach })?;
        Ok((thread, stop, base.map(|base| Area::new(base, size))))
    }

    /// Writes the slots of planned sites into their area, then the `int3`s.
    fn arm(&mut self, number: u32, mut area: Area, planned: Vec<Planned>) -> Result<(), String> {
        let Some(space) = self.spaces.get_mut(&number) else { return Err("the process is gone".to_owned()) };
        let failed = |cause: std::io::Error| format!("writing the probes: {cause}");
        let mut ready: Vec<Planned> = Vec::with_capacity(planned.len());
        let mut known = HashMap::with_capacity(planned.len());
        for mut site in planned {
            let address = site.0.address;
            if let Some(&other) = known.get(&address) {
                let other: &mut Planned = &mut ready[other];
                other.0.uses.extend(site.0.uses);
                continue;
            }
            if let Some(armed) = space.sites.get_mut(&address) {
                set_armed(&mut self.programs, &site.0.uses, address, None);
                let there = armed.uses_mut();
                there.extend(
                    site.0.uses.into_iter().filter(|wanted| !there.contains(wanted)).collect::<Vec<_>>(),
                );
                continue;
            }
            let slot = area.take(address).ok_or("more probes than slots")?;
            let emitted = site.0.displaced.slot(slot).map_err(|refusal| refusal.to_string())?;
            if emitted.bytes.len() > slots::SLOT {
                return Err(format!("`{}` does not fit its slot", site.0.displaced.text()));
            }
            space.code.memory.poke(slot, &emitted.bytes).map_err(failed)?;
            site.0.slot = Some(emitted);
            known.insert(address, ready.len());
            ready.push(site);
        }
        // The area is known before any thread can be in it.
        space.areas.push(area);
        for site in ready {
            let (address, uses) = (site.0.address, site.0.uses.clone());
            let armed = site.arm(&space.code).map_err(failed)?;
            space.disarmed.remove(&address);
            space.sites.insert(address, armed);
            set_armed(&mut self.programs, &uses, address, None);
            count_asked(&mut self.programs, &uses);
        }
        Ok(())
    }

    /// The program of a process begins: what it was linked with is mapped.
    pub(crate) fn begun(&mut self, tid: i32) {
        let Some(number) = self.threads.get(&tid).and_then(|tracked| tracked.space) else { return };
        let Some(space) = self.spaces.get_mut(&number) else { return };
        space.starting = false;
        let entries: Vec<u64> = space
            .sites
            .iter()
            .filter(|(_, armed)| armed.site().uses.contains(&Use::Entry))
            .map(|(&address, _)| address)
            .collect();
        let mut unused = Vec::new();
        for address in entries {
            if let Some(armed) = space.sites.get_mut(&address) {
                armed.uses_mut().retain(|&wanted| wanted != Use::Entry);
                if armed.site().uses.is_empty() {
                    unused.push(address);
                }
            }
        }
        if space.planner.is_some() {
            self.take_out_jumps(number, &unused);
        } else {
            unused.into_iter().for_each(|address| space.disarm(address));
        }
    }

    /// Says which modules are not mapped in a process that has begun.
    fn tell_waiting(&mut self, number: u32, tid: i32, modules: &[Module]) {
        let pid = self.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        if self.spaces.get(&number).is_none_or(|space| space.starting) {
            return;
        }
        self.begun.insert(number);
        for (program_number, program) in self.programs.iter().enumerate() {
            if !program.is_for(pid) {
                continue;
            }
            let module = program.module();
            let waits = program.probes.iter().all(|probe| probe.state == State::Waiting);
            let mapped = modules.iter().any(|other| is_named(other, module, tid));
            if waits && !mapped && self.told_waiting.insert(program_number) {
                self.observer.note(&Note::Waiting { pid, module: module.to_owned() });
            }
        }
    }
}

/// The sites of the engine's own in a process: after the dynamic linker's mmap and, if the program has not begun,
/// at its first instruction.
fn own_sites(tid: i32, modules: &[Module], text: &Text<'_>, starting: bool, checks: Checks) -> Vec<Work> {
    let checks = Checks { opcodes: false, ..checks };
    let main = main_module(tid, modules);
    let mut works = Vec::new();
    for module in modules.iter().filter(|module| loader::is_loader(module, main)) {
        let mut plan = Plan::default();
        for vaddr in loader::after_mmap(&module.image) {
            plan.planned.extend(place::site(Expected::default(), vaddr, Use::Mapped, module, text, checks));
        }
        if plan.planned.is_empty() {
            let told = loader::debug_state(&module.image);
            plan.planned.extend(told.and_then(|vaddr| {
                place::site(Expected::default(), vaddr, Use::Listed, module, text, checks).ok()
            }));
        }
        works.push(Work::new(module, None, plan));
    }
    if let Some(main) = main.filter(|_| starting) {
        let mut plan = Plan::default();
        plan.planned.extend(place::site(
            Expected::default(),
            main.image.entry(),
            Use::Entry,
            main,
            text,
            checks,
        ));
        works.push(Work::new(main, None, plan));
    }
    works
}

/// Sites with the same address become one, with all their users.
pub(crate) fn join(planned: Vec<Planned>) -> Vec<Planned> {
    let mut joined: Vec<Planned> = Vec::with_capacity(planned.len());
    let mut places: HashMap<u64, usize> = HashMap::new();
    for site in planned {
        match places.entry(site.0.address) {
            Entry::Occupied(place) => joined[*place.get()].0.uses.extend(site.0.uses),
            Entry::Vacant(place) => {
                place.insert(joined.len());
                joined.push(site);
            }
        }
    }
    joined
}

/// Whether a module is the one that a program names, as its process sees files.
fn is_named(module: &Module, name: &str, tid: i32) -> bool {
    module.is_named(name, Path::new(&format!("/proc/{tid}/root")))
}

/// Notes where in a module's file the probes are that are about to be placed there.
pub(crate) fn note_offsets(programs: &mut [Program], module: &Module, planned: &[Planned]) {
    for Planned(site) in planned {
        let offset = module.image.offset_of_address(site.address.wrapping_sub(module.bias));
        for wanted in &site.uses {
            if let Use::Probe { program, probe } = *wanted {
                let probe = &mut programs[program].probes[probe];
                probe.offset = probe.offset.or(offset);
            }
        }
    }
}

/// Notes that the probes among a site's users are armed: by jumps, which were made to fit by a tactic, or by traps.
pub(crate) fn set_armed(programs: &mut [Program], uses: &[Use], address: u64, tactic: Option<&'static str>) {
    for wanted in uses {
        if let Use::Probe { program, probe } = *wanted {
            let probe = &mut programs[program].probes[probe];
            probe.address.get_or_insert(address);
            probe.tactic = probe.tactic.or(tactic);
            if !probe.state.is_over() {
                probe.state = State::Armed;
            }
        }
    }
}

/// Counts a site that traps since its program's probes are to.
fn count_asked(programs: &mut [Program], uses: &[Use]) {
    for wanted in uses {
        if let Use::Probe { program, probe } = *wanted
            && programs[program].options.engine == Engine::Trap
        {
            programs[program].probes[probe].sites.trap("as asked");
        }
    }
}

/// The module of a process's main program.
fn main_module(tid: i32, modules: &[Module]) -> Option<&Module> {
    let path = std::fs::read_link(format!("/proc/{tid}/exe")).ok()?;
    modules.iter().find(|module| module.path == path)
}

/// The addresses in both ranges.
fn intersect(one: RangeInclusive<u64>, other: RangeInclusive<u64>) -> RangeInclusive<u64> {
    *one.start().max(other.start())..=*one.end().min(other.end())
}
