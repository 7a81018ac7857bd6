//! Functions at addresses of processes, also of those that have ended meanwhile.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use printout::Symbol;
use process::{ImageCache, Module};

/// How often the modules of a process are read again at most.
const EVERY: Duration = Duration::from_millis(100);

/// The most processes whose modules are kept.
const MAX_PROCESSES: usize = 1024;

/// The modules of processes.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    cache: ImageCache,
    processes: HashMap<u32, Known>,
}

/// What was read of a process.
#[derive(Debug)]
struct Known {
    modules: Vec<Module>,
    read: Instant,
}

impl Symbols {
    /// Reads the modules of a process, before it ends.
    pub(super) fn look(&mut self, pid: u32) {
        let is_new = self.processes.get(&pid).is_none_or(|known| known.read.elapsed() >= EVERY);
        if is_new && (self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&pid)) {
            let modules = i32::try_from(pid).ok().and_then(|pid| process::modules(pid, &mut self.cache).ok());
            match (modules, self.processes.get_mut(&pid)) {
                (Some(modules), _) if !modules.is_empty() => {
                    self.processes.insert(pid, Known { modules, read: Instant::now() });
                }
                // It has ended: what was known stays.
                (_, Some(known)) => known.read = Instant::now(),
                (_, None) => {}
            }
        }
    }

    /// The function at an address.
    pub(super) fn symbol(&mut self, address: u64, pid: u32) -> Option<Symbol> {
        let is_known = |symbols: &Symbols| {
            let known = symbols.processes.get(&pid);
            known.is_some_and(|known| known.modules.iter().any(|module| module.contains(address)))
        };
        if !is_known(self) {
            self.look(pid);
        }
        let modules = &self.processes.get(&pid)?.modules;
        let module = modules.iter().find(|module| module.contains(address))?;
        let function = module.image.function_at(module.vaddr(address))?;
        Some(Symbol {
            name: function.demangled().unwrap_or_else(|| function.name.clone()),
            offset: module.vaddr(address).wrapping_sub(function.vaddr),
            module: Some(module.path.display().to_string()),
            inlined: Vec::new(),
        })
    }
}
