//! Static probes (USDT): those that a program's author placed, as SystemTap's `sys/sdt.h` does.
//!
//! A static probe is a `nop` in the code and a note about it, which the program itself never reads.
//! Notes are in the section `.note.stapsdt`. It is not loaded, so no program header tells where it
//! is: a file without section headers has no static probes, unless its linker made the notes a
//! loaded part (`PT_NOTE`), which is searched then.
//!
//! ```text
//! note:  4 bytes name size (8) | 4 bytes size of the rest | 4 bytes type (3) | "stapsdt\0"
//! rest:  word address of the probe | word address of .stapsdt.base | word address of the semaphore
//!        provider \0 name \0 arguments \0            a word has 4 or 8 bytes, by the file's class
//! ```
//!
//! Addresses are those at link time. If something moved the code later (prelink), the section
//! `.stapsdt.base` moved as far, and the note's copy of its address tells how far. The semaphore is
//! a 16-bit counter of those who trace; 0 in the note means that there is none.

mod argument;

use std::cell::OnceCell;
use std::collections::HashMap;

use object::Endianness;
use object::elf;

use super::headers::{Machine, Part};
use super::image::Image;
use super::table::{self, SymbolKind};

pub use self::argument::{Argument, ArgumentPlace, ArgumentRegister};

/// The section with the notes.
const SECTION: &str = ".note.stapsdt";
/// The section that moves with the code.
const BASE: &str = ".stapsdt.base";
/// The most bytes of notes. PostgreSQL, with more probes than most, has 10 KiB.
const NOTES: u64 = 4 << 20;
/// The most bytes of a provider's or probe's name.
const NAME: usize = 256;
/// The most bytes of all arguments of a probe.
const ARGUMENTS: usize = 4096;

/// A static probe: one place in the code. Several may have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    /// The provider's name, usually the program's.
    pub provider: String,
    /// The probe's name.
    pub name: String,
    /// The address of its instruction.
    pub vaddr: u64,
    /// The address of its semaphore, if it has one: two bytes of the program's data.
    pub semaphore: Option<u64>,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

/// The static probes of a file, in the order of their notes. What is damaged is left out.
pub(super) fn static_probes(image: &Image) -> Vec<StaticProbe> {
    let symbols = Symbols { image, found: OnceCell::new() };
    let moved = image.headers.section(BASE).map(|section| section.vaddr);
    let mut left = NOTES;
    let mut probes = Vec::new();
    for part in note_areas(image) {
        let size = part.size.min(image.source.len().saturating_sub(part.offset)).min(left);
        left -= size;
        let Ok(bytes) = image.source.read("notes", part.offset, size, NOTES) else { continue };
        let mut notes = Bytes { rest: &bytes, endian: image.headers.endian };
        while let Some(note) = notes.note() {
            probes.extend(note.and_then(|note| probe(image, note, moved, &symbols)));
        }
    }
    probes
}

/// Where notes are.
fn note_areas(image: &Image) -> Vec<Part> {
    let named = |section: &&super::headers::Section| section.name == SECTION && section.kind == elf::SHT_NOTE;
    let sections = image.headers.sections.iter().filter(named);
    let sections: Vec<Part> = sections
        .map(|section| Part { vaddr: section.vaddr, offset: section.offset, size: section.size, align: 4 })
        .collect();
    if sections.is_empty() { image.headers.notes.clone() } else { sections }
}

/// A note's description as a probe.
fn probe(
    image: &Image,
    mut note: Bytes<'_>,
    moved: Option<u64>,
    symbols: &Symbols<'_>,
) -> Option<StaticProbe> {
    let is_64 = image.headers.is_64;
    let (vaddr, base, semaphore) = (note.word(is_64)?, note.word(is_64)?, note.word(is_64)?);
    let (provider, name) = (note.text(NAME)?, note.text(NAME)?);
    // Old ones have no arguments at all.
    let arguments = note.text(ARGUMENTS).unwrap_or_default();
    let distance = moved.filter(|_| base != 0).map_or(0, |moved| moved.wrapping_sub(base));
    let mask = if is_64 { u64::MAX } else { u64::from(u32::MAX) };
    let place = |address: u64| address.wrapping_add(distance) & mask;
    let vaddr = place(vaddr);
    if provider.is_empty() || name.is_empty() {
        return None;
    }
    let context = argument::Context {
        long: image.headers.machine == Machine::X86_64,
        vaddr,
        symbol: &|name| symbols.address(name),
    };
    Some(StaticProbe {
        arguments: argument::parse(&arguments, &context),
        provider,
        name,
        vaddr,
        semaphore: (semaphore != 0).then(|| place(semaphore)),
    })
}

/// The variables of a file, which arguments may name.
struct Symbols<'a> {
    image: &'a Image,
    found: OnceCell<HashMap<String, Option<u64>>>,
}

impl Symbols<'_> {
    /// The address of a variable; `None` if there is none of this name, or several.
    fn address(&self, name: &str) -> Option<u64> {
        let found = self.found.get_or_init(|| {
            let mut found: HashMap<String, Option<u64>> = HashMap::new();
            let all = table::data(&self.image.source, &self.image.headers);
            for symbol in all.filter(|symbol| symbol.kind == SymbolKind::Data) {
                let known = found.entry(symbol.name).or_insert(Some(symbol.vaddr));
                *known = known.filter(|vaddr| *vaddr == symbol.vaddr);
            }
            found
        });
        found.get(name).copied().flatten()
    }
}

/// Bytes that are read from their start.
struct Bytes<'a> {
    rest: &'a [u8],
    endian: Endianness,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut word = [0; 8];
        let taken = self.take(bytes)?;
        match self.endian {
            Endianness::Little => word[..bytes].copy_from_slice(taken),
            Endianness::Big => {
                word[..bytes].iter_mut().zip(taken.iter().rev()).for_each(|(to, from)| *to = *from)
            }
        }
        Some(u64::from_le_bytes(word))
    }

    fn word(&mut self, is_64: bool) -> Option<u64> {
        self.number(if is_64 { 8 } else { 4 })
    }

    /// A part of a note, which is filled up to a multiple of 4 bytes.
    fn part(&mut self, size: u64) -> Option<&'a [u8]> {
        let size = usize::try_from(size).ok()?;
        let part = self.take(size)?;
        // The last note may end early.
        let padding = (size.next_multiple_of(4) - size).min(self.rest.len());
        self.take(padding)?;
        Some(part)
    }

    /// The next note: its description if it is one of a static probe. Each call goes forward.
    fn note(&mut self) -> Option<Option<Bytes<'a>>> {
        let (name, size, kind) = (self.number(4)?, self.number(4)?, self.number(4)?);
        let name = self.part(name)?;
        let rest = self.part(size)?;
        let is_probe = name == b"stapsdt\0" && kind == 3;
        Some(is_probe.then_some(Bytes { rest, endian: self.endian }))
    }

    /// A text up to its NUL; `None` if it has none, or is too long.
    fn text(&mut self, limit: usize) -> Option<String> {
        let size = self.rest.iter().take(limit).position(|byte| *byte == 0)?;
        let text = String::from_utf8_lossy(self.take(size)?).into_owned();
        self.take(1)?;
        Some(text)
    }
}
