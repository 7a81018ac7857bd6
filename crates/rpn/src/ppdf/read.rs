//! The reader: header and section table. `program` reads the individual sections.

use vm::Word;

use super::bytes::Cursor;
use super::error::Damaged;
use super::format::{CHECKSUM, HEADER, MAGIC, MAX_FILE_BYTES, MAX_SECTIONS, Ppdf, ROW, VERSION, checksum};
use super::places::Places;
use super::program::{self, Section};
use super::tag::{Tag, section};
use crate::arch::Arch;

/// Reads a PPDF.
///
/// # Errors
///
/// Returns [`Damaged`] for the first wrong place if the file is not a PPDF, has another version, is
/// truncated, or is damaged.
pub fn read(file: &[u8]) -> Result<Ppdf, Damaged> {
    let header = Header::read(file)?;
    let mut sections = sections(file, header.sections)?;
    let mut optional = |tag: Tag| {
        let found = sections.iter().position(|section| section.tag == tag)?;
        Some(sections.remove(found))
    };
    let mut find = |tag: Tag| {
        let missing = || {
            let table = Cursor::new(&[], HEADER);
            table.wrong("the section table", "none", format!("a section {tag}"))
        };
        optional(tag).ok_or_else(missing)
    };

    let mut object = program::header(find(section::HEAD)?, header.arch)?;
    object.groups = program::names(find(section::GROUPS)?)?;
    object.types = program::names(find(section::TYPES)?)?;
    object.code = find(section::CODE)?.content.all().to_vec();
    let code = object.code.len();
    object.procs = program::procedures(find(section::PROCEDURES)?, code)?;
    object.symbols = program::symbols(find(section::SYMBOLS)?, code, header.arch.word())?;
    let probes = find(section::PROBES)?;
    object.file = optional(section::FILE).map(program::file).transpose()?;
    object.fields = optional(section::FIELDS).map(program::names).transpose()?.unwrap_or_default();
    object.probes = program::probes(probes, &object)?;
    if let Some(lines) = optional(section::LINES) {
        object.lines = program::lines(lines, code)?;
    }
    let mut places = Places::default();
    if let Some(sources) = optional(section::SOURCES) {
        program::sources(sources, &mut places)?;
    }
    if let Some(positions) = optional(section::POSITIONS) {
        program::positions(positions, &mut places)?;
    }
    match sections.iter().find(|section| section.tag.is_required()) {
        None => Ok(Ppdf { object, places }),
        Some(unknown) => Err(unknown.content.wrong(
            "the section table",
            format!("a section {}", unknown.tag),
            "sections that this version of dprobes knows",
        )),
    }
}

/// The contents of the header, which [`Header::read`] has checked against the whole file.
struct Header {
    sections: u32,
    arch: Arch,
}

impl Header {
    fn read(file: &[u8]) -> Result<Header, Damaged> {
        let mut cursor = Cursor::new(file, 0);
        let here = cursor;
        let found = || match file.is_empty() {
            true => "an empty file".to_owned(),
            false => shown(&file[..file.len().min(MAGIC.len())]),
        };
        if !file.starts_with(&MAGIC) {
            return Err(here.wrong("the magic number", found(), shown(&MAGIC)));
        }
        cursor.take(MAGIC.len(), "the magic number")?;
        let here = cursor;
        let (version, revision) = (cursor.u16("the version")?, cursor.u16("the revision")?);
        if version != VERSION {
            let found = format!("version {version}.{revision}");
            let expected = format!("version {VERSION}");
            return Err(here.wrong("the version", found, expected));
        }
        let sections = cursor.up_to(MAX_SECTIONS as u32, "the number of sections")?;
        let here = cursor;
        let length = cursor.index("the length")?;
        if length != file.len() || length > MAX_FILE_BYTES {
            let expected = match length > MAX_FILE_BYTES {
                true => format!("at most {MAX_FILE_BYTES} bytes"),
                false => format!("{length} bytes (from the header)"),
            };
            return Err(here.wrong("the length of the file", format!("{} bytes", file.len()), expected));
        }
        let here = cursor;
        debug_assert_eq!(here.offset(), CHECKSUM.start);
        let stored = cursor.u32("the checksum")?;
        // Read the rest of the header first: the checksum needs a complete one.
        let at_machine = cursor;
        let machine = cursor.u16("the machine")?;
        let at_word = cursor;
        let word = cursor.u8("the word")?;
        let zeros = cursor;
        let rest = cursor.take(HEADER - cursor.offset(), "the header")?.all();
        let computed = checksum(file);
        if computed != stored {
            let expected = format!("{stored:#010x} (from the header)");
            return Err(here.wrong("the checksum", format!("{computed:#010x}"), expected));
        }
        let word = match word {
            4 => Word::W4,
            8 => Word::W8,
            other => return Err(at_word.wrong("the word", super::bytes::bytes(other.into()), "4 or 8")),
        };
        if rest.iter().any(|byte| *byte != 0) {
            return Err(zeros.wrong("the header", shown(rest), "zeros"));
        }
        let arch = Arch::of_elf(machine, word).ok_or_else(|| {
            at_machine.wrong(
                "the machine",
                format!("e_machine {machine} with words of {} bytes", word.bytes()),
                "a machine that this version of dprobes knows",
            )
        })?;
        Ok(Header { sections, arch })
    }
}

/// Reads the section table. Every byte of the file is in a section, or a zero between two.
fn sections(file: &[u8], count: u32) -> Result<Vec<Section<'_>>, Damaged> {
    let mut table = Cursor::new(&file[HEADER..], HEADER);
    let mut rows = table.take(count as usize * ROW, "the section table")?;
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut end = table.offset();
    while rows.len() > 0 {
        let here = rows;
        let tag = rows.tag("the section table")?;
        let what = format!("the section table, {tag}");
        let (offset, length, count) = (rows.index(&what)?, rows.index(&what)?, rows.u32(&what)?);
        let expected = end.next_multiple_of(ROW);
        if offset != expected {
            return Err(here.wrong(what, format!("offset {offset:#x}"), format!("offset {expected:#x}")));
        }
        if sections.iter().any(|section| section.tag == tag) {
            return Err(here.wrong(what, "a second one", "one"));
        }
        let mut rest = Cursor::new(&file[end..], end);
        zeros(&mut rest, offset - end)?;
        let content = rest.take(length, &what)?;
        end = rest.offset();
        sections.push(Section { tag, content, count });
    }
    Cursor::new(&file[end..], end).end("after the last section")?;
    Ok(sections)
}

/// Skips zeros between sections.
fn zeros(cursor: &mut Cursor<'_>, length: usize) -> Result<(), Damaged> {
    let here = *cursor;
    let gap = cursor.take(length, "between sections")?.all();
    match gap.iter().any(|byte| *byte != 0) {
        false => Ok(()),
        true => Err(here.wrong("between sections", shown(gap), "zeros")),
    }
}

/// Bytes as a hex dump shows them.
fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
