//! Which slot belongs to an `int3`: a table in the process, which its handler reads.
//!
//! Open addressing over a power of two of entries of 16 bytes: the site's address, 0 for none; the slot's address, 0 as long as it
//! has none. Never more than half of the entries are used. A site stays in it: its slot does.

use std::collections::HashMap;
use std::io;

use process::Memory;

/// What an address is multiplied with; the upper half of the product says where it is looked for first.
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of an entry.
pub(super) const ENTRY: u64 = 16;

/// The table of one process.
#[derive(Clone, Debug)]
pub(super) struct Table {
    base: u64,
    entries: u64,
    /// Where the site is that is there.
    used: HashMap<u64, u64>,
    /// The site and the slot, by site.
    slots: HashMap<u64, u64>,
}

impl Table {
    /// An empty table in memory that is all zeros: whole entries, a power of two of them.
    pub(super) fn new(base: u64, size: u64) -> Table {
        Table { base, entries: size / ENTRY, used: HashMap::new(), slots: HashMap::new() }
    }

    /// Where it is, and what the place of an entry is masked with.
    pub(super) fn words(&self) -> [u64; 2] {
        [self.base, self.entries - 1]
    }

    /// Bytes of it.
    pub(super) fn size(&self) -> u64 {
        self.entries * ENTRY
    }

    /// The size that it needs for so many more sites.
    pub(super) fn size_for(&self, more: usize) -> u64 {
        let needed = (self.slots.len() + more) as u64 * 2;
        needed.next_power_of_two().max(self.entries) * ENTRY
    }

    /// The same table in other, greater memory that is all zeros.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub(super) fn moved(&self, base: u64, size: u64, memory: &Memory) -> io::Result<Table> {
        let mut table = Table::new(base, size);
        let mut bytes = vec![0; size as usize];
        for (&site, &slot) in &self.slots {
            let place = table.place(site);
            table.used.insert(place, site);
            table.slots.insert(site, slot);
            bytes[(place * ENTRY) as usize..][..16].copy_from_slice(&entry(site, slot));
        }
        memory.poke(base, &bytes)?;
        Ok(table)
    }

    /// Enters a site and its slot. Without room nothing is done.
    pub(super) fn enter(&mut self, site: u64, slot: u64, memory: &Memory) -> io::Result<()> {
        let known = self.slots.contains_key(&site);
        if !known && (self.slots.len() as u64 + 1) * 2 > self.entries {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let place = self.place(site);
        memory.poke(self.base + place * ENTRY, &entry(site, slot))?;
        self.used.insert(place, site);
        self.slots.insert(site, slot);
        Ok(())
    }

    /// Where a site is, or is to be.
    fn place(&self, site: u64) -> u64 {
        let mut place = (site.wrapping_mul(FACTOR) >> 32) & (self.entries - 1);
        while self.used.get(&place).is_some_and(|&other| other != site) {
            place = (place + 1) & (self.entries - 1);
        }
        place
    }
}

fn entry(site: u64, slot: u64) -> [u8; 16] {
    (u128::from(site) | u128::from(slot) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_is_found_and_moves_along() {
        let mut bytes = vec![0u8; 64 * 16];
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let mut table = Table::new(bytes.as_mut_ptr() as u64, 16 * 16);
        for site in 1..=8 {
            table.enter(site * 0x1000, site, &memory).expect("room");
        }
        assert!(table.enter(0x9000, 9, &memory).is_err(), "never more than half of it");
        table.enter(0x1000, 77, &memory).expect("it has a place");
        assert_eq!(table.size_for(1), 32 * 16);
        let base = bytes[16 * 16..].as_mut_ptr() as u64;
        let table = table.moved(base, 32 * 16, &memory).expect("own memory");
        // As the handler looks for it.
        let mut words = vec![0; 32 * 16];
        memory.peek(base, &mut words).expect("own memory");
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight bytes"));
        for (site, slot) in [(0x1000u64, 77), (0x2000, 2), (0x8000, 8)] {
            let mut place = (site.wrapping_mul(FACTOR) >> 32) as usize & 31;
            while word(place * 16) != site {
                assert_ne!(word(place * 16), 0);
                place = (place + 1) & 31;
            }
            assert_eq!(word(place * 16 + 8), slot);
        }
        assert_eq!(table.words(), [base, 31]);
    }
}
