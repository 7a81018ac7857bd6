//! Finds modules that were mapped or unmapped, and places the programs' probes in new ones.
//!
//! In: a stopped thread. Out: `Work` for each module in which a program is to be placed, done by
//! `Placer::place`.

use std::collections::HashMap;

use process::{Error as ProcessError, Module, Stop, Stopped};

use crate::code_bytes::Text;
use crate::counts::State;
use crate::error::{Error, Refused};
use crate::jump::{Copied, Domain};
use crate::loader::{self, Loaders};
use crate::module_key::{ModuleKey, module_key};
use crate::module_names::is_named;
use crate::observer::Note;
use crate::placing::Work;
use crate::placing::placer::Placer;
use crate::preplan::Preplan;
use crate::reason::NotProbed;
use crate::site_plans::{self, Checks, Expected, Plan};
use crate::site_use::Use;
use crate::space::{ModuleState, Space};
use crate::window::Window;

impl Placer<'_, '_> {
    /// Looks for modules that were mapped or unmapped in the address space of a stopped thread, and
    /// places the programs' probes in new ones. Returns the thread and its current stop: a system
    /// call made in it settles it.
    pub(crate) fn refresh(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        let Some(number) = self.followed.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.modules.stale = false;
            if !space.modules.watched && !space.modules.starting {
                self.followed.threads.seize_strays(&mut self.followed.spaces, self.messages, tid, number);
            }
        }
        if let Some(space) = self.followed.spaces.get(&number)
            && space.members == 1
            && !space.modules.starting
        {
            // The only thread of the space is stopped, so the space counts as held.
            self.followed.holds.begin();
        }
        let Some(modules) = self.modules_of(&thread) else { return Ok((thread, stop)) };
        self.forget_unmapped(number, &modules);
        let works = self.plan_new(number, &thread, &modules);
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.modules.foreseen = None;
        }
        let mut state = self.prepare_stacks(number, thread, stop, &modules)?;
        for work in works {
            state = self.place(number, state.0, state.1, work)?;
        }
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.modules.seen = modules.iter().map(module_key).collect();
        }
        let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        self.messages.observer.mapped(pid, &modules);
        self.tell_waiting(number, tid, &modules);
        Ok(state)
    }

    /// Arms the sites that report modules loaded later, and nothing else: the first part of
    /// [`Placer::refresh`].
    pub(crate) fn watch(&mut self, thread: Stopped, stop: Stop) -> Result<(Stopped, Stop), ProcessError> {
        let tid = thread.tid();
        let Some(number) = self.followed.threads.get(&tid).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        if self.followed.spaces.get(&number).is_none_or(|space| space.modules.watched) {
            return Ok((thread, stop));
        }
        self.followed.threads.seize_strays(&mut self.followed.spaces, self.messages, tid, number);
        let Some(modules) = self.modules_of(&thread) else { return Ok((thread, stop)) };
        let mut state = (thread, stop);
        for work in self.plan_own(number, tid, &modules) {
            state = self.place(number, state.0, state.1, work)?;
        }
        Ok(state)
    }

    /// The modules of a process. `None`, with a message, if it cannot be probed.
    pub(crate) fn modules_of(&mut self, thread: &Stopped) -> Option<Vec<Module>> {
        let tid = thread.tid();
        match thread.mappings().map(|mappings| process::modules_in(tid, &mappings, &mut self.cache.images)) {
            Err(error) => self.cannot_probe(tid, NotProbed::Modules(error.into())),
            Ok(modules) if modules.iter().any(|module| module.image.machine().bitness().is_some()) => {
                return Some(modules);
            }
            Ok(_) => self.cannot_probe(tid, NotProbed::OtherMachine),
        }
        None
    }

    /// The probepoints that cannot be placed in a process that is not traced yet. Nothing is
    /// changed.
    pub(crate) fn refusals(&mut self, pid: i32) -> Result<Vec<Refused>, Error> {
        let mut refused = Vec::new();
        self.cache.checked.clear();
        for number in self.programs.numbers().to_vec() {
            let lenient = self.programs[number].options.lenient;
            for (module, mut plan) in self.plans_of(number, pid)? {
                // Kept for when the program is placed.
                match lenient || plan.refused.is_empty() {
                    true => self.cache.checked.push(((number, module), plan)),
                    false => refused.append(&mut plan.refused),
                }
            }
        }
        Ok(refused)
    }

    /// As [`Placer::refusals`], for one program.
    pub(crate) fn refusals_of(&mut self, number: usize, pid: i32) -> Result<Vec<Refused>, Error> {
        Ok(self.plans_of(number, pid)?.into_iter().flat_map(|(_, plan)| plan.refused).collect())
    }

    /// The plans for one program in the modules of a process.
    fn plans_of(&mut self, number: usize, pid: i32) -> Result<Vec<(ModuleKey, Plan)>, Error> {
        let memory = process::Memory::open(pid)?;
        let followed = self.followed.threads.values().find(|thread| thread.identity.pid == pid);
        let space = followed.and_then(|thread| self.followed.spaces.get(&thread.space?));
        let text = Text::new(&memory, space.map(|space| &space.sites));
        let modules = process::modules(pid, &mut self.cache.images)?;
        let checks = self.checks(pid);
        let program = &self.programs[number];
        if !program.is_for(pid) {
            return Ok(Vec::new());
        }
        let checks = Checks { opcodes: program.options.verify_opcodes, ..checks };
        let named = modules.iter().filter(|module| is_named(module, program.module(), pid));
        let plan =
            |module: &Module| (module_key(module), site_plans::plan(number, program, module, &text, checks));
        Ok(named.map(plan).collect())
    }

    /// How the probes in a process are checked. Each program decides whether opcodes are verified.
    pub(crate) fn checks(&self, tid: i32) -> Checks {
        let space =
            self.followed.threads.get(&tid).and_then(|tracked| self.followed.spaces.get(&tracked.space?));
        Checks {
            opcodes: true,
            shadow_stack: process::has_shadow_stack(tid),
            domain: space.map_or(Domain::OWN, |space| space.trust.domain),
        }
    }

    /// Reports that a process cannot be probed. It is still followed, but for the first process it
    /// is an error.
    pub(crate) fn cannot_probe(&mut self, tid: i32, reason: NotProbed) {
        if self.session.is_first() {
            self.session.failure.get_or_insert(reason.of(tid).into());
        } else {
            let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
            self.messages.tell_once(Note::NotProbed { pid, reason });
        }
    }

    /// Forgets the sites of unmapped modules, and checks the sites whose module may have been
    /// mapped anew at the same place.
    fn forget_unmapped(&mut self, number: u32, modules: &[Module]) {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        let by_key: HashMap<ModuleKey, &Module> =
            modules.iter().map(|module| (module_key(module), module)).collect();
        space.modules.placed.retain(|(_, placed)| by_key.contains_key(placed));
        space.semaphores.retain(|key| by_key.contains_key(key));
        space.modules.named.retain(|key| by_key.contains_key(key));
        space.modules.blocking.retain(|key| by_key.contains_key(key));
        let memory = &space.code.memory;
        let stays = |copied: &Copied| by_key.contains_key(&copied.module()) && copied.is_there(memory);
        let lost: Vec<ModuleKey> =
            space.sites.copies().filter(|copied| !stays(copied)).map(Copied::module).collect();
        if !lost.is_empty() {
            space.sites.make_own(|copied| lost.contains(&copied.module()));
        }
        let window = Window::new(&space.code.memory);
        let mut gone = Vec::new();
        // Neighbouring sites are of one module.
        let mut last: Option<(ModuleKey, Option<&Module>)> = None;
        for (&address, armed) in space.sites.own() {
            let key = armed.site().module;
            let module = match last {
                Some((known, module)) if known == key => module,
                _ => by_key.get(&key).copied(),
            };
            last = Some((key, module));
            let is_there = module.is_some_and(|module| module.contains(address));
            if !is_there || !armed.refresh(&window, &space.sites).unwrap_or(false) {
                gone.push(address);
            }
        }
        drop(window);
        if !gone.is_empty() {
            space.changed();
        }
        space.plans.planners.remove(&gone);
        space.plans.planners.retain(|module| by_key.contains_key(module));
        space.sites.retain_modules(|module| by_key.contains_key(module));
        for address in gone {
            let Some(armed) = space.sites.remove(&address) else { continue };
            if let Some(jump) = armed.jump() {
                space.jumps.retire(jump.trampoline);
                // If the module was mapped anew at the same place, its probes are planned anew.
                for wanted in &armed.site().uses {
                    if let Use::Probe { program, .. } = *wanted {
                        space.modules.placed.remove(&(program, armed.site().module));
                    }
                }
            }
            space.disarmed.insert(address, armed.forget());
        }
    }

    /// Plans the arming of new modules.
    fn plan_new(&mut self, number: u32, thread: &Stopped, modules: &[Module]) -> Vec<Work> {
        let tid = thread.tid();
        let mut works = self.plan_own(number, tid, modules);
        let unplaced = self.unplaced(number, tid, modules);
        for (program_number, module, checks) in unplaced {
            let here = (program_number, module_key(&module));
            let copies = self.armer().armings_for(program_number, thread, &module);
            let Some(space) = self.followed.spaces.get_mut(&number) else { break };
            space.modules.placed.insert(here);
            let foreseen = space.modules.foreseen.as_mut().and_then(|all| Preplan::take(all, here));
            works.push(match foreseen {
                Some(Preplan { plan, draft, count, probes, .. }) => {
                    let draft = Some(Box::new(draft));
                    let (copies, checks) = (Vec::new(), None);
                    Work { module, program: Some(program_number), plan, draft, copies, checks, count, probes }
                }
                None if !copies.is_empty() => {
                    let work = Work::new(&module, Some(program_number), Plan::default());
                    Work { copies, checks: Some(checks), ..work }
                }
                None => {
                    let program = &self.programs[program_number];
                    let plan = site_plans::plan(program_number, program, &module, &space.text(), checks);
                    Work::new(&module, Some(program_number), plan)
                }
            });
        }
        works
    }

    /// Plans the engine's own sites, unless they are armed. They are traps, and come first, so that
    /// probes at the same places are traps too.
    fn plan_own(&mut self, number: u32, tid: i32, modules: &[Module]) -> Vec<Work> {
        if self.followed.spaces.get(&number).is_none_or(|space| space.modules.watched) {
            return Vec::new();
        }
        let checks = self.checks(tid);
        let Some(space) = self.followed.spaces.get_mut(&number) else { return Vec::new() };
        space.modules.watched = true;
        own_sites(tid, modules, &space.text(), space.modules.starting, checks, &mut self.cache.loaders)
    }

    /// The modules in which programs are still to be placed, with the checks for their probes.
    pub(crate) fn unplaced(
        &mut self,
        number: u32,
        tid: i32,
        modules: &[Module],
    ) -> Vec<(usize, Module, Checks)> {
        let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let Some(Space { modules: ModuleState { placed, named, .. }, .. }) =
            self.followed.spaces.get_mut(&number)
        else {
            return Vec::new();
        };
        let mut unplaced = Vec::new();
        for (program_number, program) in self.programs.iter().filter(|(_, program)| program.is_for(pid)) {
            let wanted = modules.iter().filter(|module| {
                !placed.contains(&(program_number, module_key(module)))
                    && named.is(module, program.module(), tid)
            });
            unplaced.extend(wanted.map(|module| (program_number, module)));
        }
        if unplaced.is_empty() {
            // Most new modules concern no program.
            return Vec::new();
        }
        let checks = self.checks(tid);
        let with_checks = |(program_number, module): (usize, &Module)| {
            let opcodes = self.programs[program_number].options.verify_opcodes;
            (program_number, module.clone(), Checks { opcodes, ..checks })
        };
        unplaced.into_iter().map(with_checks).collect()
    }

    /// Handles a program's first instruction: the modules it was linked with are mapped.
    pub(crate) fn begun(&mut self, tid: i32) {
        let Some(number) = self.followed.threads.get(&tid).and_then(|tracked| tracked.space) else { return };
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        space.modules.starting = false;
        let entries: Vec<u64> = space
            .sites
            .own()
            .filter(|(_, armed)| armed.site().uses.contains(&Use::Entry))
            .map(|(&address, _)| address)
            .collect();
        let mut unused = Vec::new();
        if !entries.is_empty() {
            space.changed();
        }
        for address in entries {
            if let Some(armed) = space.sites.get_mut(&address) {
                armed.uses_mut().retain(|&wanted| wanted != Use::Entry);
                if armed.site().uses.is_empty() {
                    unused.push(address);
                }
            }
        }
        if !space.plans.planners.is_empty() {
            self.followed.take_out_jumps(number, &unused);
        } else {
            unused.into_iter().for_each(|address| space.disarm(address));
        }
    }

    /// Reports, for a process that has begun, the modules that are not mapped.
    fn tell_waiting(&mut self, number: u32, tid: i32, modules: &[Module]) {
        let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let Some(space) = self.followed.spaces.get_mut(&number).filter(|space| !space.modules.starting)
        else {
            return;
        };
        self.session.begun.insert(number);
        for (program_number, program) in self.programs.iter() {
            if !program.is_for(pid) {
                continue;
            }
            let module = program.module();
            let waits = program.probes.iter().all(|probe| probe.state == State::Waiting);
            let mut is_mapped = || modules.iter().any(|other| space.modules.named.is(other, module, tid));
            if waits && !is_mapped() && self.messages.told.waiting.insert(program_number) {
                self.messages.observer.note(&Note::Waiting { pid: Some(pid), module: module.to_owned() });
            }
        }
    }
}

