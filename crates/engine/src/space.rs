//! An address space that is probed: its sites, its slot areas, its modules.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use patch::Place;
use process::{Error, Memory, Module, Stopped};

use crate::ledger::Ledger;
use crate::place::Text;
use crate::site::{Armed, Code, Disarmed, Site, Use};
use crate::slots::Area;

/// A module as it is mapped in one place: device, inode, and the address its own addresses count from.
pub(crate) type ModuleKey = ((u32, u32), u64, u64);

/// What a module is known by in its address space.
pub(crate) fn module_key(module: &Module) -> ModuleKey {
    (module.device, module.inode, module.bias)
}

/// One address space and what was done to it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) code: Code,
    /// Threads that run in it and are followed.
    pub(crate) members: usize,
    pub(crate) sites: HashMap<u64, Armed>,
    /// Sites that were armed once: threads may still come from their traps.
    pub(crate) disarmed: HashMap<u64, Disarmed>,
    pub(crate) areas: Vec<Area>,
    /// An instruction of the process that makes a system call: `syscall`, or `int 0x80`.
    pub(crate) syscall: Option<u64>,
    /// The modules that the programs have been placed in, by program.
    pub(crate) placed: HashSet<(usize, ModuleKey)>,
    /// When the session ends: a thread that is kept stopped until the others are gone, to unmap the areas then.
    pub(crate) anchor: Option<Stopped>,
    /// Whether the dynamic linker is watched.
    pub(crate) watched: bool,
    /// Whether its program has not begun: it still runs in the dynamic linker.
    pub(crate) starting: bool,
    /// Whether modules are to be looked for as soon as one of its threads is stopped.
    pub(crate) stale: bool,
}

impl Space {
    /// The space of a thread that has just been found or has just begun a program.
    pub(crate) fn open(tid: i32, starting: bool, ledger: Option<Rc<Ledger>>) -> Result<Space, Error> {
        Ok(Space {
            code: Code { memory: Memory::open(tid)?, process: tid, ledger },
            members: 1,
            sites: HashMap::new(),
            disarmed: HashMap::new(),
            areas: Vec::new(),
            syscall: None,
            placed: HashSet::new(),
            anchor: None,
            watched: false,
            starting,
            stale: true,
        })
    }

    /// The space of a child whose memory was copied from this one's. The copy has the same sites; where one was
    /// disarmed while the copy was taken, its byte is set right. A copy that was taken while sites were being armed
    /// may lack their slots, too: it begins anew, and is stale until its probes have been placed.
    pub(crate) fn copy(&self, child: i32) -> Result<Space, Error> {
        let code = Code { memory: Memory::open(child)?, process: child, ledger: self.code.ledger.clone() };
        let (sites, missing): (HashMap<_, _>, HashMap<_, _>) = self
            .sites
            .iter()
            .map(|(&address, armed)| (address, armed.copy(&code)))
            .partition(|(_, armed)| armed.is_in(&code.memory));
        let disarmed =
            self.disarmed.iter().map(|(&address, site)| (address, site.inherit(&code.memory))).collect();
        let mut copy = Space {
            code,
            members: 1,
            sites,
            disarmed,
            areas: self.areas.clone(),
            syscall: self.syscall,
            placed: self.placed.clone(),
            anchor: None,
            watched: self.watched,
            starting: self.starting,
            stale: false,
        };
        if !missing.is_empty() {
            copy.disarm_all();
            let mappings = process::maps(child).unwrap_or_default();
            copy.areas.retain(|area| area.is_among(&mappings));
            copy.placed.clear();
            copy.watched = false;
            copy.stale = true;
        }
        Ok(copy)
    }

    /// Whether a probe is in, or may be as soon as one of its threads stops or its program has begun.
    pub(crate) fn is_probed(&self) -> bool {
        let probe = |wanted: &Use| matches!(wanted, Use::Probe { .. });
        self.starting || self.stale || self.sites.values().any(|armed| armed.site().uses.iter().any(probe))
    }

    /// The code as the program wrote it.
    pub(crate) fn text(&self) -> Text<'_> {
        Text { memory: &self.code.memory, sites: Some(&self.sites) }
    }

    /// The site at an address, armed or not any more.
    pub(crate) fn site(&self, address: u64) -> Option<&Site> {
        self.sites.get(&address).map(Armed::site).or_else(|| self.disarmed.get(&address).map(Disarmed::site))
    }

    /// The address of the site in whose slot a thread is, and where in the instruction's execution that is.
    pub(crate) fn in_slot(&self, rip: u64) -> Option<(u64, Place)> {
        let (address, offset) = self.areas.iter().find_map(|area| area.slot_at(rip))?;
        let slot = self.site(address)?.slot.as_ref()?;
        Some((address, slot.place(offset)))
    }

    /// Takes a site out: restores its byte.
    pub(crate) fn disarm(&mut self, address: u64) {
        if let Some(armed) = self.sites.remove(&address) {
            let disarmed = armed.disarm(&self.code.memory);
            self.disarmed.insert(address, disarmed);
        }
    }

    /// Takes all sites out.
    pub(crate) fn disarm_all(&mut self) {
        for address in self.sites.keys().copied().collect::<Vec<_>>() {
            self.disarm(address);
        }
    }
}
