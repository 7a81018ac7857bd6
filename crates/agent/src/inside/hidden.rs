//! The program's memory as handlers see it: without dprobes' own memory, and with the program's
//! bytes where probes have changed them.

use core::ops::Range;
use core::slice::from_raw_parts;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use super::guarded;
use layout::hidden::{CLEAN_LEAF, INDEX, LEAF_BITS, LIST, LIST_BYTES, LIST_SIZE, LISTS, Lists, PAGE_BITS};
use layout::{PAGE, RED_ZONE};

/// How often to reread a list that changes meanwhile. It changes when probes change, which takes
/// much longer than a read.
const TRIES: usize = 16;

/// The table of memory hidden from handlers.
#[derive(Clone, Copy)]
pub(super) struct Hidden {
    /// The table's address, or 0.
    base: u64,
}

impl Hidden {
    /// The table at an address; 0: nothing is hidden.
    pub(super) fn at(address: u32) -> Hidden {
        Hidden { base: address.into() }
    }

    /// Copies memory: fills all of `into`, or returns the first address that cannot be read. `rsp`
    /// is the site's.
    pub(super) fn read(self, address: u64, into: &mut [u8], rsp: u64) -> Result<(), u64> {
        let Some(lists) = self.lists() else { return guarded::read(address, into) };
        let mut result = Ok(());
        for _ in 0..TRIES {
            let version = lists.version.load(Ordering::Acquire);
            let nothing = self.nothing(lists, version, address, into.len(), rsp);
            let length = nothing.map_or(into.len(), |nothing| (nothing - address) as usize);
            result = match &mut into[..length] {
                [] => Ok(()),
                into => guarded::read(address, into),
            };
            self.restore(version, address, &mut into[..length]);
            result = result.and(nothing.map_or(Ok(()), Err));
            // The data and the lists are consistent if the version has not changed.
            fence(Ordering::Acquire);
            if lists.version.load(Ordering::Relaxed) == version {
                break;
            }
        }
        result
    }

    /// The word at an address that is a multiple of 8, if it can be read. `rsp` is the site's.
    #[inline(always)]
    pub(super) fn word(self, address: u64, rsp: u64) -> Option<u64> {
        if self.has_no_mark(address) {
            return guarded::word(address);
        }
        self.word_of_marked(address, rsp)
    }

