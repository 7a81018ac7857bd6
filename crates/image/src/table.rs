//! Reads symbol tables.

use object::elf::{self, Sym32, Sym64};
use object::pod;
use object::read::elf::Sym;
use object::{Endianness, Pod};

use super::dynamic::Dynamic;
use super::error::ImageError;
use super::functions::{Binding, FunctionKind};
use super::headers::{Headers, Section};
use super::source::Source;
use super::version::{self, Version, Versions};

/// The most bytes of a symbol table: eleven million symbols. Chromium with debug information has
/// one million.
const TABLE: u64 = 256 << 20;
/// The most bytes of a string table.
const STRINGS: u64 = 1 << 30;
/// Names can share common endings, so all together may be longer than the string table, but not
/// this many times. A file that exceeds it is damaged.
const SHARING: u64 = 16;

/// A symbol in executable memory.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) version: Option<Version>,
    pub(crate) vaddr: u64,
    pub(crate) size: u64,
    pub(crate) kind: SymbolKind,
    pub(crate) binding: Binding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Code(FunctionKind),
    /// Data. Only data among the code (STT_OBJECT in an executable section) is read with code.
    Data,
    /// Data of each thread: its address is an offset in the thread's block.
    ThreadLocal,
}

/// Which symbols are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Functions, labels and data in code.
    Code,
    /// Data, wherever it is.
    Data,
    /// Functions of other modules.
    Imported,
}

/// Reads the symbols of the table that `section` describes.
pub(crate) fn read_section(
    source: &Source,
    headers: &Headers,
    section: &Section,
    dynamic: Option<&Dynamic>,
) -> Result<Vec<Symbol>, ImageError> {
    read_wanted(source, headers, section, dynamic, Wanted::Code)
}

/// The data in the tables with section headers. Damage is ignored here; reading the functions
/// reports it.
pub(crate) fn data(source: &Source, headers: &Headers) -> impl Iterator<Item = Symbol> {
    let tables = [elf::SHT_SYMTAB, elf::SHT_DYNSYM].into_iter().filter_map(|kind| headers.section_of(kind));
    tables.flat_map(|section| read_wanted(source, headers, section, None, Wanted::Data)).flatten()
}

/// The functions that the file calls in other modules, by its dynamic symbols. Damage is ignored.
pub(crate) fn imported(source: &Source, headers: &Headers) -> impl Iterator<Item = Symbol> {
    let table = headers.section_of(elf::SHT_DYNSYM).into_iter();
    table.flat_map(|section| read_wanted(source, headers, section, None, Wanted::Imported)).flatten()
}

fn read_wanted(
    source: &Source,
    headers: &Headers,
    section: &Section,
    dynamic: Option<&Dynamic>,
    wanted: Wanted,
) -> Result<Vec<Symbol>, ImageError> {
    let what = format!("symbol table {}", printable::text(&section.name));
    let strings = headers.sections.get(section.link as usize).ok_or_else(|| {
        source.damaged(
            &what,
            section.offset,
            format!("its string table, section {}, is missing", section.link),
        )
    })?;
    let table = source.read(&what, section.offset, section.size, TABLE)?;
    let strings = source.read("string table", strings.offset, strings.size, STRINGS)?;
    let count = section.size / entry_size(headers);
    let versions = dynamic.map(|dynamic| Versions::read(source, headers, dynamic, &strings, count));
    let versions = versions.unwrap_or_default();
    let symbols = read_entries(headers, &table, &strings, &versions, wanted);
    symbols.map_err(|cause| source.damaged(&what, section.offset, cause.to_string()))
}

/// Reads the dynamic symbols of a file without section headers.
pub(crate) fn read_dynamic(
    source: &Source,
    headers: &Headers,
    dynamic: &Dynamic,
) -> Result<Vec<Symbol>, ImageError> {
    let offset = |vaddr: Option<u64>| vaddr.and_then(|vaddr| headers.offset_of_address(vaddr));
    let (Some(table), Some(strings)) = (offset(dynamic.symbols), offset(dynamic.strings)) else {
        return Ok(Vec::new());
    };
    let Some(count) = dynamic.symbol_count(source, headers) else {
        return Err(source.damaged("dynamic symbols", table, "their number is unknown without a hash table"));
    };
    let what = "dynamic symbols";
    let bytes = source.read(what, table, count.saturating_mul(entry_size(headers)), TABLE)?;
    let strings = source.read("dynamic strings", strings, dynamic.strings_size, STRINGS)?;
    let versions = Versions::read(source, headers, dynamic, &strings, count);
    let symbols = read_entries(headers, &bytes, &strings, &versions, Wanted::Code);
    symbols.map_err(|cause| source.damaged(what, table, cause.to_string()))
}

