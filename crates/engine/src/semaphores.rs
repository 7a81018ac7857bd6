//! Semaphores of static probes (USDT): counters in the data of a program, one for some of its
//! probes. The program skips such a probe while its semaphore is 0.
//!
//! A semaphore is counted up once in each address space in which probes that need it are armed, and
//! down again when the address space is left. It has an entry in the ledger from before the one
//! until after the other, so whoever survives a killed tracer counts it down too. Others may count
//! at the same time, and no write of two bytes to another process is atomic: they, and we, may lose
//! a count then, as with every tracer that counts from outside.

use process::{Memory, Module};

use crate::counter::{BYTES, lower, value};
use crate::ledger::{Entered, Full};
use crate::module_key::{ModuleKey, module_key};
use crate::site::Code;

/// The semaphores that are counted up in an address space.
#[derive(Debug, Default)]
pub(crate) struct Semaphores(Vec<Raised>);

/// A semaphore that is counted up.
#[derive(Debug)]
struct Raised {
    module: ModuleKey,
    address: u64,
    _entered: Option<Entered>,
}

impl Semaphores {
    /// Counts a semaphore up, unless it is already; `vaddr` is its address in the module's file. An
    /// address that is none of the module's writable data is left alone.
    pub(crate) fn raise(&mut self, code: &Code, module: &Module, vaddr: u64) -> Result<(), Full> {
        if !is_data(module, vaddr) {
            return Ok(());
        }
        let (address, key) = (module.address(vaddr), module_key(module));
        let known = self.0.iter().any(|raised| raised.address == address && raised.module == key);
        // The module may have been mapped anew at the same place.
        if known && value(&code.memory, address) != Some(0) {
            return Ok(());
        }
        if !known {
            let ledger = code.ledger.as_ref();
            let entered = ledger.map(|ledger| ledger.enter_counter(code.process, address)).transpose()?;
            self.0.push(Raised { module: key, address, _entered: entered });
        }
        if let Some(count) = value(&code.memory, address) {
            // Fails only if the process is gone.
            let _ = code.memory.poke(address, &count.saturating_add(1).to_le_bytes());
        }
        Ok(())
    }

    /// Those of a child whose memory was copied: they are counted up there.
    pub(crate) fn copy(&self, code: &Code) -> Semaphores {
        let copy = |raised: &Raised| {
            let ledger = code.ledger.as_ref();
            let entered = ledger.and_then(|ledger| {
                ledger.enter_counter(code.process, raised.address).map_err(|Full| ledger.misses(1)).ok()
            });
            Raised { module: raised.module, address: raised.address, _entered: entered }
        };
        Semaphores(self.0.iter().map(copy).collect())
    }

    /// Counts all down.
    pub(crate) fn lower(&mut self, memory: &Memory) {
        // An entry is struck out after its semaphore is counted down.
        for raised in self.0.drain(..) {
            lower(memory, raised.address);
        }
    }

    /// Forgets those of modules that are no longer there.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ModuleKey) -> bool) {
        self.0.retain(|raised| is_there(&raised.module));
    }
}

fn is_data(module: &Module, vaddr: u64) -> bool {
    let Some(end) = vaddr.checked_add(BYTES) else { return false };
    module.image.segments().iter().any(|segment| {
        let inside = segment.vaddr <= vaddr && end <= segment.vaddr.saturating_add(segment.mem_size);
        segment.writable && !segment.executable && inside
    })
}
