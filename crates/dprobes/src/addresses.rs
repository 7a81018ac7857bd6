//! Functions and variables at addresses of processes, also of those that have ended meanwhile.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use image::{DataSymbols, Image};
use printout::{Inlined, Symbol};
use process::{ImageCache, Module};
use trace::line::{Function, Functions};

use crate::inlined::{Frame, InlinedFunctions, plain};

/// How often the modules of a process are read again at most.
const EVERY: Duration = Duration::from_millis(100);

/// How often in the first [`EVERY`] after a process was seen: it may still be mapping its
/// libraries.
const EARLY: Duration = Duration::from_millis(5);

/// The most processes whose modules are kept.
const MAX_PROCESSES: usize = 1 << 14;

/// The most modules of a process that are kept after they were unmapped.
const MAX_UNMAPPED: usize = 1024;

/// The modules of processes.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    cache: ImageCache,
    processes: HashMap<u32, Known>,
    inlined: InlinedFunctions,
    /// The variables of modules that were asked for them.
    data: Vec<(Arc<Image>, DataSymbols)>,
}

/// What was read of a process.
#[derive(Clone, Debug)]
struct Known {
    /// Its modules, then those that were unmapped, the last one first. A child shares its parent's.
    modules: Arc<Vec<Module>>,
    read: Instant,
    /// When the process was seen first.
    first: Instant,
}

impl Known {
    /// Whether the modules are to be read again.
    fn is_due(&self) -> bool {
        let pause = if self.first.elapsed() < EVERY { EARLY } else { EVERY };
        self.read.elapsed() >= pause
    }
}

impl Addresses {
    /// Reads the modules of a process, before it ends.
    pub(crate) fn look(&mut self, pid: u32) {
        if self.processes.get(&pid).is_some_and(|known| !known.is_due()) {
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
    pub(crate) fn learn(&mut self, pid: u32, modules: &[Module]) {
        self.make_room();
        let before = self.processes.get(&pid);
        let is_same = |(one, other): (&Module, &Module)| {
            (one.bias, one.inode, one.device) == (other.bias, other.inode, other.device)
                && one.span() == other.span()
        };
        let first = before.map_or_else(Instant::now, |known| known.first);
        let known = before.map(|known| Arc::clone(&known.modules)).unwrap_or_default();
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
                Arc::new(modules.iter().chain(gone).cloned().collect())
            }
        };
        self.processes.insert(pid, Known { modules, read: Instant::now(), first });
    }

    /// Takes a child's modules from its parent's: it may end before anybody looks.
    pub(crate) fn inherit(&mut self, parent: u32, child: u32) {
        self.make_room();
        if let Some(known) = self.processes.get(&parent).cloned() {
            self.processes.insert(child, Known { first: Instant::now(), ..known });
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

    /// The function at an address; or the variable, with the distance from its start in its name.
    /// All names are plain: whoever made the file may have put anything into them.
    pub(crate) fn symbol(&mut self, address: u64, pid: u32) -> Option<Symbol> {
        let function = self.function(address, pid).map(|(module, function)| Symbol {
            name: plain(&function.demangled().unwrap_or_else(|| function.name.clone())),
            offset: module.vaddr(address).wrapping_sub(function.vaddr),
            module: Some(printable::path(&module.path).to_string()),
            ..Symbol::default()
        });
        function.or_else(|| self.variable(address, pid))
    }

    /// The variable at an address. The memory of those that are 0 at first is not a mapping of the
    /// file: so the modules before the address are asked.
    fn variable(&mut self, address: u64, pid: u32) -> Option<Symbol> {
        let known = Arc::clone(&self.processes.get(&pid)?.modules);
        known.iter().filter(|module| module.span().start <= address).find_map(|module| {
            let data = match self.data.iter().position(|(image, _)| Arc::ptr_eq(image, &module.image)) {
                Some(place) => &self.data[place].1,
                None => {
                    self.data.push((Arc::clone(&module.image), DataSymbols::of(&module.image)));
                    &self.data.last()?.1
                }
            };
            let (name, offset) = data.at(module.vaddr(address))?;
            let name = plain(name);
            let name = if offset == 0 { name } else { format!("{name}+{offset}") };
            let module = Some(printable::path(&module.path).to_string());
            Some(Symbol { name, module, ..Symbol::default() })
        })
    }

    /// The same with the functions that were inlined there, and if asked for with source lines.
    pub(crate) fn frame(&mut self, address: u64, pid: u32, lines: bool) -> Option<Symbol> {
        let symbol = self.symbol(address, pid)?;
        let (module, _) = self.function(address, pid)?;
        let (image, vaddr) = (Arc::clone(&module.image), module.vaddr(address));
        let frames = self.inlined.frames(&image, vaddr);
        let line = |frame: &Frame| frame.line.clone().filter(|_| lines);
        let Some((outer, inlined)) = frames.split_last() else { return Some(symbol) };
        let inlined = inlined.iter().map(|it| Inlined { name: it.name.clone(), line: line(it) }).collect();
        Some(Symbol { inlined, line: line(outer), ..symbol })
    }

    /// The module and the function before an address, which need not be in it.
    fn function(&mut self, address: u64, pid: u32) -> Option<(&Module, &image::Function)> {
        let is_known = |addresses: &Addresses| {
            let known = addresses.processes.get(&pid);
            known.is_some_and(|known| known.modules.iter().any(|module| module.contains(address)))
        };
        if !is_known(self) {
            self.look(pid);
        }
        let modules = &self.processes.get(&pid)?.modules;
        let module = modules.iter().find(|module| module.contains(address))?;
        Some((module, module.image.function_at(module.vaddr(address))?))
    }
}

/// The modules of processes, shared by the observer, which hears of them, and by the formatters of
/// lines, which ask for functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedAddresses(Arc<Mutex<Addresses>>);

impl SharedAddresses {
    /// Gives access to them.
    pub(crate) fn with<T>(&self, use_them: impl FnOnce(&mut Addresses) -> T) -> T {
        use_them(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Functions for SharedAddresses {
    fn at(&self, pid: u32, address: u64) -> Option<Function> {
        self.with(|addresses| {
            let (module, function) = addresses.function(address, pid)?;
            let vaddr = module.vaddr(address);
            (vaddr == function.vaddr || function.contains(vaddr)).then(|| Function {
                module: module.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                name: function.demangled().unwrap_or_else(|| function.name.clone()),
                offset: vaddr.wrapping_sub(function.vaddr),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Addresses, MAX_PROCESSES};

    #[test]
    fn the_processes_seen_last_are_known() {
        let mut addresses = Addresses::default();
        let count = 3 * MAX_PROCESSES as u32;
        for pid in 0..count {
            addresses.learn(pid, &[]);
            assert!(addresses.processes.contains_key(&pid) && addresses.processes.len() <= MAX_PROCESSES);
        }
        addresses.inherit(count - 1, count);
        assert!(addresses.processes.contains_key(&count));
    }
}
