//! Symbol tables as they stand in a file.

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

/// Bytes of a symbol table: eleven million symbols. Chromium with debug information has one million.
const TABLE: u64 = 256 << 20;
/// Bytes of a string table.
const STRINGS: u64 = 1 << 30;
/// Names share the bytes of common endings, so all of them together may be longer than the table they stand in,
/// but not this many times. A file built to make each name a long one is damaged.
const SHARING: u64 = 16;

/// A symbol of an executable place.
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
    /// Data among the code (STT_OBJECT in an executable section).
    Data,
}

/// Reads the symbols of the table that `section` describes.
pub(crate) fn read_section(
    source: &Source,
    headers: &Headers,
    section: &Section,
    dynamic: Option<&Dynamic>,
) -> Result<Vec<Symbol>, ImageError> {
    let what = format!("symbol table {}", section.name);
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
    read_entries(source, headers, &what, section.offset, &table, &strings, &versions.unwrap_or_default())
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
        return Err(source.damaged("dynamic symbols", table, "no hash table says how many there are"));
    };
    let what = "dynamic symbols";
    let bytes = source.read(what, table, count.saturating_mul(entry_size(headers)), TABLE)?;
    let strings = source.read("dynamic strings", strings, dynamic.strings_size, STRINGS)?;
    let versions = Versions::read(source, headers, dynamic, &strings, count);
    read_entries(source, headers, what, table, &bytes, &strings, &versions)
}

fn entry_size(headers: &Headers) -> u64 {
    if headers.is_64 { size_of::<Sym64<Endianness>>() as u64 } else { size_of::<Sym32<Endianness>>() as u64 }
}

fn read_entries(
    source: &Source,
    headers: &Headers,
    what: &str,
    offset: u64,
    table: &[u8],
    strings: &[u8],
    versions: &Versions,
) -> Result<Vec<Symbol>, ImageError> {
    let whole = &table[..table.len() / entry_size(headers) as usize * entry_size(headers) as usize];
    let symbols = if headers.is_64 {
        read_class::<Sym64<Endianness>>(headers, whole, strings, versions)
    } else {
        read_class::<Sym32<Endianness>>(headers, whole, strings, versions)
    };
    symbols.map_err(|cause| source.damaged(what, offset, cause))
}

fn read_class<Entry: Sym<Endian = Endianness> + Pod>(
    headers: &Headers,
    table: &[u8],
    strings: &[u8],
    versions: &Versions,
) -> Result<Vec<Symbol>, String> {
    let endian = headers.endian;
    let entries = pod::slice_from_all_bytes::<Entry>(table).map_err(|()| "cut short".to_owned())?;
    let mut budget = strings.len() as u64 * SHARING + 4096;
    let mut symbols = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let Some(kind) = code_kind(headers, entry) else { continue };
        let at = entry.st_name(endian) as usize;
        // A name outside the string table leaves its symbol without one; the others are still good.
        let Some(name) = strings.get(at..).filter(|name| !name.is_empty()) else { continue };
        let window = &name[..name.len().min(budget as usize)];
        let Ok(name) = std::ffi::CStr::from_bytes_until_nul(window) else {
            return Err(match window.len() == name.len() {
                true => format!("the name of symbol {index} has no end"),
                false => "its names overlap so much that no linker can have written it".to_owned(),
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

/// What kind of code or data in code the symbol names; nothing if it is neither.
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
        // Marks like `etext` belong to a section they stand one byte after.
        Some(section) => (section.executable && section.contains(vaddr)).then_some(kind),
        // Beyond 65,279 sections, or without sections: the segments decide.
        None => (kind != SymbolKind::Data).then_some(kind),
    }
}
