//! The units that have code at an address.

use std::collections::HashSet;

use gimli::{AttributeValue, DebugInfoOffset, Unit};

use super::kinds::NoTypes;
use super::reader::{Bytes, Entry, Reader};

/// The most ranges that are kept.
const RANGES: usize = 1 << 22;

/// The ranges of code of all units.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Begin, end and unit, by their begin.
    all: Vec<(u64, u64, DebugInfoOffset)>,
    /// For each, the greatest end among it and those before it.
    reach: Vec<u64>,
}

impl Ranges {
    /// The units with code at an address: one, if the information is in order.
    pub(super) fn units_at(&self, vaddr: u64) -> Vec<DebugInfoOffset> {
        const SEVERAL: usize = 16;
        // One range may be told to reach over all others.
        const LOOKS: usize = 1 << 16;
        let end = self.all.partition_point(|(begin, ..)| *begin <= vaddr);
        let mut found = Vec::new();
        for index in (0..end).rev().take(LOOKS) {
            let (_, until, unit) = self.all[index];
            if until > vaddr && !found.contains(&unit) {
                found.push(unit);
            }
            if self.reach[index] <= vaddr || found.len() == SEVERAL {
                break;
            }
        }
        found
    }
}

/// Reads the ranges: from the table of them for the units that it has, else from the units.
pub(super) fn read(reader: &Reader<'_>) -> Result<Ranges, NoTypes> {
    let mut all = Vec::new();
    let mut known = HashSet::new();
    let mut headers = reader.dwarf.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        let unit = header.debug_info_offset();
        let mut entries = header.entries();
        while let Ok(Some(entry)) = entries.next_raw() {
            reader.spend(1)?;
            if entry.length() == 0 || entry.address() == 0 {
                continue;
            }
            if all.len() == RANGES {
                return Err(NoTypes::TooLong);
            }
            known.insert(unit.0);
            all.push((entry.address(), entry.address().saturating_add(entry.length()), unit));
        }
    }
    for &offset in reader.units {
        if known.contains(&offset.0) {
            continue;
        }
        // One unit that is damaged does not hide the others.
        let Ok(unit) = reader.unit(offset) else { continue };
        let Ok(root) = unit.entry(unit.header.root_offset()) else { continue };
        for (begin, end) in of_entry(reader, &unit, &root, usize::MAX).unwrap_or_default() {
            if all.len() == RANGES {
                return Err(NoTypes::TooLong);
            }
            all.push((begin, end, offset));
        }
    }
    all.sort_by_key(|(begin, end, unit)| (*begin, *end, unit.0));
    let mut furthest = 0;
    let reach = all.iter().map(|(_, end, _)| {
        furthest = furthest.max(*end);
        furthest
    });
    let reach = reach.collect();
    Ok(Ranges { all, reach })
}

/// The first ranges of code of an entry, as it lists them.
pub(super) fn of_entry<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    entry: &Entry<'a>,
    most: usize,
) -> Result<Vec<(u64, u64)>, NoTypes> {
    if let Some(value) = entry.attr_value(gimli::DW_AT_ranges)
        && let Some(mut list) = reader.dwarf.attr_ranges(unit, value)?
    {
        let mut found = Vec::new();
        while let Some(range) = list.next()? {
            reader.spend(1)?;
            if found.len() == most {
                break;
            }
            if range.begin < range.end {
                found.push((range.begin, range.end));
            }
        }
        return Ok(found);
    }
    let Some(low) = entry.attr_value(gimli::DW_AT_low_pc) else { return Ok(Vec::new()) };
    let Some(low) = reader.dwarf.attr_address(unit, low)? else { return Ok(Vec::new()) };
    let high = match entry.attr_value(gimli::DW_AT_high_pc) {
        Some(AttributeValue::Udata(size)) => Some(low.saturating_add(size)),
        Some(value) => match reader.dwarf.attr_address(unit, value)? {
            Some(high) => Some(high),
            None => value.udata_value().map(|size| low.saturating_add(size)),
        },
        None => None,
    };
    Ok(high.filter(|high| *high > low).map(|high| (low, high)).into_iter().collect())
}
