//! The table in a process by which the guard's handler finds the slot of an `int3`.
//!
//! A hash table with open addressing. The number of entries is a power of two; each has 16 bytes:
//! the address of the site (0: free) and the address of its slot (0: none yet). At most half of the
//! entries are used. Sites are never removed, since their slots stay.

use std::collections::HashMap;
use std::io;

use process::Memory;

/// The factor for hashing an address; the upper half of the product gives the first entry to try.
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of an entry.
pub(super) const ENTRY: u64 = 16;

/// From so many sites on, the whole table is written.
const MANY: usize = 1024;

/// The table of one process.
#[derive(Clone, Debug)]
pub(super) struct Table {
    base: u64,
    entries: u64,
    /// The site at each used index.
    used: HashMap<u64, u64>,
    /// The slot of each site.
    slots: HashMap<u64, u64>,
}

impl Table {
    /// An empty table in zeroed memory of `size` bytes, a power of two of entries.
    pub(super) fn new(base: u64, size: u64) -> Table {
        Table { base, entries: size / ENTRY, used: HashMap::new(), slots: HashMap::new() }
    }

    /// The address, and the mask for indices.
    pub(super) fn words(&self) -> [u64; 2] {
        [self.base, self.entries - 1]
    }

    /// Bytes of it.
    pub(super) fn size(&self) -> u64 {
        self.entries * ENTRY
    }

    /// The size needed for `more` more sites.
    pub(super) fn size_for(&self, more: usize) -> u64 {
        let needed = (self.slots.len() + more) as u64 * 2;
        needed.next_power_of_two().max(self.entries) * ENTRY
    }

    /// A copy of the table in larger, zeroed memory.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub(super) fn moved(&self, base: u64, size: u64, memory: &Memory) -> io::Result<Table> {
        let mut table = Table::new(base, size);
        for (&site, &slot) in &self.slots {
            table.used.insert(table.index(site), site);
            table.slots.insert(site, slot);
        }
        memory.poke(base, &table.bytes())?;
        Ok(table)
    }

    /// Enters a site and its slot. If there is no room, nothing is done.
    pub(super) fn enter(&mut self, site: u64, slot: u64, memory: &Memory) -> io::Result<()> {
        let known = self.slots.contains_key(&site);
        if !known && (self.slots.len() as u64 + 1) * 2 > self.entries {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let place = self.index(site);
        memory.poke(self.base + place * ENTRY, &entry(site, slot))?;
        self.used.insert(place, site);
        self.slots.insert(site, slot);
        Ok(())
    }

    /// Enters sites and their slots, as far as there is room. Many are written at once: one call of
    /// the kernel for each takes longer than to write all of the table.
    pub(super) fn enter_all(&mut self, sites: &[(u64, u64)], memory: &Memory) -> io::Result<()> {
        if sites.len() < MANY {
            return sites.iter().try_for_each(|&(site, slot)| self.enter(site, slot, memory));
        }
        for &(site, slot) in sites {
            if self.slots.contains_key(&site) || (self.slots.len() as u64 + 1) * 2 <= self.entries {
                self.used.insert(self.index(site), site);
                self.slots.insert(site, slot);
            }
        }
        memory.poke(self.base, &self.bytes())
    }

    /// The whole table as it is in memory.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size() as usize];
        for (place, site) in &self.used {
            let slot = self.slots.get(site).copied().unwrap_or(0);
            bytes[(place * ENTRY) as usize..][..16].copy_from_slice(&entry(*site, slot));
        }
        bytes
    }

    /// The index of a site, or of the free entry for it.
    fn index(&self, site: u64) -> u64 {
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
    fn many_are_entered_as_few_are() {
        let sites: Vec<(u64, u64)> = (1..=MANY as u64 + 2).map(|site| (site * 0x1000, site)).collect();
        let size = (2 * MANY as u64 * ENTRY) as usize;
        let (mut at_once, mut one_by_one) = (vec![0u8; size], vec![0u8; size]);
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let mut table = Table::new(at_once.as_mut_ptr() as u64, size as u64);
        table.enter_all(&sites[..3], &memory).expect("own memory");
        table.enter_all(&sites, &memory).expect("own memory");
        let mut other = Table::new(one_by_one.as_mut_ptr() as u64, size as u64);
        let entered = sites.iter().filter(|(site, slot)| other.enter(*site, *slot, &memory).is_ok());
        assert_eq!(entered.count(), MANY, "never more than half of it");
        let read = |bytes: &[u8]| {
            let mut copy = vec![0; size];
            memory.peek(bytes.as_ptr() as u64, &mut copy).expect("own memory");
            copy
        };
        assert_eq!(read(&at_once), read(&one_by_one));
        assert!(read(&at_once).iter().any(|byte| *byte != 0));
    }

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
        // The same lookup as in the handler.
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
