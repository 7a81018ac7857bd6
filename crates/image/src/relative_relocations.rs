//! Reads the addresses that the dynamic linker writes into data, such as tables of pointers in
//! position-independent files.

use std::collections::HashMap;

use object::Endianness;
use object::elf::{self, Rela64};
use object::pod;

use super::headers::{Headers, Machine};
use super::source::Source;

/// The most bytes of all relocations of a file; Chromium has some 10 MiB.
const RELOCATIONS: u64 = 64 << 20;

/// The `R_X86_64_RELATIVE` relocations: for each place that is written, the address of the image
/// that is written there. Others name symbols; the other kinds of tables (REL, RELR) have the
/// address in the file's data itself.
pub(crate) fn relative(source: &Source, headers: &Headers) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    if headers.machine != Machine::X86_64 || !headers.is_64 {
        return found;
    }
    let tables = headers.sections.iter().filter(|section| section.kind == elf::SHT_RELA && section.allocated);
    let mut left = RELOCATIONS;
    for section in tables {
        let size =
            section.size / size_of::<Rela64<Endianness>>() as u64 * size_of::<Rela64<Endianness>>() as u64;
        let Ok(bytes) = source.read("relocations", section.offset, size, left) else { continue };
        left -= size;
        let Ok(entries) = pod::slice_from_all_bytes::<Rela64<Endianness>>(&bytes) else { continue };
        for entry in entries {
            if entry.r_type(headers.endian, false) == elf::R_X86_64_RELATIVE {
                let addend = entry.r_addend.get(headers.endian);
                found.insert(entry.r_offset.get(headers.endian), addend as u64);
            }
        }
    }
    found
}
