//! The guard: memory in a process that keeps its threads alive if the tracer dies.
//!
//! * A handler for SIGTRAP (`code`) handles traps. The kernel calls it only when the process is not
//!   traced. It sends the thread to the site's slot, uncounted. So the program lives on until the
//!   bytes are restored, or for good.
//! * A thread that the tracer single-steps with its signals blocked gets its signal mask and trap
//!   flag back by the same handler, which also answers debug registers that the tracer has left.
//! * A thread in a system call for the tracer returns through a frame in this memory
//!   ([`process::StubMemory`]).
//!
//! The handler is installed from before the first byte is changed until all are restored, unless
//! the program has a handler of its own or ignores SIGTRAP. The handler of a killed tracer is not
//! the program's own: it is replaced once it has no trap to handle. If the program sets a handler
//! later, that one stays. While the tracer lives, the handler gets only the program's own signals,
//! and then does what the kernel would have done. If a thread hits a trap while it blocks SIGTRAP,
//! the kernel resets the handler to the default; the tracer installs it again before it resumes the
//! thread. Where a libc blocks all signals for a moment, that is prevented: in its system calls, if
//! they are recognised (`mask_calls`, `lend`), else by the tracer (`mask`).
//!
//! ```text
//! +0      code, which can be executed
//! +4096   words, which the handler reads: see `Words`
//! +8192   memory for frames: Refuge::ROOM bytes
//! ...     the table of slots, until it is moved to greater memory
//! ```

mod code;
mod lend;
mod mask;
mod mask_calls;
mod spaces;
mod table;

use std::io;

use mask::MaskingTraps;
pub(crate) use mask_calls::MaskCalls;
use process::{Call, Caller, Error, Memory, STUB, StubMemory};
use table::Table;

use crate::ledger::{Mapped, Piece};
use crate::site_use::INT3;

/// Bytes for code.
const CODE: u64 = 4096;
/// Bytes at its end for the code of system calls.
const STUBS: u64 = 128;
const _: () = assert!(StubMemory::CODE <= STUBS);
/// The offset of the words.
const WORDS: u64 = CODE;
/// The offset of the room for frames.
const FRAMES: u64 = WORDS + 4096;
/// The offset of the first table.
const TABLE: u64 = FRAMES + StubMemory::ROOM;
/// Bytes of the first table.
const FIRST_TABLE: u64 = 8192;
/// Bytes of the whole guard.
const SIZE: u64 = TABLE + FIRST_TABLE;

/// Flags for memory at any address.
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
/// Bytes of the kernel's signal set.
const SET: u64 = 8;

/// Offsets in the words.
struct Words;

impl Words {
    /// The table's address and mask.
    const TABLE: u64 = 0;
    /// Whether a thread is single-stepped, and its signal mask.
    const STEPPED: u64 = 16;
    /// A `struct sigaction` in the kernel's layout: handler, flags, return, mask.
    const ACTION: u64 = 64;
    /// Another one: room for the current action.
    const ASKED: u64 = 96;
    /// One of all zeros: the default action.
    const DEFAULT: u64 = 128;
}

/// SA_RESTORER, which the libc crate does not name.
const SA_RESTORER: u64 = 0x0400_0000;

/// The guard of a process.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    base: u64,
    table: Table,
    /// Outgrown tables, whose memory stays.
    former: Vec<(u64, u64)>,
    /// Whether the handler is installed.
    handles: bool,
    /// Signal masks of threads that hit traps.
    masks: Masks,
    /// Traps after which threads have hit another with all signals blocked.
    preludes: MaskingTraps,
}

/// What is known of signal masks seen after a trap, which has unblocked SIGTRAP: whether a thread
/// with this mask had SIGTRAP blocked before.
#[derive(Clone, Debug, Default)]
struct Masks {
    /// The handler was still installed.
    harmless: Vec<u64>,
    /// The handler was gone once: although SIGTRAP is unblocked now, it was blocked before.
    harmful: Vec<u64>,
}

