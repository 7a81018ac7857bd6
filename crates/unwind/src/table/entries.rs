//! Lists the functions that have unwinding information, by address.

use std::collections::HashMap;
use std::vec::Vec;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, LittleEndian,
    UnwindOffset, UnwindSection,
};

use super::elf::Sections;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The most distinct common information entries that are kept. Linkers merge equal ones.
const COMMON: usize = 4096;

/// The longest common information entry. Its instructions are executed for each function that
/// refers to it.
const COMMON_BYTES: usize = 512;

/// The most bytes of common information entries that are executed, or read again, in all. Chromium
/// has a million functions, and some twenty bytes for each.
const EXECUTED: usize = 512 << 20;

/// A function's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The first virtual address.
    pub(super) start: u64,
    /// The address after the last.
    pub(super) end: u64,
    /// Where in the section the entry is.
    pub(super) offset: u32,
    /// Whether the section is `.debug_frame`.
    pub(super) is_debug: bool,
}

/// All entries, by ascending start.
pub(super) struct Entries {
    pub(super) list: Vec<Entry>,
}

impl Entries {
    pub(super) fn list(sections: &Sections<'_>) -> Entries {
        let mut list = Vec::new();
        entries_of(&eh_frame(sections), &sections.bases, false, &mut list);
        list.sort_unstable_by_key(|entry| (entry.start, entry.end));
        let known = list.len();
        entries_of(&debug_frame(sections), &sections.bases, true, &mut list);
        let (in_eh_frame, others) = list.split_at(known);
        let missing: Vec<Entry> =
            others.iter().filter(|entry| !overlaps(in_eh_frame, entry)).copied().collect();
        list.truncate(known);
        list.extend(missing);
        list.sort_unstable_by_key(|entry| (entry.start, entry.end));
        Entries { list }
    }
}

/// Whether an entry has bytes in common with one of a sorted list.
fn overlaps(list: &[Entry], entry: &Entry) -> bool {
    let after = list.partition_point(|other| other.start < entry.end);
    after.checked_sub(1).and_then(|at| list.get(at)).is_some_and(|other| other.end > entry.start)
}

pub(super) fn eh_frame<'a>(sections: &Sections<'a>) -> EhFrame<Bytes<'a>> {
    EhFrame::new(sections.eh_frame, LittleEndian)
}

pub(super) fn debug_frame<'a>(sections: &'a Sections<'_>) -> DebugFrame<Bytes<'a>> {
    let mut section = DebugFrame::new(&sections.debug_frame, LittleEndian);
    section.set_address_size(8);
    section
}

/// Adds the entries of a section, up to the first damaged one.
fn entries_of<'a, S>(section: &S, bases: &BaseAddresses, is_debug: bool, list: &mut Vec<Entry>)
where
    S: UnwindSection<Bytes<'a>>,
{
    let mut common = CommonEntries::default();
    let mut entries = section.entries(bases);
    // Each entry is longer than its length field, so the walk ends with the section.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(offset) = u32::try_from(partial.offset()) else { return };
        let Ok(entry) = partial.parse(|section, bases, offset| common.get(section, bases, offset)) else {
            continue;
        };
        let (start, size) = (entry.initial_address(), entry.len());
        // Entries of code that the linker has discarded have no length or start at 0.
        if let Some(end) = start.checked_add(size).filter(|_| start != 0 && size != 0) {
            list.push(Entry { start, end, offset, is_debug });
        }
    }
}

/// The common information entries that were read.
#[derive(Default)]
pub(super) struct CommonEntries<'a> {
    /// By offset.
    known: HashMap<usize, CommonInformationEntry<Bytes<'a>>>,
    /// The bytes of those that were asked for.
    executed: usize,
}

impl<'a> CommonEntries<'a> {
    pub(super) fn get<S: UnwindSection<Bytes<'a>>>(
        &mut self,
        section: &S,
        bases: &BaseAddresses,
        offset: S::Offset,
    ) -> gimli::Result<CommonInformationEntry<Bytes<'a>>> {
        let key = UnwindOffset::into(offset);
        if self.executed > EXECUTED {
            return Err(gimli::Error::TooManyRegisterRules);
        }
        let entry = match self.known.get(&key) {
            Some(entry) => entry.clone(),
            None => {
                let entry = section.cie_from_offset(bases, offset)?;
                if entry.entry_len() > COMMON_BYTES || entry.address_size() != 8 {
                    return Err(gimli::Error::TooManyRegisterRules);
                }
                if self.known.len() < COMMON {
                    self.known.insert(key, entry.clone());
                }
                entry
            }
        };
        self.executed = self.executed.saturating_add(entry.entry_len());
        Ok(entry)
    }
}
