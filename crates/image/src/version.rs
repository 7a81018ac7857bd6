//! Reads symbol versions: which `memcpy` is `memcpy@@GLIBC_2.14`.

use object::Endianness;
use object::elf::{self, Verdaux, Verdef};
use object::pod;

use super::dynamic::Dynamic;
use super::headers::Headers;
use super::source::Source;

/// The most bytes of the table of definitions; glibc's has 2 KiB.
const DEFINITIONS: u64 = 1 << 20;
/// The most bytes of a version's name.
const NAME: usize = 256;

/// The version of a dynamic symbol's definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Such as `GLIBC_2.14`.
    pub name: String,
    /// Whether the linker picks this definition for a name without a version (`@@` rather than
    /// `@`).
    pub default: bool,
}

/// The versions of a dynamic symbol table.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// For each symbol, its version's index and the hidden bit.
    symbols: Vec<u8>,
    endian: Endianness,
    /// By index.
    names: Vec<Option<String>>,
}

impl Versions {
    /// Reads the versions of `count` symbols. A file without versions, or with damaged ones, has
    /// none: they only distinguish definitions of one name.
    pub(crate) fn read(
        source: &Source,
        headers: &Headers,
        dynamic: &Dynamic,
        strings: &[u8],
        count: u64,
    ) -> Versions {
        Self::try_read(source, headers, dynamic, strings, count).unwrap_or_default()
    }

    fn try_read(
        source: &Source,
        headers: &Headers,
        dynamic: &Dynamic,
        strings: &[u8],
        count: u64,
    ) -> Option<Versions> {
        let endian = headers.endian;
        let offset = headers.offset_of_address(dynamic.symbol_versions?)?;
        let size = count.checked_mul(2)?;
        let symbols = source.read("symbol versions", offset, size, size).ok()?;

        let vaddr = dynamic.version_definitions?;
        let segment = headers.segments.iter().find(|segment| segment.offset_of_address(vaddr).is_some())?;
        let size = (segment.file_end() - vaddr).min(DEFINITIONS);
        let definitions = source.read("versions", segment.offset_of_address(vaddr)?, size, size).ok()?;
        let mut names = Vec::new();
        let mut at = 0_usize;
        // An index has 15 bits, so more definitions than that are damage; each step goes forward.
        for _ in 0..dynamic.version_definition_count.min(0x8000) {
            let (definition, _) = pod::from_bytes::<Verdef<Endianness>>(definitions.get(at..)?).ok()?;
            let index = usize::from(definition.vd_ndx.get(endian).0 & elf::VERSYM_VERSION);
            let aux = at.checked_add(definition.vd_aux.get(endian) as usize)?;
            let (aux, _) = pod::from_bytes::<Verdaux<Endianness>>(definitions.get(aux..)?).ok()?;
            let name = strings.get(aux.vda_name.get(endian) as usize..)?;
            let name = &name[..name.len().min(NAME)];
            let name = &name[..name.iter().position(|byte| *byte == 0)?];
            if names.len() <= index {
                names.resize(index + 1, None);
            }
            // The base definition is the file's own name, not a version.
            if definition.vd_flags.get(endian).0 & elf::VER_FLG_BASE.0 == 0 {
                names[index] = Some(String::from_utf8_lossy(name).into_owned());
            }
            match definition.vd_next.get(endian) as usize {
                0 => break,
                next => at = at.checked_add(next)?,
            }
        }
        Some(Versions { symbols, endian, names })
    }

    /// The version of the symbol with this index in the table.
    pub(crate) fn of(&self, symbol: usize) -> Option<Version> {
        let bytes = self.symbols.get(symbol * 2..symbol * 2 + 2)?;
        let bytes = [bytes[0], bytes[1]];
        let raw = match self.endian {
            Endianness::Little => u16::from_le_bytes(bytes),
            Endianness::Big => u16::from_be_bytes(bytes),
        };
        let name = self.names.get(usize::from(raw & elf::VERSYM_VERSION))?.clone()?;
        Some(Version { name, default: raw & elf::VERSYM_HIDDEN.0 == 0 })
    }
}

/// Splits `memcpy@@GLIBC_2.14` and `memcpy@GLIBC_2.2.5`, as linkers write them into `.symtab` and
/// users type them.
pub(crate) fn split(name: &str) -> (&str, Option<Version>) {
    match name.split_once('@') {
        Some((base, version)) if !base.is_empty() && !version.is_empty() && version != "@" => {
            let default = version.starts_with('@');
            let name = version.trim_start_matches('@').to_owned();
            (base, Some(Version { name, default }))
        }
        _ => (name, None),
    }
}