/// Masks of each kind that are remembered; for others the handler is checked each time.
const MASKS: usize = 16;

impl Masks {
    /// Whether the handler need not be checked. A thread that blocks SIGTRAP on purpose also blocks
    /// other signals.
    fn is_harmless(&self, mask: u64) -> bool {
        mask == 0 || !mask::blocks_everything(mask) && self.harmless.contains(&mask)
    }

    /// Notes whether the handler was installed after a trap with this mask.
    fn note(&mut self, mask: u64, was_there: bool) {
        let list = if was_there { &mut self.harmless } else { &mut self.harmful };
        if !list.contains(&mask) && list.len() < MASKS {
            list.push(mask);
        }
        let harmful = &self.harmful;
        self.harmless.retain(|mask| !harmful.contains(mask));
    }
}

impl Guard {
    /// A guard that is not written to its process yet.
    fn new(base: u64, table: Table) -> Guard {
        let (masks, preludes) = (Masks::default(), MaskingTraps::default());
        Guard { base, table, former: Vec::new(), handles: false, masks, preludes }
    }

    /// Whether the handler is installed.
    fn answers(&self) -> bool {
        self.handles
    }

    /// Where its threads make system calls for the tracer, and return from.
    pub(crate) fn refuge(&self) -> StubMemory {
        refuge(self.base)
    }

    /// The guard of a forked child, judged by its memory: none if the child was forked before the
    /// guard was complete, however late that is noticed.
    pub(crate) fn copy(&self, child: &Memory) -> Option<Guard> {
        let (mut stub, mut table) = ([0; STUB.len()], [0; 16]);
        child.peek(self.refuge().stub, &mut stub).ok()?;
        child.peek(self.base + WORDS + Words::TABLE, &mut table).ok()?;
        (stub == STUB && table == self.table_words()).then(|| self.clone())
    }

    /// The memory mapped for it: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        let table = self.table.words()[0];
        let own = (table != self.base + TABLE).then_some((table, self.table.size()));
        self.former.iter().copied().chain(own).chain([(self.base, SIZE)])
    }

    /// The same memory as entries for the ledger.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Mapped> {
        let piece = |base| if base == self.base { Piece::Guard } else { Piece::Table };
        self.mapped().map(move |(base, size)| Mapped { base, size, piece: piece(base) })
    }

    /// Enters sites that trap, each with its slot, or 0 if it has none.
    pub(crate) fn traps(&mut self, sites: &[(u64, u64)], memory: &Memory) {
        // If there is no room, the process is unguarded at a site, as without a guard.
        let _ = self.table.enter_all(sites, memory);
    }

    /// Notes that a thread with this signal mask is about to be single-stepped. No other is, since
    /// there is one tracer, and a program that steps itself has a handler of its own.
    pub(crate) fn steps(&self, mask: u64, memory: &Memory) {
        let words = u128::from(mask) << 64 | 1;
        // Fails only if the process is gone.
        let _ = memory.poke(self.base + WORDS + Words::STEPPED, &words.to_le_bytes());
    }

    /// Notes that this is over.
    pub(crate) fn stepped(&self, memory: &Memory) {
        let _ = memory.poke(self.base + WORDS + Words::STEPPED, &[0; 8]);
    }

    /// Writes everything except the table.
    fn write(&self, memory: &Memory) -> io::Result<()> {
        let mut page = code::code().to_vec();
        page.resize((CODE - STUBS) as usize, 0);
        page.extend_from_slice(&StubMemory::code());
        memory.poke(self.base, &page)?;
        self.write_table(memory)?;
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        let action = [self.base, flags as u64 | SA_RESTORER, self.base + code::returns_at(), !0];
        let bytes: Vec<u8> = action.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.poke(self.base + WORDS + Words::ACTION, &bytes)
    }

    /// Moves the table to larger, zeroed memory.
    fn move_table(&mut self, base: u64, size: u64, memory: &Memory) -> io::Result<()> {
        let table = self.table.moved(base, size, memory)?;
        let [former, _] = self.table.words();
        if former != self.base + TABLE {
            self.former.push((former, self.table.size()));
        }
        self.table = table;
        self.write_table(memory)
    }

    fn write_table(&self, memory: &Memory) -> io::Result<()> {
        memory.poke(self.base + WORDS + Words::TABLE, &self.table_words())
    }

    /// The words by which the handler finds its table.
    fn table_words(&self) -> [u8; 16] {
        let [base, mask] = self.table.words();
        (u128::from(base) | u128::from(mask) << 64).to_le_bytes()
    }
}

