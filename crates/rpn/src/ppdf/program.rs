//! Reads and checks the individual sections.

use source::{Position, SourceId, Span, quote};
use vm::Word;

use super::bytes::{Cursor, Fields};
use super::error::Damaged;
use super::places::{Places, Source};
use super::tag::{Tag, head, probe};
use crate::arch::Arch;
use crate::object::{
    Access, FunctionPoint, Location, ModuleFile, ModuleKind, Object, Probe, Proc, Site, SymbolUse, Watch,
};
use crate::tracepoint::split;

/// The largest major or minor code.
const CODES: u32 = 0xffff;
/// Maximum length of an instruction in bytes.
const INSTRUCTION: usize = 15;
/// Maximum length of a build-id in bytes.
const BUILD_ID: usize = 1024;
/// In place of the including source: not included.
pub(super) const NOT_INCLUDED: u32 = u32::MAX;

/// A section found in the table.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) tag: Tag,
    pub(super) content: Cursor<'a>,
    /// Number of records, or the size in bytes if the section has no records.
    pub(super) count: u32,
}

impl<'a> Section<'a> {
    /// Reads as many records as the table says; they must end at the section's end.
    fn records<T>(
        self,
        name: &str,
        mut read: impl FnMut(&mut Cursor<'a>, &str) -> Result<T, Damaged>,
    ) -> Result<Vec<T>, Damaged> {
        let mut cursor = self.content;
        // No capacity is reserved: the count is untrusted.
        let mut records = Vec::new();
        for number in 0..self.count {
            records.push(read(&mut cursor, &format!("section {}, {name} {number}", self.tag))?);
        }
        cursor.end(&format!("section {}", self.tag))?;
        Ok(records)
    }
}

/// Reads `HEAD`.
pub(super) fn header(section: Section<'_>, arch: Arch) -> Result<Object, Damaged> {
    let mut fields = Fields::read(section.content, format!("section {}", section.tag))?;
    let kinds = [ModuleKind::User, ModuleKind::Kernel, ModuleKind::KernelModule];
    let object = Object {
        arch,
        module: fields.get(head::NAME, |value, what| value.text(what))?,
        kind: fields.get(head::MODTYPE, |value, what| value.one_of(&kinds, what))?,
        vars: fields.get(head::VARS, |value, what| value.u16(what))?,
        gvars: fields.get(head::GVARS, |value, what| value.u16(what))?,
        major: fields.get(head::MAJOR, |value, what| value.up_to(CODES, what))?,
        id: fields.get(head::ID, |value, what| value.u32(what))?,
        logmax: fields.get(head::LOGMAX, |value, what| value.up_to(vm::LOG_LIMIT as u32, what))? as usize,
        jmpmax: fields.get(head::JMPMAX, |value, what| value.up_to(vm::JUMP_LIMIT, what))?,
        insmax: fields
            .find(head::INSMAX, |value, what| value.up_to(vm::INSTRUCTION_LIMIT, what))?
            .unwrap_or(vm::INSTRUCTIONS),
        excpt_log: fields.get(head::EXCPT_LOG, |value, what| value.up_to(vm::LOG_LIMIT as u32, what))?
            as usize,
        autostacktrace: fields.get(head::AUTOSTACKTRACE, |value, what| value.flag(what))?,
        heapmax: fields.get(head::HEAPMAX, |value, what| value.up_to(vm::HEAP_LIMIT as u32, what))? as usize,
        ..Object::default()
    };
    fields.end()?;
    Ok(object)
}

/// Reads `GRPS`, `TYPS` or `FLDS`.
pub(super) fn names(section: Section<'_>) -> Result<Vec<String>, Damaged> {
    if section.count > crate::check::MAX_NAMES as u32 {
        let expected = format!("at most {}", crate::check::MAX_NAMES);
        return Err(section.content.wrong(
            format!("section {}", section.tag),
            format!("{} names", section.count),
            expected,
        ));
    }
    section.records("name", |cursor, what| cursor.string(what))
}

/// Reads `FILE`.
pub(super) fn file(section: Section<'_>) -> Result<ModuleFile, Damaged> {
    let what = format!("section {}", section.tag);
    let mut cursor = section.content;
    let size = cursor.u64(&what)?;
    let here = cursor;
    let length = cursor.index(&what)?;
    if length > BUILD_ID {
        return Err(here.wrong(
            what,
            format!("{length} bytes"),
            format!("a build-id of at most {BUILD_ID} bytes"),
        ));
    }
    let build_id = cursor.take(length, &what)?.all().to_vec();
    let path = cursor.string(&what)?;
    cursor.end(&what)?;
    Ok(ModuleFile { path, build_id, size })
}

/// Reads `PROC`.
pub(super) fn procedures(section: Section<'_>, code: usize) -> Result<Vec<Proc>, Damaged> {
    section.records("procedure", |cursor, what| {
        let (entry, end) = range(cursor, code, what)?;
        Ok(Proc { entry, end, name: cursor.string(what)? })
    })
}

/// Reads `SYMB`.
pub(super) fn symbols(section: Section<'_>, code: usize, word: Word) -> Result<Vec<SymbolUse>, Damaged> {
    section.records("symbol", |cursor, what| {
        let here = *cursor;
        let offset = cursor.index(what)?;
        if code.checked_sub(word.bytes()).is_none_or(|last| offset > last) {
            return Err(here.wrong(
                what,
                format!("offset {offset}"),
                format!("a word in {code} bytes of code"),
            ));
        }
        let addend = cursor.i64(what)?;
        Ok(SymbolUse { offset, addend, name: cursor.string(what)? })
    })
}

/// Reads `PROB`; `object` must already have its groups, types, file and code.
pub(super) fn probes(section: Section<'_>, object: &Object) -> Result<Vec<Probe>, Damaged> {
    section.records("probe", |cursor, what| {
        let length = cursor.index(what)?;
        let record = cursor.take(length, what)?;
        probe_record(Fields::read(record, what.to_owned())?, object)
    })
}

fn probe_record(mut fields: Fields<'_>, object: &Object) -> Result<Probe, Damaged> {
    let member = |names: &[String], value: &mut Cursor<'_>, what: &str| {
        let here = *value;
        let place = value.index(what)?;
        let name = names.get(place).cloned();
        name.ok_or_else(|| here.wrong(what, place.to_string(), format!("less than {}", names.len())))
    };
    let location = location(&mut fields)?;
    let sites = sites_of(&location, &mut fields, object.file.is_some())?;
    let probe = Probe {
        location,
        point: fields.get(probe::POINT, |value, what| value.text(what))?,
        watch: fields.find(probe::WATCH, watch)?,
        opcode: fields.find(probe::OPCODE, |value, what| value.up_to(object.arch.largest_opcode(), what))?,
        minor: fields.get(probe::MINOR, |value, what| value.up_to(CODES, what))?,
        group: fields.find(probe::GROUP, |value, what| member(&object.groups, value, what))?,
        kind: fields.find(probe::TYPE, |value, what| member(&object.types, value, what))?,
        ignore: fields.get(probe::IGNORE, |value, what| value.u64(what))?,
        maxhits: fields.get(probe::MAXHITS, |value, what| value.u64(what))?,
        logonfault: fields.get(probe::LOGONFAULT, |value, what| value.flag(what))?,
        mask: fields.get(probe::MASK, |value, what| value.u16(what))?,
        heap: fields.get(probe::HEAP, |value, what| value.up_to(object.heapmax as u32, what))? as usize,
        entry: 0,
        end: 0,
        span: fields.find(probe::SPAN, span)?.unwrap_or_default(),
        sites,
    };
    let (entry, end) = fields.get(probe::HANDLER, |value, what| range(value, object.code.len(), what))?;
    fields.end()?;
    Ok(Probe { entry, end, ..probe })
}

