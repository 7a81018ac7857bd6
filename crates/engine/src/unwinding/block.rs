//! The block of memory in a process from which its handlers walk stacks ([`layout::stacks`]).
//!
//! It is mapped once with room for more, and written from its beginning: rows of tables, and lists
//! of modules behind them. What has been written is never changed, so a thread that reads it is not
//! disturbed. When it is full, another block takes its place.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use layout::stacks::{Directory, SLOTS, slot};
use process::Memory;
use unwind::Listed;

use super::{FileTable, Unwound};

/// Bytes of a word.
const WORD: u64 = size_of::<u64>() as u64;
/// The least bytes of a block: twice the tables of most programs.
const LEAST: u64 = 16 << 20;
/// A block with more bytes than this has no room for more.
const MANY: u64 = 512 << 20;
/// Bytes that a block without room for more has beyond its tables, for other lists.
const SPARE: u64 = 256 << 10;
/// The longest time until the tracer learns of a fork.
const RECENTLY: Duration = Duration::from_secs(10);

/// A block, and what has been written into it.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    base: u64,
    size: u64,
    /// Words that have been written, and how many of them long ago.
    words: usize,
    settled: usize,
    written: Instant,
    /// The first word of each table, by its number.
    tables: BTreeMap<u64, (usize, Rc<FileTable>)>,
    /// The current list, and its first word.
    list: (usize, Vec<u64>),
    /// The slot of the directory that has it.
    slot: u8,
}

impl Block {
    /// The bytes of a block for these modules, and those that it cannot do without.
    pub(super) fn size_for(modules: &[Unwound]) -> (u64, u64) {
        let mut tables: BTreeMap<u64, usize> = BTreeMap::new();
        for module in modules {
            tables.insert(module.table.number(), unwind::word_count(module.table.rows()));
        }
        let words = 2 + tables.values().sum::<usize>() + list_words(modules.len());
        let least = (words as u64 * WORD + SPARE).next_multiple_of(layout::PAGE);
        ((2 * least).clamp(LEAST, MANY).max(least), least)
    }

    /// A block that has just been mapped. `before` is the one that it replaces.
    pub(super) fn new(base: u64, size: u64, before: Option<&Block>) -> Block {
        Block {
            base,
            size,
            words: 0,
            settled: 0,
            written: Instant::now(),
            tables: BTreeMap::new(),
            list: (0, Vec::new()),
            slot: before.map_or(0, |before| before.slot),
        }
    }

    /// Its address and size.
    pub(super) fn memory(&self) -> (u64, u64) {
        (self.base, self.size)
    }

    /// Writes what it lacks of these modules, and a list of them. Returns false if there is no
    /// room.
    pub(super) fn add(&mut self, memory: &Memory, modules: &[Unwound]) -> io::Result<bool> {
        let mut words = self.words.max(1);
        let mut new = Vec::new();
        let mut tables = self.tables.clone();
        let listed = modules.iter().map(|module| {
            let (first, _) = tables.entry(module.table.number()).or_insert_with(|| {
                let first = words;
                words += unwind::word_count(module.table.rows());
                new.push((first, Rc::clone(&module.table)));
                (first, Rc::clone(&module.table))
            });
            Listed::new(&module.module(), *first)
        });
        let list = unwind::list(listed.collect());
        if self.list.1 == list {
            return Ok(true);
        }
        let end = words + list.len();
        if end as u64 > self.size / WORD || slot(self.base, words).is_none() {
            return Ok(false);
        }
        if self.written.elapsed() > RECENTLY {
            self.settled = self.words;
        }
        self.written = Instant::now();
        if self.words == 0 {
            self.write(memory, 0, [self.size / WORD])?;
        }
        for (first, table) in new {
            self.write(memory, first, unwind::words(table.rows()))?;
        }
        self.write(memory, words, list.iter().copied())?;
        (self.words, self.list, self.tables) = (end, (words, list), tables);
        self.slot = self.slot % (SLOTS - 1) as u8 + 1;
        Ok(true)
    }

    /// Makes the current list the one that handlers find.
    pub(super) fn publish(&self, memory: &Memory, directory: u64) -> io::Result<()> {
        let Some(word) = slot(self.base, self.list.0).filter(|_| self.slot != 0) else { return Ok(()) };
        let slots = directory + offset_of!(Directory, slots) as u64;
        memory.poke(slots + u64::from(self.slot) * WORD, &word.to_le_bytes())?;
        memory.poke(directory + offset_of!(Directory, current) as u64, &[self.slot])?;
        change_version(memory, directory)
    }

    /// Makes handlers find no block.
    pub(super) fn withdraw(memory: &Memory, directory: u64) -> io::Result<()> {
        memory.poke(directory + offset_of!(Directory, current) as u64, &[0])?;
        change_version(memory, directory)
    }

    /// Writes again what was written a short time ago.
    pub(super) fn write_again(&mut self, memory: &Memory, directory: Option<u64>) -> io::Result<()> {
        if self.written.elapsed() > RECENTLY {
            return Ok(());
        }
        self.write(memory, 0, [self.size / WORD])?;
        for (first, table) in self.tables.values().filter(|(first, _)| *first >= self.settled) {
            self.write(memory, *first, unwind::words(table.rows()))?;
        }
        self.write(memory, self.list.0, self.list.1.iter().copied())?;
        directory.map_or(Ok(()), |directory| self.publish(memory, directory))
    }

    fn write(&self, memory: &Memory, first: usize, words: impl IntoIterator<Item = u64>) -> io::Result<()> {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        memory.poke(self.base + first as u64 * WORD, &bytes)
    }
}

/// Gives what the directory says now a version of its own.
fn change_version(memory: &Memory, directory: u64) -> io::Result<()> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let version = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    memory.poke(directory + offset_of!(Directory, version) as u64, &version.to_le_bytes())
}

/// The words of a list of so many modules.
fn list_words(modules: usize) -> usize {
    1 + 5 * modules
}

/// A block that was replaced.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    /// Its address and size.
    pub(super) memory: (u64, u64),
    /// The contexts in which a handler has run ever since; `None` if that was not looked at yet.
    busy: Option<Vec<u32>>,
}

impl Replaced {
    pub(super) fn new(block: &Block) -> Replaced {
        Replaced { memory: block.memory(), busy: None }
    }

    /// Notes that no thread reads it.
    pub(super) fn is_unused(&mut self) {
        self.busy = Some(Vec::new());
    }

    /// Looks which contexts have been free since it was replaced: a handler that runs there now has
    /// found the block after it. Returns whether no thread can read it any more.
    pub(super) fn look(&mut self, contexts: u32, is_claimed: impl Fn(u32) -> bool) -> bool {
        let busy = self.busy.get_or_insert_with(|| (0..contexts).collect());
        busy.retain(|&context| is_claimed(context));
        busy.is_empty()
    }
}

#[cfg(test)]
mod tests;