/// Entries of a table that are inspected, at most.
const LOOKS_AT: u64 = 1 << 20;

/// Whether the handler of a `struct sigaction` at an address is that of a tracer that has died,
/// with no trap left to handle. A process that forges this affects only its own handler.
fn is_abandoned(action: u64, memory: &Memory) -> bool {
    let word = |address: u64| {
        let mut word = [0; 8];
        memory.peek(address, &mut word).ok().map(|()| u64::from_le_bytes(word))
    };
    let look = || -> Option<bool> {
        let base = word(action)?;
        if !is_at(base, memory) {
            return Some(false);
        }
        let words = base.checked_add(WORDS)?;
        let (table, mask) = (word(words)?, word(words.checked_add(8)?)?);
        let entries = mask.checked_add(1).filter(|entries| *entries <= LOOKS_AT)?;
        let mut bytes = vec![0; (entries * table::ENTRY) as usize];
        memory.peek(table, &mut bytes).ok()?;
        let sites = bytes.chunks_exact(table::ENTRY as usize).map(|entry| {
            let (site, _) = entry.split_at(8);
            site.try_into().map_or(0, u64::from_le_bytes)
        });
        // If nothing is mapped at a site any more, there is no trap either.
        let traps = |site: u64| {
            let mut byte = [0];
            memory.peek(site, &mut byte).is_ok() && byte == [INT3]
        };
        Some(!sites.filter(|&site| site != 0).any(traps))
    };
    look().unwrap_or(false)
}

/// Whether the guard of a tracer, alive or dead, is at an address.
pub(crate) fn is_at(base: u64, memory: &Memory) -> bool {
    let mut found = vec![0; code::code().len()];
    memory.peek(base, &mut found).is_ok() && found == code::code()
}

/// Where the threads of a process with a guard at `base` make system calls for the tracer, and
/// return from.
pub(crate) fn refuge(base: u64) -> StubMemory {
    StubMemory { stub: base + (CODE - STUBS), end: base + TABLE }
}

/// Resets the SIGTRAP action to the default if it is still the handler of the guard at `base`.
/// Returns whether nothing leads to the guard any more.
///
/// # Errors
/// The thread has been killed.
pub(crate) fn drop_handler(caller: Caller, base: u64) -> Result<(Caller, bool), Error> {
    let asked = base + WORDS + Words::ASKED;
    let action = [libc::SIGTRAP as u64, 0, asked, SET, 0, 0];
    let (caller, result) = caller.call("rt_sigaction", libc::SYS_rt_sigaction, action)?;
    let mut handler = [0; 8];
    if result.is_err() || process::read(caller.thread().tid(), asked, &mut handler).is_err() {
        return Ok((caller, false));
    }
    if u64::from_le_bytes(handler) != base {
        return Ok((caller, true));
    }
    let (caller, result) = caller.call_one(set_handler(base + WORDS + Words::DEFAULT))?;
    Ok((caller, result.is_ok()))
}

/// The call that sets a process's SIGTRAP action from a `struct sigaction` at an address in it.
fn set_handler(action: u64) -> Call {
    Call::new("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGTRAP as u64, action, 0, SET])
}

#[cfg(test)]
mod tests;
