//! The parts of an address space's state, by what they are for.

use std::collections::HashSet;
use std::rc::Rc;

use process::{Entrance, Memory};

use crate::guard::Guard;
use crate::jump::{Again, Domain, HandlerMemory, Hidden, Looks, Planners, Rings, ThreadLayout};
use crate::ledger::Entered;
use crate::loader::Arrived;
use crate::memory_entries::MemoryEntries;
use crate::module_key::{Generation, ModuleKey};
use crate::module_names::Named;
use crate::preplan::Preplan;
use crate::reason::NotMapped;
use crate::slots::Area;
use crate::unwinding::Unwinding;

/// What is known of the modules of an address space, and what was placed in them.
#[derive(Debug)]
pub(crate) struct ModuleState {
    /// The modules in which programs have been placed, by program.
    pub(crate) placed: HashSet<(usize, ModuleKey)>,
    /// The modules in which the calls that block all signals have been made sites, as far as
    /// possible.
    pub(crate) blocking: HashSet<ModuleKey>,
    /// Caches whether a program's module name matches a mapped module.
    pub(crate) named: Named,
    /// Whether the dynamic linker is watched.
    pub(crate) watched: bool,
    /// Whether its program has not begun yet: it still runs in the dynamic linker.
    pub(crate) starting: bool,
    /// What the dynamic linker has just mapped. Set only while the thread that mapped it is
    /// stopped: nothing has executed it.
    pub(crate) mapped_now: Option<Arrived>,
    /// The modules that were mapped at the last look.
    pub(crate) seen: HashSet<ModuleKey>,
    /// Whether modules are to be looked for as soon as one of its threads stops.
    pub(crate) stale: bool,
    /// The plan of what to place as soon as one of its threads stops, once worked out.
    pub(crate) foreseen: Option<Vec<Preplan>>,
}

/// The memory that compiled handlers of an address space need: their own, and what they share with
/// the tracer.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// The memory that jump probes need, once mapped.
    pub(crate) handler_memory: Option<HandlerMemory>,
    /// Bytes of the cells that are mapped, once there is handler memory.
    pub(crate) cells: u64,
    /// Whether the tracer's sign of life is mapped, for threads that wait.
    pub(crate) has_sign: bool,
    /// The rings of its contexts, once mapped.
    pub(crate) rings: Option<Rc<Rings>>,
    /// Whether it is a copy of a space that has rings, and has no rings of its own yet.
    pub(crate) lacks_rings: bool,
    /// Why the compiled handlers in it cannot log, if that was tried and failed.
    pub(crate) ringless: Option<NotMapped>,
    /// The table of memory that handlers must not see, if any handler accesses memory.
    pub(crate) hidden: Option<Hidden>,
    /// What stacks are walked with.
    pub(crate) unwinding: Unwinding,
    /// Why handler memory is not mapped, if that was tried and failed.
    pub(crate) no_handler_memory: Option<NotMapped>,
}

impl SharedMemory {
    /// The address of the directory of the tables for walking stacks ([`layout::stacks`]), once it
    /// is mapped.
    pub(crate) fn directory(&self) -> Option<u64> {
        let has_contexts = self.rings.is_some() || self.lacks_rings;
        self.handler_memory.as_ref().filter(|_| has_contexts).map(HandlerMemory::stacks)
    }

    /// Makes handlers use the tables, if there is a directory.
    pub(crate) fn publish_tables(&self, memory: &Memory) {
        if let Some(directory) = self.directory() {
            // Fails only if the process is gone.
            let _ = self.unwinding.publish(memory, directory);
        }
    }
}

/// The trust domain of an address space.
#[derive(Debug)]
pub(crate) struct TrustState {
    /// Its trust domain, the domain it is to change to, and when its domain is checked again.
    pub(crate) domain: Domain,
    pub(crate) becomes: Option<Domain>,
    pub(crate) again: Again,
}

/// How the threads of an address space are identified, and what they may do.
#[derive(Debug)]
pub(crate) struct ThreadState {
    /// How handlers find the id of a thread, once known; the process id; and the threads for which
    /// that does not hold.
    pub(crate) known: Option<ThreadLayout>,
    pub(crate) pid: i32,
    pub(crate) unidentified_threads: HashSet<i32>,
    /// Whether its threads currently do not wait for room in a ring.
    pub(crate) waits_disabled: bool,
    /// When its threads are identified again.
    pub(crate) looks: Looks,
    /// Whether its threads may not read the time stamp counter. The tracer tells it the time then.
    pub(crate) tsc_forbidden: bool,
}

/// How system calls are made in an address space, and what answers its traps if the tracer dies.
#[derive(Debug)]
pub(crate) struct CallState {
    /// Ledger entries of sites that are about to trap, until the sites have entries of their own.
    pub(crate) trapping: Vec<Entered>,
    /// An instruction of the process that makes a system call: `syscall`, or `int 0x80`.
    pub(crate) syscall: Option<Entrance>,
    /// The ledger entry of the bytes lent for system calls.
    pub(crate) spare_noted: Option<Entered>,
    /// The guard, which handles traps in the process if the tracer dies, and whether installing it
    /// was tried.
    pub(crate) guard: Option<Guard>,
    pub(crate) guard_tried: bool,
}

/// What was mapped in an address space for probes.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// The memory of slots.
    pub(crate) areas: Vec<Area>,
    /// The number of mappings made in it for probes.
    pub(crate) mappings: usize,
    /// Whether the kernel has refused to map memory in it.
    pub(crate) map_refused: bool,
    /// Slots that are mapped and not used yet.
    pub(crate) spare_slots: Option<Area>,
    /// Ledger entries of the memory that is mapped in it.
    pub(crate) noted: MemoryEntries,
}

/// What jumps are planned from in an address space.
#[derive(Debug)]
pub(crate) struct Plans {
    /// The armings that were copied to it: the number of each, and the distance of its sites from
    /// those of the original.
    pub(crate) moved: Vec<(u32, u64)>,
    /// The current state of the sites and of what is known of their jumps.
    pub(crate) generation: Generation,
    /// Which bytes are changed, and which other bytes must stay as they are; empty until there are
    /// jumps.
    pub(crate) planners: Planners,
}