/// The sites of a probe: at most one, or those of a function's points.
fn sites_of(location: &Location, fields: &mut Fields<'_>, has_file: bool) -> Result<Vec<Site>, Damaged> {
    if let Location::Points { .. } = location {
        let found = fields.find(probe::SITES, |value, what| sites(value, has_file, what))?;
        return Ok(found.unwrap_or_default());
    }
    Ok(fields.find(probe::SITE, |value, what| site(value, has_file, what))?.into_iter().collect())
}

/// Reads the location of a probe, one of six fields.
fn location(fields: &mut Fields<'_>) -> Result<Location, Damaged> {
    let number = |value: &mut Cursor<'_>, what: &str| value.u64(what);
    let symbol = |value: &mut Cursor<'_>, what: &str| Ok((value.i64(what)?, value.text(what)?));
    let found = if let Some(offset) = fields.find(probe::OFFSET, number)? {
        Location::Offset(offset)
    } else if let Some(address) = fields.find(probe::ADDRESS, number)? {
        Location::Address(address)
    } else if let Some((addend, name)) = fields.find(probe::ADDRESS_SYMBOL, symbol)? {
        Location::AddressSymbol { name, addend }
    } else if let Some((point, function)) = fields.find(probe::POINTS, points)? {
        Location::Points { function, point }
    } else if let Some(location) = fields.find(probe::TRACEPOINT, tracepoint)? {
        location
    } else {
        let (addend, name) = fields.get(probe::SYMBOL, symbol)?;
        Location::Symbol { name, addend }
    };
    // A second location field would be left over, and is refused at the end, since its tag is
    // required.
    Ok(found)
}

