//! A script in the kernel: its programs, one for each module, and what they log.

use std::sync::Arc;

use engine::{Control, Observer, Options, Versions};
use kernel::{Globals, Tables};
use rpn::{ModuleKind, Object};
use trace::Items;
use vm::Word;

use super::attaching::{Program, To};
use super::looping::Session;
use super::numbers::Numbers;
use super::{check_rights, no_memory, report, ring};
use crate::Failure;
use crate::session::Loaded;

/// The session of a script.
#[derive(Debug)]
pub(crate) struct ScriptSession {
    session: Session,
    /// The size of each processor's ring.
    ring: u32,
    globals: Arc<Globals>,
}

impl ScriptSession {
    /// A session for the programs of a script.
    ///
    /// # Errors
    /// This process may not have the kernel run programs, or the kernel cannot.
    pub(crate) fn new(objects: &[Object], buffer: Option<u64>) -> Result<ScriptSession, Failure> {
        check_rights(objects.iter())?;
        let names =
            objects.iter().map(|object| (object.kind == ModuleKind::User).then(|| object.module.clone()));
        let session = Session::new(None, names.collect())?;
        let globals = Globals::create(0).map_err(no_memory)?;
        Ok(ScriptSession { session, ring: ring(buffer)?, globals })
    }

    /// Attaches the programs, and reads what they log until the end.
    ///
    /// # Errors
    /// A handler cannot run in the kernel, or probes can be placed nowhere.
    pub(crate) fn run(
        &mut self,
        objects: &[Object],
        tables: &Arc<Tables>,
        observer: &mut dyn Observer,
        control: &Control,
    ) -> Result<(), Failure> {
        for (number, object) in objects.iter().enumerate() {
            let numbers = Numbers::new(object, self.session.found(number).map(|found| &*found.image));
            let versions = Versions::only(object.clone(), "scripts are for x86-64 programs");
            let loaded = Loaded::of_script(versions, options());
            let to = To {
                globals: &self.globals,
                ring: self.ring,
                process: None,
                allow_panic: false,
                tables: Some(tables),
            };
            self.session.add(Program::new(loaded, None, numbers, to)?);
        }
        self.session.run(observer, control)
    }

    /// Detaches the programs, and takes what they have logged last. Returns how many hits ran no
    /// handler.
    pub(crate) fn finish(&mut self, observer: &mut dyn Observer) -> u64 {
        let values = || self.globals.values().iter().map(|value| report::value_of(value, Word::W8)).collect();
        let report = self.session.finish(observer, values);
        report.probes.iter().map(|probe| probe.counts.missed).sum()
    }
}

/// How the programs of a script are run.
fn options() -> Options {
    Options {
        engine: engine::Engine::default(),
        verify_opcodes: true,
        items: Items::PID.with(Items::TSC),
        lossless: false,
        max_dumps: 1,
        symbols: None,
        tables: None,
        semaphores: Vec::new(),
    }
}
