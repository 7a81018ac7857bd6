//! Reads the dynamic section, which the dynamic linker uses, and which remains if a file has lost
//! its section headers.

use object::elf::{self, Dyn32, Dyn64, FileHeader32, FileHeader64};
use object::pod;
use object::read::elf::{Dyn, GnuHashTable, HashTable};
use object::{Endianness, Pod};

use super::error::ImageError;
use super::headers::{Headers, Part};
use super::source::Source;

/// The most bytes of a dynamic section; real ones have some thirty entries of 16 bytes.
const DYNAMIC: u64 = 1 << 20;
/// The most bytes of a hash table that are read to count the symbols.
const HASH: u64 = 64 << 20;

/// The values of the entries that are used here, addresses before the load bias and sizes.
#[derive(Debug, Default)]
pub(crate) struct Dynamic {
    pub(crate) strings: Option<u64>,
    pub(crate) strings_size: u64,
    pub(crate) soname: Option<u64>,
    pub(crate) symbols: Option<u64>,
    pub(crate) symbol_versions: Option<u64>,
    pub(crate) version_definitions: Option<u64>,
    pub(crate) version_definition_count: u64,
    pub(crate) init: Option<u64>,
    pub(crate) fini: Option<u64>,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
    /// `DT_REL`, `DT_RELA` and `DT_JMPREL`; another entry (`DT_PLTREL`) says which format the last
    /// one has.
    rel: Table,
    rela: Table,
    plt: Table,
    /// `DT_RELR`.
    pub(crate) compact: Option<Table>,
}

/// A table of relocations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table {
    pub(crate) vaddr: u64,
    /// In bytes.
    pub(crate) size: u64,
    /// Whether its entries have an addend.
    pub(crate) addends: bool,
}

impl Dynamic {
    pub(crate) fn read(source: &Source, headers: &Headers) -> Result<Dynamic, ImageError> {
        match headers.dynamic {
            None => Ok(Dynamic::default()),
            Some(part) if headers.is_64 => read_class::<Dyn64<Endianness>>(source, headers.endian, part),
            Some(part) => read_class::<Dyn32<Endianness>>(source, headers.endian, part),
        }
    }

    /// The relocation tables that are not empty, without the compact one.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Table> {
        [self.rel, self.rela, self.plt].into_iter().filter(|table| table.vaddr != 0 && table.size > 0)
    }

    /// The number of symbols, from the hash tables, which end where the symbol table ends.
    pub(crate) fn symbol_count(&self, source: &Source, headers: &Headers) -> Option<u64> {
        if let Some(count) = self.hash.and_then(|vaddr| hash_count(source, headers, vaddr)) {
            return Some(count);
        }
        let vaddr = self.gnu_hash?;
        let segment = headers.segments.iter().find(|segment| segment.offset_of_address(vaddr).is_some())?;
        let size = (segment.file_end() - vaddr).min(HASH);
        let bytes = source.read("GNU hash table", segment.offset_of_address(vaddr)?, size, HASH).ok()?;
        let bytes = &bytes[..bytes.len() / 4 * 4];
        let count = if headers.is_64 {
            GnuHashTable::<FileHeader64<Endianness>>::parse(headers.endian, bytes)
                .ok()?
                .symbol_table_length(headers.endian)
        } else {
            GnuHashTable::<FileHeader32<Endianness>>::parse(headers.endian, bytes)
                .ok()?
                .symbol_table_length(headers.endian)
        };
        count.map(u64::from)
    }
}

fn hash_count(source: &Source, headers: &Headers, vaddr: u64) -> Option<u64> {
    let offset = headers.offset_of_address(vaddr)?;
    // The header alone has the number: the second word counts the chains, one for each symbol.
    let header = source.read("hash table", offset, 8, 8).ok()?;
    let (header, _) = pod::from_bytes::<elf::HashHeader<Endianness>>(&header).ok()?;
    let words = 2
        + u64::from(header.bucket_count.get(headers.endian))
        + u64::from(header.chain_count.get(headers.endian));
    let bytes = source.read("hash table", offset, words * 4, HASH).ok()?;
    let table = HashTable::<FileHeader64<Endianness>>::parse(headers.endian, &bytes).ok()?;
    Some(u64::from(table.symbol_table_length()))
}

fn read_class<Entry: Dyn<Endian = Endianness> + Pod>(
    source: &Source,
    endian: Endianness,
    part: Part,
) -> Result<Dynamic, ImageError> {
    let size = part.size / size_of::<Entry>() as u64 * size_of::<Entry>() as u64;
    let bytes = source.read("dynamic section", part.offset, size, DYNAMIC)?;
    let entries = pod::slice_from_all_bytes::<Entry>(&bytes)
        .map_err(|()| source.damaged("dynamic section", part.offset, "cut short"))?;
    let mut dynamic = Dynamic::default();
    dynamic.rela.addends = true;
    let mut compact = Table::default();
    for entry in entries {
        let value = entry.val(endian);
        match entry.tag(endian) {
            elf::DT_NULL => break,
            elf::DT_STRTAB => dynamic.strings = Some(value),
            elf::DT_STRSZ => dynamic.strings_size = value,
            elf::DT_SONAME => dynamic.soname = Some(value),
            elf::DT_SYMTAB => dynamic.symbols = Some(value),
            elf::DT_VERSYM => dynamic.symbol_versions = Some(value),
            elf::DT_VERDEF => dynamic.version_definitions = Some(value),
            elf::DT_VERDEFNUM => dynamic.version_definition_count = value,
            elf::DT_INIT => dynamic.init = Some(value),
            elf::DT_FINI => dynamic.fini = Some(value),
            elf::DT_HASH => dynamic.hash = Some(value),
            elf::DT_GNU_HASH => dynamic.gnu_hash = Some(value),
            elf::DT_REL => dynamic.rel.vaddr = value,
            elf::DT_RELSZ => dynamic.rel.size = value,
            elf::DT_RELA => dynamic.rela.vaddr = value,
            elf::DT_RELASZ => dynamic.rela.size = value,
            elf::DT_JMPREL => dynamic.plt.vaddr = value,
            elf::DT_PLTRELSZ => dynamic.plt.size = value,
            elf::DT_PLTREL => dynamic.plt.addends = value == elf::DT_RELA.0 as u64,
            elf::DT_RELR => compact.vaddr = value,
            elf::DT_RELRSZ => compact.size = value,
            _ => {}
        }
    }
    dynamic.compact = (compact.vaddr != 0).then_some(compact);
    Ok(dynamic)
}