fn tracepoint(value: &mut Cursor<'_>, what: &str) -> Result<Location, Damaged> {
    let here = *value;
    let text = value.text(what)?;
    let (system, name) = split(&text).ok_or_else(|| here.wrong(what, quote(&text), "`SYSTEM:NAME`"))?;
    Ok(Location::Tracepoint { system: system.to_owned(), name: name.to_owned() })
}

fn points(value: &mut Cursor<'_>, what: &str) -> Result<(FunctionPoint, String), Damaged> {
    let here = *value;
    let (kind, offset) = (value.u8(what)?, value.u64(what)?);
    let point = match (kind, offset) {
        (0, 0) => FunctionPoint::Entry,
        (1, 0) => FunctionPoint::Return,
        (2, offset) => FunctionPoint::Offset(offset),
        (3, 0) => FunctionPoint::Each,
        _ => return Err(here.wrong(what, format!("point {kind} with offset {offset:#x}"), "a point")),
    };
    Ok((point, value.text(what)?))
}

fn sites(value: &mut Cursor<'_>, has_file: bool, what: &str) -> Result<Vec<Site>, Damaged> {
    if !has_file {
        return Err(value.wrong(what, "sites and no section `FILE`", "both or none"));
    }
    // No capacity is reserved: a site has about thirty bytes.
    let mut sites = Vec::new();
    while value.len() > 0 {
        let (offset, vaddr) = (value.u64(what)?, value.u64(what)?);
        let here = *value;
        let length = usize::from(value.u8(what)?);
        if !(1..=INSTRUCTION).contains(&length) {
            let found = super::bytes::bytes(length);
            return Err(here.wrong(what, found, format!("an instruction of 1 to {INSTRUCTION} bytes")));
        }
        let bytes = value.take(length, what)?.all().to_vec();
        sites.push(Site { offset, vaddr, bytes, function: value.string(what)? });
    }
    if sites.is_empty() {
        return Err(value.wrong(what, "no site", "at least one"));
    }
    Ok(sites)
}

fn watch(value: &mut Cursor<'_>, what: &str) -> Result<Watch, Damaged> {
    let access = value.one_of(Access::ALL, what)?;
    let here = *value;
    let length = value.u8(what)?;
    if !matches!(length, 1 | 2 | 4 | 8) {
        return Err(here.wrong(what, length.to_string(), "1, 2, 4 or 8 bytes"));
    }
    Ok(Watch { access, length })
}