    /// The same for a page with a mark.
    #[cold]
    #[inline(never)]
    fn word_of_marked(self, address: u64, rsp: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes, rsp).ok().map(|()| u64::from_le_bytes(bytes))
    }

    /// Whether the page of an address has no mark: nothing in it is hidden. Compiled code looks
    /// there, too, before each access.
    fn has_no_mark(self, address: u64) -> bool {
        if self.base == 0 {
            return true;
        }
        let index = |bits: u32| address >> bits & u64::from(INDEX);
        // SAFETY: a nonzero base is that of a table, which stays as long as the agent does. Its
        // leaves are within it, and the process cannot write there.
        unsafe {
            let leaf = &*((self.base + index(LEAF_BITS) * 4) as *const AtomicU32);
            let marks = self.base + CLEAN_LEAF + u64::from(leaf.load(Ordering::Relaxed));
            let mark = &*((marks + index(PAGE_BITS)) as *const AtomicU8);
            mark.load(Ordering::Relaxed) == 0
        }
    }

    /// Writes 1, 2, 4 or 8 bytes: all of them, or none, and then returns the first address that
    /// cannot be written.
    pub(super) fn write(self, address: u64, from: &[u8], rsp: u64) -> Result<(), u64> {
        let Some(lists) = self.lists() else { return guarded::write(address, from) };
        match self.refused(lists, address, from.len(), rsp) {
            // An address before it may be unwritable, too.
            Some(refused) if refused > address && !guarded::verify(address, true) => Err(address),
            Some(refused) => Err(refused),
            None => guarded::write(address, from),
        }
    }

    /// Whether a byte can be read and, if `write`, also written.
    pub(super) fn verify(self, address: u64, write: bool, rsp: u64) -> bool {
        let Some(lists) = self.lists() else { return guarded::verify(address, write) };
        let version = lists.version.load(Ordering::Acquire);
        let refused = match write {
            true => self.refused(lists, address, 1, rsp),
            false => self.nothing(lists, version, address, 1, rsp),
        };
        refused.is_none() && guarded::verify(address, write)
    }

    fn lists(self) -> Option<&'static Lists> {
        // SAFETY: a nonzero address is that of a table, which stays as long as the agent does; its
        // fields are atomic.
        (self.base != 0).then(|| unsafe { &*((self.base + LISTS) as *const Lists) })
    }

    /// The first of the addresses that is hidden.
    fn nothing(self, lists: &Lists, version: u32, address: u64, length: usize, rsp: u64) -> Option<u64> {
        let last = address.checked_add(length as u64 - 1)?;
        let ranges = self.ranges(version);
        let next = ranges.partition_point(|range| range.end <= address);
        let ours = ranges.get(next).filter(|range| range.start <= last).map(|range| range.start.max(address));
        [ours, below_stack(lists, address..last, rsp)].into_iter().flatten().min()
    }

    /// The first of the addresses that handlers must not write: it is hidden, or in a page of code
    /// with probes.
    fn refused(self, lists: &Lists, address: u64, length: usize, rsp: u64) -> Option<u64> {
        let version = lists.version.load(Ordering::Acquire);
        let nothing = self.nothing(lists, version, address, length, rsp);
        let last = address.checked_add(length as u64 - 1)?;
        let is_probed = |address: u64| {
            let page = address & !(PAGE - 1);
            !self.changed(version, page..page + (PAGE - 1)).is_empty()
        };
        let first = is_probed(address).then_some(address);
        let second = last & !(PAGE - 1);
        let second = (second > address && is_probed(second)).then_some(second);
        [nothing, first, second].into_iter().flatten().min()
    }

    /// Replaces the bytes that probes have written by the program's, in memory read from `address`.
    fn restore(self, version: u32, address: u64, bytes: &mut [u8]) {
        let Some(more) = (bytes.len() as u64).checked_sub(1) else { return };
        for &changed in self.changed(version, address..address.saturating_add(more)) {
            let byte = (changed >> 16).checked_sub(address).and_then(|at| bytes.get_mut(at as usize));
            if let Some(byte) = byte.filter(|byte| **byte == changed as u8) {
                *byte = (changed >> 8) as u8;
            }
        }
    }

    /// The hidden ranges.
    fn ranges(self, version: u32) -> &'static [layout::hidden::Range] {
        let (list, count) = self.list(version, |lists, list| lists.ranges[list].load(Ordering::Relaxed));
        // SAFETY: the list has that many entries; if it changes, which the version shows, every
        // word is still a valid word.
        unsafe {
            from_raw_parts(list as *const layout::hidden::Range, count.min(layout::hidden::RANGES) as usize)
        }
    }

    /// The changed bytes from the first address of a range to its last.
    fn changed(self, version: u32, addresses: Range<u64>) -> &'static [u64] {
        let (list, count) = self.list(version, |lists, list| lists.bytes[list].load(Ordering::Relaxed));
        let place = (list + LIST_BYTES) as *const u64;
        // SAFETY: as in `ranges`.
        let all = unsafe { from_raw_parts(place, count.min(layout::hidden::BYTES) as usize) };
        let first = all.partition_point(|changed| changed >> 16 < addresses.start);
        let end = all.partition_point(|changed| changed >> 16 <= addresses.end);
        all.get(first..end).unwrap_or(&[])
    }

    /// The list of a version: its address and its number of entries.
    fn list(self, version: u32, count: impl Fn(&Lists, usize) -> u32) -> (u64, u64) {
        let list = version as usize & 1;
        let count = self.lists().map_or(0, |lists| count(lists, list));
        (self.base + LIST + list as u64 * LIST_SIZE, count.into())
    }
}

/// The first of the addresses that may be below the mapped part of a stack. Memory above the site's
/// rsp is mapped, and so is the rest of the page just below it, where the handler has its frame.
/// For deeper addresses only the kernel knows, and it is not asked.
fn below_stack(lists: &Lists, addresses: Range<u64>, rsp: u64) -> Option<u64> {
    let [low, high] = [0, 2].map(|place| {
        let half = |place: usize| u64::from(lists.stack[place].load(Ordering::Relaxed));
        half(place) | half(place + 1) << 32
    });
    let (first, last) = (addresses.start.max(low), addresses.end.min(high.wrapping_sub(1)));
    let used = rsp.saturating_sub(RED_ZONE) & !(PAGE - 1);
    (high != 0 && first <= last && first < used).then_some(first)
}
