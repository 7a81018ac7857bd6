//! Reads the dynamic relocations: which bytes of code the dynamic linker writes, and which slots
//! get which symbol's address.
//!
//! The tables are the dynamic section's, as for the dynamic linker itself; section headers do not
//! count. A text relocation (`DT_TEXTREL`) changes bytes of code: before it is applied they have
//! other values, and applying it would destroy what has been written over them.

use std::collections::HashMap;
use std::ops::Range;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64, Rel32, Rel64, Rela32, Rela64};
use object::pod;
use object::read::elf::{FileHeader, Sym};

use super::dynamic::{Dynamic, Table};
use super::headers::{Headers, Machine};
use super::source::Source;

/// The most bytes of all relocation tables of a file; Chromium's have some 10 MiB.
const RELOCATIONS: u64 = 64 << 20;
/// The most bytes of the symbol table, and of the names.
const SYMBOLS: u64 = 64 << 20;
/// The longest symbol name that is read.
const NAME: usize = 4096;

/// What the dynamic linker writes into an image.
#[derive(Debug, Default)]
pub(crate) struct DynamicRelocations {
    /// Relocated bytes of executable segments, ascending and disjoint.
    pub(crate) code: Vec<Range<u64>>,
    /// The slots that hold a symbol's address, by their own addresses: the symbol's name, and its
    /// address if the file defines it.
    pub(crate) slots: HashMap<u64, (String, Option<u64>)>,
}

/// One relocation.
#[derive(Clone, Copy)]
struct Entry {
    place: u64,
    kind: elf::RelocationType,
    symbol: u32,
}

/// Reads the tables. A damaged table is read up to the damage.
pub(crate) fn read(source: &Source, headers: &Headers, dynamic: &Dynamic) -> DynamicRelocations {
    let mut left = RELOCATIONS;
    let mut entries = Vec::new();
    for table in dynamic.relocations() {
        let Some(offset) = headers.offset_of_address(table.vaddr) else { continue };
        let Ok(bytes) = source.read("relocations", offset, table.whole(headers.is_64), left) else {
            continue;
        };
        left = left.saturating_sub(bytes.len() as u64);
        let endian = headers.endian;
        match (headers.is_64, table.addends) {
            (true, true) => each::<Rela64<Endianness>>(&bytes, |it| {
                entries.push(Entry {
                    place: it.r_offset.get(endian),
                    kind: it.r_type(endian, false),
                    symbol: it.r_sym(endian, false),
                });
            }),
            (true, false) => each::<Rel64<Endianness>>(&bytes, |it| {
                entries.push(Entry {
                    place: it.r_offset.get(endian),
                    kind: it.r_type(endian),
                    symbol: it.r_sym(endian),
                });
            }),
            (false, true) => each::<Rela32<Endianness>>(&bytes, |it| {
                entries.push(Entry {
                    place: it.r_offset.get(endian).into(),
                    kind: it.r_type(endian),
                    symbol: it.r_sym(endian),
                });
            }),
            (false, false) => each::<Rel32<Endianness>>(&bytes, |it| {
                entries.push(Entry {
                    place: it.r_offset.get(endian).into(),
                    kind: it.r_type(endian),
                    symbol: it.r_sym(endian),
                });
            }),
        }
    }
    let mut code: Vec<Range<u64>> = entries
        .iter()
        .map(|entry| entry.place..entry.place.saturating_add(width(headers.machine, entry.kind)))
        .filter(|range| {
            headers.executable_segments().any(|it| it.vaddr < range.end && range.start < it.file_end())
        })
        .collect();
    code.extend(compact(source, headers, dynamic));
    let slots = slots(source, headers, dynamic, &entries);
    DynamicRelocations { code: join(code), slots }
}

fn each<Entry: object::Pod>(bytes: &[u8], mut take: impl FnMut(&Entry)) {
    if let Ok(entries) = pod::slice_from_all_bytes::<Entry>(bytes) {
        entries.iter().for_each(&mut take);
    }
}

/// How many bytes a relocation writes.
fn width(machine: Machine, kind: elf::RelocationType) -> u64 {
    match machine {
        Machine::X86_64 => match kind {
            elf::R_X86_64_NONE => 0,
            elf::R_X86_64_8 | elf::R_X86_64_PC8 => 1,
            elf::R_X86_64_16 | elf::R_X86_64_PC16 => 2,
            elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => 4,
            elf::R_X86_64_TLSDESC => 16,
            _ => 8,
        },
        _ => match kind {
            elf::R_386_NONE => 0,
            elf::R_386_8 | elf::R_386_PC8 => 1,
            elf::R_386_16 | elf::R_386_PC16 => 2,
            elf::R_386_TLS_DESC => 8,
            _ => 4,
        },
    }
}