/// The engine's own sites in a process: where the dynamic linker has mapped a module and, if the
/// program has not begun, its first instruction.
fn own_sites(
    tid: i32,
    modules: &[Module],
    text: &Text<'_>,
    starting: bool,
    checks: Checks,
    loaders: &mut Loaders,
) -> Vec<Work> {
    let checks = Checks { opcodes: false, ..checks };
    let main = main_module(tid, modules);
    let mut works = Vec::new();
    for module in loader::loaders(modules, main) {
        let mut plan = Plan::default();
        let stops = loaders.stops(&module.image);
        let site = |at: u64, wanted| site_plans::site(Expected::default(), at, wanted, module, text, checks);
        // All of them must be possible, else other places are used.
        let closes: Result<Vec<_>, _> = stops.closes.iter().map(|&at| site(at, Use::Closes)).collect();
        plan.planned = closes.unwrap_or_default();
        if plan.planned.is_empty() {
            plan.planned.extend(stops.mapped.iter().filter_map(|&at| site(at, Use::Mapped).ok()));
        }
        if plan.planned.is_empty() {
            let told = loader::debug_state(&module.image);
            plan.planned.extend(told.and_then(|vaddr| {
                site_plans::site(Expected::default(), vaddr, Use::Listed, module, text, checks).ok()
            }));
        }
        works.push(Work::new(module, None, plan));
    }
    if let Some(main) = main.filter(|_| starting) {
        let mut plan = Plan::default();
        plan.planned.extend(site_plans::site(
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

/// The module of a process's main program.
fn main_module(tid: i32, modules: &[Module]) -> Option<&Module> {
    let path = std::fs::read_link(format!("/proc/{tid}/exe")).ok()?;
    modules.iter().find(|module| module.path == path)
}
