//! A script in the kernel: its programs, one for each module, and what they log.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Control, Observer, Options, Refused, Report, Versions};
use image::Image;
use kernel::{Filter, Globals, Processes, Tables};
use process::Held;
use rpn::{Diagnostic, ModuleKind, Object, Sources, Span};
use trace::Items;
use vm::Word;

use super::attaching::{Program, To};
use super::handlers::Bound;
use super::looping::Session;
use super::numbers::Numbers;
use super::targets::Targets;
use super::{SystemMap, check_rights, no_memory, report, ring};
use crate::Failure;
use crate::session::Loaded;

/// What a script is to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptPrograms<'a> {
    /// Its programs, one for each module.
    pub(crate) objects: &'a [Object],
    /// Its text.
    pub(crate) sources: &'a Sources,
    /// The events of the program of events, by number.
    pub(crate) events: &'a [bpf::Event],
    /// The addresses of the semaphores of its static probes, by the module's name.
    pub(crate) semaphores: &'a BTreeMap<String, Vec<u64>>,
    /// Files with the symbols of modules, by the module's name.
    pub(crate) symbols: &'a BTreeMap<String, Arc<Image>>,
    /// The kernel's symbols, if a file with them was named.
    pub(crate) map: Option<&'a Arc<SystemMap>>,
    /// Whether opcodes and instruction boundaries are verified.
    pub(crate) verify_opcodes: bool,
    /// The header items of its records.
    pub(crate) items: Items,
}

/// The session of a script.
#[derive(Debug)]
pub(crate) struct ScriptSession {
    session: Session,
    /// The processes that are probed; all if there is none.
    processes: Option<Arc<Processes>>,
    /// The size of each processor's ring.
    ring: u32,
    globals: Arc<Globals>,
}

impl ScriptSession {
    /// A session for the programs of a script: in all processes, or in these, in a command, and in
    /// what they fork. The command goes on when the programs are attached.
    ///
    /// # Errors
    /// This process may not have the kernel run programs, or the kernel cannot.
    pub(crate) fn new(
        objects: &[Object],
        buffer: Option<u64>,
        pids: &[i32],
        command: Option<Held>,
    ) -> Result<ScriptSession, Failure> {
        check_rights(objects.iter())?;
        let all: Vec<i32> = pids.iter().copied().chain(command.as_ref().map(Held::pid)).collect();
        let targets = (!all.is_empty()).then(|| Targets::new(&all, true)).transpose()?;
        let processes = targets.as_ref().map(|targets| Arc::clone(&targets.processes));
        let names =
            objects.iter().map(|object| (object.kind == ModuleKind::User).then(|| object.module.clone()));
        let session = Session::new(targets, command, names.collect());
        let globals = Globals::create(0).map_err(no_memory)?;
        Ok(ScriptSession { session, processes, ring: ring(buffer)?, globals })
    }

    /// Attaches the programs, and reads what they log until the end. `place`: where the attach
    /// point with a number is in the script.
    ///
    /// # Errors
    /// A handler cannot run in the kernel, or probes can be placed nowhere.
    pub(crate) fn run(
        &mut self,
        script: ScriptPrograms<'_>,
        tables: &Arc<Tables>,
        observer: &mut dyn Observer,
        control: &Control,
        place: &dyn Fn(u32) -> Span,
    ) -> Result<(), Failure> {
        let ScriptPrograms { objects, sources, events, semaphores, symbols, map, verify_opcodes, items } =
            script;
        map.into_iter().for_each(|map| self.session.set_system_map(Arc::clone(map)));
        for (number, object) in objects.iter().enumerate() {
            let numbers = Numbers::new(object, self.session.found(number).map(|found| &*found.image));
            let versions = Versions::only(object.clone(), "scripts are for x86-64 programs");
            let semaphores = semaphores.get(&object.module).cloned().unwrap_or_default();
            let symbols = symbols.get(&object.module).cloned();
            let loaded = Loaded::of_script(
                versions,
                Options { symbols, verify_opcodes, ..options(semaphores, items) },
            );
            let to = To {
                globals: &self.globals,
                ring: self.ring,
                processes: self.processes.as_ref(),
                // A script has predicates.
                only: Filter::default(),
                by_process: false,
                allow_panic: false,
                tables: Some(tables),
                script: Some(Bound::of(objects)),
                events,
            };
            self.session.add(Program::new(loaded, Some(sources.clone()), numbers, to)?);
        }
        let refusal = |refused: Vec<(usize, Refused)>| {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let messages = refused.into_iter().map(|(program, refused)| {
                let minor = objects[program].probes.get(refused.probe).map_or(0, |probe| probe.minor);
                let message = format!("{}: {}", printable::text(&refused.module), refused.reason);
                let message = Diagnostic::error(place(minor), message).label("this attach point");
                message.render(sources, colour)
            });
            Failure::complete(messages.collect::<Vec<_>>().join("\n\n"))
        };
        self.session.run(observer, control, refusal)
    }

    /// Detaches the programs, and takes what they have logged last.
    pub(crate) fn finish(&mut self, observer: &mut dyn Observer) -> Report {
        let values = || self.globals.values().iter().map(|value| report::value_of(value, Word::W8)).collect();
        self.session.finish(observer, values)
    }
}

/// How the programs of a script are run.
fn options(semaphores: Vec<u64>, items: Items) -> Options {
    Options {
        engine: engine::Engine::default(),
        verify_opcodes: true,
        items,
        lossless: false,
        max_dumps: 1,
        symbols: None,
        tables: None,
        semaphores,
        lenient: false,
    }
}