fn site(value: &mut Cursor<'_>, has_file: bool, what: &str) -> Result<Site, Damaged> {
    if !has_file {
        return Err(value.wrong(what, "a site and no section `FILE`", "both or none"));
    }
    let (offset, vaddr) = (value.u64(what)?, value.u64(what)?);
    if !(1..=INSTRUCTION).contains(&value.len()) {
        let found = super::bytes::bytes(value.len());
        return Err(value.wrong(what, found, format!("an instruction of 1 to {INSTRUCTION} bytes")));
    }
    Ok(Site { offset, vaddr, bytes: value.all().to_vec(), function: String::new() })
}

/// Reads the entry and end of a handler or procedure of at least one byte, in `code` bytes of code.
fn range(cursor: &mut Cursor<'_>, code: usize, what: &str) -> Result<(usize, usize), Damaged> {
    let here = *cursor;
    let (entry, end) = (cursor.index(what)?, cursor.index(what)?);
    if entry >= end || end > code {
        let found = format!("{entry:#x} to {end:#x}");
        return Err(here.wrong(what, found, format!("a part of {code:#x} bytes of code")));
    }
    Ok((entry, end))
}

fn span(cursor: &mut Cursor<'_>, what: &str) -> Result<Span, Damaged> {
    let here = *cursor;
    let (source, start, end) = (SourceId(cursor.u32(what)?), cursor.u32(what)?, cursor.u32(what)?);
    if start > end {
        return Err(here.wrong(what, format!("{start} to {end}"), "a place in a source"));
    }
    Ok(Span { source, start, end })
}

/// Reads `line`: the source span of each instruction.
pub(super) fn lines(section: Section<'_>, code: usize) -> Result<Vec<(usize, Span)>, Damaged> {
    let mut least = 0;
    section.records("instruction", |cursor, what| {
        let here = *cursor;
        let offset = cursor.index(what)?;
        if !(least..code).contains(&offset) {
            return Err(here.wrong(
                what,
                format!("offset {offset}"),
                format!("at least {least} and less than {code}"),
            ));
        }
        least = offset + 1;
        Ok((offset, span(cursor, what)?))
    })
}

/// Reads `srcs`: the sources.
pub(super) fn sources(section: Section<'_>, places: &mut Places) -> Result<(), Damaged> {
    let mut number = 0;
    places.sources = section.records("source", |cursor, what| {
        let here = *cursor;
        let (by, start) = (cursor.u32(what)?, cursor.u32(what)?);
        if by != NOT_INCLUDED && by >= number {
            let expected = format!("one of the {number} sources before it, or {NOT_INCLUDED:#x}");
            return Err(here.wrong(what, format!("included by source {by}"), expected));
        }
        number += 1;
        let included = (by != NOT_INCLUDED).then_some((SourceId(by), start));
        Ok(Source { included, name: cursor.string(what)? })
    })?;
    Ok(())
}

/// Reads `posn`: lines and columns.
pub(super) fn positions(section: Section<'_>, places: &mut Places) -> Result<(), Damaged> {
    let mut last = None;
    let positions = section.records("position", |cursor, what| {
        let here = *cursor;
        let place = (SourceId(cursor.u32(what)?), cursor.u32(what)?);
        if last.is_some_and(|last| last >= place) {
            return Err(here.wrong(what, format!("source {}, byte {}", place.0.0, place.1), "a later place"));
        }
        last = Some(place);
        let position = Position { line: cursor.index(what)?, column: cursor.index(what)? };
        if position.line == 0 || position.column == 0 {
            return Err(here.wrong(what, "0", "a line and a column, from 1"));
        }
        Ok((place, position))
    })?;
    places.positions = positions.into_iter().collect();
    Ok(())
}