/// Why a symbol table cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum BadTable {
    #[error("cut short")]
    CutShort,
    /// With the index of the symbol.
    #[error("the name of symbol {0} has no terminating NUL")]
    OpenName(usize),
    #[error("its names overlap so much that no linker can have written it")]
    Overlapping,
}

fn entry_size(headers: &Headers) -> u64 {
    if headers.is_64 { size_of::<Sym64<Endianness>>() as u64 } else { size_of::<Sym32<Endianness>>() as u64 }
}

fn read_entries(
    headers: &Headers,
    table: &[u8],
    strings: &[u8],
    versions: &Versions,
    wanted: Wanted,
) -> Result<Vec<Symbol>, BadTable> {
    let whole = &table[..table.len() / entry_size(headers) as usize * entry_size(headers) as usize];
    if headers.is_64 {
        read_class::<Sym64<Endianness>>(headers, whole, strings, versions, wanted)
    } else {
        read_class::<Sym32<Endianness>>(headers, whole, strings, versions, wanted)
    }
}

fn read_class<Entry: Sym<Endian = Endianness> + Pod>(
    headers: &Headers,
    table: &[u8],
    strings: &[u8],
    versions: &Versions,
    wanted: Wanted,
) -> Result<Vec<Symbol>, BadTable> {
    let endian = headers.endian;
    let entries = pod::slice_from_all_bytes::<Entry>(table).map_err(|()| BadTable::CutShort)?;
    let mut budget = strings.len() as u64 * SHARING + 4096;
    let mut symbols = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let kind = match wanted {
            Wanted::Code => code_kind(headers, entry),
            Wanted::Data => is_data(headers, entry).then_some(match entry.st_type() {
                elf::STT_TLS => SymbolKind::ThreadLocal,
                _ => SymbolKind::Data,
            }),
            Wanted::Imported => (entry.st_shndx(endian) == elf::SHN_UNDEF
                && entry.st_type() == elf::STT_FUNC)
                .then_some(SymbolKind::Code(FunctionKind::Function)),
        };
        let Some(kind) = kind else { continue };
        let at = entry.st_name(endian) as usize;
        // A symbol whose name is outside of the string table is left out; the others are still
        // valid.
        let Some(name) = strings.get(at..).filter(|name| !name.is_empty()) else { continue };
        let window = &name[..name.len().min(budget as usize)];
        let Ok(name) = std::ffi::CStr::from_bytes_until_nul(window) else {
            return Err(match window.len() == name.len() {
                true => BadTable::OpenName(index),
                false => BadTable::Overlapping,
            });
        };
        budget -= name.count_bytes() as u64;
        let name = name.to_string_lossy();
        let (base, version) = version::split(&name);
        if base.is_empty() {
            continue;
        }
        symbols.push(Symbol {
            name: base.to_owned(),
            version: version.or_else(|| versions.of(index)),
            vaddr: entry.st_value(endian).into(),
            size: entry.st_size(endian).into(),
            kind,
            binding: match entry.st_bind() {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            },
        });
    }
    Ok(symbols)
}

/// Whether the symbol names data: it is declared an object, or is untyped in a section without
/// code.
fn is_data<Entry: Sym<Endian = Endianness>>(headers: &Headers, entry: &Entry) -> bool {
    let kind = entry.st_type();
    let section = headers.sections.get(usize::from(entry.st_shndx(headers.endian).0));
    section.is_some_and(|section| section.allocated)
        && match kind {
            elf::STT_OBJECT | elf::STT_TLS | elf::STT_COMMON => true,
            elf::STT_NOTYPE => section.is_some_and(|section| !section.executable),
            _ => false,
        }
}

/// The kind of function, label or data in code that the symbol names; `None` if it is something
/// else.
fn code_kind<Entry: Sym<Endian = Endianness>>(headers: &Headers, entry: &Entry) -> Option<SymbolKind> {
    let kind = match entry.st_type() {
        elf::STT_FUNC => SymbolKind::Code(FunctionKind::Function),
        elf::STT_GNU_IFUNC => SymbolKind::Code(FunctionKind::Indirect),
        elf::STT_NOTYPE => SymbolKind::Code(FunctionKind::Label),
        elf::STT_OBJECT => SymbolKind::Data,
        _ => return None,
    };
    let section = entry.st_shndx(headers.endian);
    if section == elf::SHN_UNDEF || section == elf::SHN_ABS || section == elf::SHN_COMMON {
        return None;
    }
    let vaddr: u64 = entry.st_value(headers.endian).into();
    match headers.sections.get(usize::from(section.0)) {
        // Marks like `etext` are one byte past the end of their section.
        Some(section) => (section.executable && section.contains(vaddr)).then_some(kind),
        // With more than 65,279 sections, or without sections, the caller checks the segments.
        None => (kind != SymbolKind::Data).then_some(kind),
    }
}
