//! Functions at addresses of processes, also of those that have ended meanwhile.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use printout::Symbol;
use process::{ImageCache, Module};

/// How often the modules of a process are read again at most.
const EVERY: Duration = Duration::from_millis(100);

/// The most processes whose modules are kept.
const MAX_PROCESSES: usize = 1 << 14;

/// The most modules of a process that are kept after they were unmapped.
const MAX_UNMAPPED: usize = 1024;

/// The modules of processes.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    cache: ImageCache,
    processes: HashMap<u32, Known>,
}

/// What was read of a process.
#[derive(Clone, Debug)]
struct Known {
    /// Its modules, then those that were unmapped, the last one first. A child shares its parent's.
    modules: Rc<Vec<Module>>,
    read: Instant,
}

impl Symbols {
    /// Reads the modules of a process, before it ends.
    pub(super) fn look(&mut self, pid: u32) {
        if self.processes.get(&pid).is_some_and(|known| known.read.elapsed() < EVERY) {
            return;
        }
        let modules = i32::try_from(pid).ok().and_then(|pid| process::modules(pid, &mut self.cache).ok());
        match modules.filter(|modules| !modules.is_empty()) {
            Some(modules) => self.learn(pid, &modules),
            // It has ended: what was known stays.
            None => drop(self.processes.get_mut(&pid).map(|known| known.read = Instant::now())),
        }
    }

    /// Learns the modules of a process.
    pub(super) fn learn(&mut self, pid: u32, modules: &[Module]) {
        self.make_room();
        let before = self.processes.get(&pid);
        let is_same = |(one, other): (&Module, &Module)| {
            (one.bias, one.inode, one.device) == (other.bias, other.inode, other.device)
                && one.span() == other.span()
        };
        let known = before.map(|known| Rc::clone(&known.modules)).unwrap_or_default();
        let is_known = known.len() >= modules.len() && known.iter().zip(modules).all(is_same);
        let modules = match is_known {
            true => known,
            false => {
                // Stacks may be shown when a library has been closed again.
                let is_gone = |other: &&Module| {
                    let gone = other.span();
                    let meets = |span: Range<u64>| span.start < gone.end && gone.start < span.end;
                    !modules.iter().any(|module| meets(module.span()))
                };
                let gone = known.iter().filter(is_gone).take(MAX_UNMAPPED);
                Rc::new(modules.iter().chain(gone).cloned().collect())
            }
        };
        self.processes.insert(pid, Known { modules, read: Instant::now() });
    }

    /// Takes a child's modules from its parent's: it may end before anybody looks.
    pub(super) fn inherit(&mut self, parent: u32, child: u32) {
        self.make_room();
        if let Some(known) = self.processes.get(&parent).cloned() {
            self.processes.insert(child, known);
        }
    }

    /// Forgets the half of the processes that was looked at longest ago, if there are too many.
    fn make_room(&mut self) {
        if self.processes.len() < MAX_PROCESSES {
            return;
        }
        let mut times: Vec<Instant> = self.processes.values().map(|known| known.read).collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        self.processes.retain(|_, known| known.read > middle);
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

#[cfg(test)]
mod tests {
    use super::{MAX_PROCESSES, Symbols};

    #[test]
    fn the_processes_seen_last_are_known() {
        let mut symbols = Symbols::default();
        let count = 3 * MAX_PROCESSES as u32;
        for pid in 0..count {
            symbols.learn(pid, &[]);
            assert!(symbols.processes.contains_key(&pid) && symbols.processes.len() <= MAX_PROCESSES);
        }
        symbols.inherit(count - 1, count);
        assert!(symbols.processes.contains_key(&count));
    }
}