/// The words of code in the compact table (`DT_RELR`): each address is followed by bitmaps of the
/// words after it.
fn compact(source: &Source, headers: &Headers, dynamic: &Dynamic) -> Vec<Range<u64>> {
    let Some(table) = dynamic.compact else { return Vec::new() };
    let word = if headers.is_64 { 8 } else { 4 };
    let bytes = headers
        .offset_of_address(table.vaddr)
        .and_then(|offset| source.read("relocations", offset, table.size / word * word, RELOCATIONS).ok());
    let mut found = Vec::new();
    let mut add = |place: u64| {
        if headers.is_executable(place) {
            found.push(place..place.saturating_add(word));
        }
    };
    let mut next = 0u64;
    for entry in bytes.unwrap_or_default().chunks_exact(word as usize) {
        let mut whole = [0; 8];
        whole[..entry.len()].copy_from_slice(entry);
        let entry = u64::from_le_bytes(whole);
        if entry & 1 == 0 {
            add(entry);
            next = entry.wrapping_add(word);
            continue;
        }
        let bits = word * 8 - 1;
        for bit in (0..bits).filter(|bit| entry >> (bit + 1) & 1 != 0) {
            add(next.wrapping_add(bit * word));
        }
        next = next.wrapping_add(bits * word);
    }
    found
}

fn join(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// The slots that hold addresses of functions.
fn slots(
    source: &Source,
    headers: &Headers,
    dynamic: &Dynamic,
    entries: &[Entry],
) -> HashMap<u64, (String, Option<u64>)> {
    let is_slot = |entry: &&Entry| {
        entry.symbol != 0
            && match headers.machine {
                Machine::X86_64 => matches!(entry.kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT),
                _ => matches!(entry.kind, elf::R_386_JMP_SLOT | elf::R_386_GLOB_DAT),
            }
    };
    let wanted: Vec<&Entry> = entries.iter().filter(is_slot).collect();
    let Some(highest) = wanted.iter().map(|entry| entry.symbol).max() else { return HashMap::new() };
    match headers.is_64 {
        true => named::<FileHeader64<Endianness>>(source, headers, dynamic, &wanted, highest),
        false => named::<FileHeader32<Endianness>>(source, headers, dynamic, &wanted, highest),
    }
    .unwrap_or_default()
}

fn named<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    headers: &Headers,
    dynamic: &Dynamic,
    wanted: &[&Entry],
    highest: u32,
) -> Option<HashMap<u64, (String, Option<u64>)>> {
    let size = (u64::from(highest) + 1) * size_of::<Elf::Sym>() as u64;
    let symbols = source.read("symbols", headers.offset_of_address(dynamic.symbols?)?, size, SYMBOLS).ok()?;
    let symbols = pod::slice_from_all_bytes::<Elf::Sym>(&symbols).ok()?;
    let at = headers.offset_of_address(dynamic.strings?)?;
    let names = source.read("names", at, dynamic.strings_size, SYMBOLS).ok()?;
    let mut slots = HashMap::with_capacity(wanted.len());
    for entry in wanted {
        let Some(symbol) = symbols.get(entry.symbol as usize) else { continue };
        let name = names.get(symbol.st_name(headers.endian) as usize..).unwrap_or_default();
        let length = name.iter().take(NAME).position(|byte| *byte == 0).unwrap_or(0);
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        let vaddr: u64 = symbol.st_value(headers.endian).into();
        let is_defined = symbol.st_shndx(headers.endian) != elf::SHN_UNDEF && vaddr != 0;
        slots.insert(entry.place, (name, is_defined.then_some(vaddr)));
    }
    Some(slots)
}

impl Table {
    /// Bytes of the complete entries.
    fn whole(self, is_64: bool) -> u64 {
        let entry = match (is_64, self.addends) {
            (true, true) => size_of::<Rela64<Endianness>>(),
            (true, false) => size_of::<Rel64<Endianness>>(),
            (false, true) => size_of::<Rela32<Endianness>>(),
            (false, false) => size_of::<Rel32<Endianness>>(),
        };
        self.size / entry as u64 * entry as u64
    }
}

impl DynamicRelocations {
    /// Whether the dynamic linker writes to any of these addresses of code.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let at = self.code.partition_point(|written| written.end <= range.start);
        self.code.get(at).is_some_and(|written| written.start < range.end)
    }
}
