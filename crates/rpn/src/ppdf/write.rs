//! The writer: sections, then the section table, then the header.

use super::error::Unwritable;
use super::format::{CHECKSUM, HEADER, MAGIC, MAX_FILE_BYTES, Ppdf, REVISION, ROW, VERSION, checksum};
use super::program::NOT_INCLUDED;
use super::read;
use super::tag::{Tag, head, probe, section};
use crate::object::{Access, FunctionPoint, Location, ModuleKind, Object, Probe};

/// Writes a PPDF. The same [`Ppdf`] always gives the same bytes.
///
/// # Errors
///
/// [`read`] would refuse the file or return something else. To find out, the file is read back.
/// This does not happen for objects that the compiler made.
pub fn write(ppdf: &Ppdf) -> Result<Vec<u8>, Unwritable> {
    let sections = sections(ppdf);
    let count = sections.len();
    let mut file = vec![0; HEADER + count * ROW];
    for (number, Section { tag, bytes, count }) in sections.into_iter().enumerate() {
        file.resize(file.len().next_multiple_of(ROW), 0);
        let mut row = Bytes::default();
        row.raw(&tag.0).size(file.len()).size(bytes.len()).size(count);
        file[HEADER + number * ROW..][..ROW].copy_from_slice(&row.0);
        file.extend_from_slice(&bytes);
        if file.len() > MAX_FILE_BYTES {
            return Err(Unwritable::TooLarge(file.len()));
        }
    }
    let mut header = Bytes::default();
    let arch = ppdf.object.arch;
    header.raw(&MAGIC).raw(&VERSION.to_le_bytes()).raw(&REVISION.to_le_bytes()).size(count);
    header.size(file.len()).u32(0).raw(&arch.elf_machine().to_le_bytes()).u8(arch.word().bytes() as u8);
    file[..header.0.len()].copy_from_slice(&header.0);
    let sum = checksum(&file);
    file[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    match read(&file) {
        Ok(found) if found == *ppdf => Ok(file),
        Ok(_) => Err(Unwritable::Different),
        Err(damaged) => Err(Unwritable::Invalid(damaged)),
    }
}

/// A byte buffer to append to.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Bytes {
        self.raw(&[value])
    }

    fn u32(&mut self, value: u32) -> &mut Bytes {
        self.raw(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Bytes {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a length, count or offset. One that is too large is detected when the file is read
    /// back.
    fn size(&mut self, value: usize) -> &mut Bytes {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Appends a text after its length.
    fn string(&mut self, text: &str) -> &mut Bytes {
        self.size(text.len()).raw(text.as_bytes())
    }

    /// Appends a field: tag, length, value.
    fn field(&mut self, tag: Tag, fill: impl FnOnce(&mut Bytes) -> &mut Bytes) -> &mut Bytes {
        let mut value = Bytes::default();
        fill(&mut value);
        self.raw(&tag.0).size(value.0.len()).raw(&value.0)
    }
}

struct Section {
    tag: Tag,
    bytes: Vec<u8>,
    /// Number of records, or the size in bytes if the section has no records.
    count: usize,
}

/// Makes a section of records.
fn records<T>(tag: Tag, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Bytes, T)) -> Section {
    let mut bytes = Bytes::default();
    let mut count = 0;
    for item in items {
        write(&mut bytes, item);
        count += 1;
    }
    Section { tag, bytes: bytes.0, count }
}

/// Makes a section without records.
fn whole(tag: Tag, bytes: Vec<u8>) -> Section {
    let count = bytes.len();
    Section { tag, bytes, count }
}

fn sections(ppdf: &Ppdf) -> Vec<Section> {
    // No `..` in this pattern: a new field of the object must not be forgotten below.
    let Object {
        module,
        kind,
        arch: _,
        vars,
        gvars,
        major,
        id,
        logmax,
        jmpmax,
        insmax,
        excpt_log,
        autostacktrace,
        heapmax,
        groups,
        types,
        code,
        probes,
        procs,
        symbols,
        fields,
        lines,
        file,
    } = &ppdf.object;
    let mut header = Bytes::default();
    let kind = match kind {
        ModuleKind::User => 0,
        ModuleKind::Kernel => 1,
        ModuleKind::KernelModule => 2,
    };
    header
        .field(head::NAME, |it| it.raw(module.as_bytes()))
        .field(head::MODTYPE, |it| it.u8(kind))
        .field(head::VARS, |it| it.raw(&vars.to_le_bytes()))
        .field(head::GVARS, |it| it.raw(&gvars.to_le_bytes()))
        .field(head::MAJOR, |it| it.u32(*major))
        .field(head::ID, |it| it.u32(*id))
        .field(head::LOGMAX, |it| it.size(*logmax))
        .field(head::JMPMAX, |it| it.u32(*jmpmax))
        .field(head::EXCPT_LOG, |it| it.size(*excpt_log))
        .field(head::AUTOSTACKTRACE, |it| it.u8(u8::from(*autostacktrace)))
        .field(head::HEAPMAX, |it| it.size(*heapmax));
    // Readers older than `insmax` use the default: they need not refuse a program that keeps it.
    if *insmax != vm::INSTRUCTIONS {
        header.field(head::INSMAX, |it| it.u32(*insmax));
    }
    let name = |bytes: &mut Bytes, name: &String| {
        bytes.string(name);
    };
    let mut all = vec![whole(section::HEAD, header.0)];
    if let Some(file) = file {
        let mut bytes = Bytes::default();
        bytes.u64(file.size).size(file.build_id.len()).raw(&file.build_id).string(&file.path);
        all.push(whole(section::FILE, bytes.0));
    }
    all.push(records(section::GROUPS, groups, name));
    all.push(records(section::TYPES, types, name));
    all.push(records(section::PROBES, probes, |bytes, probe| {
        let fields = probe_fields(probe, groups, types);
        bytes.size(fields.len()).raw(&fields);
    }));
    all.push(records(section::PROCEDURES, procs, |bytes, procedure| {
        bytes.size(procedure.entry).size(procedure.end).string(&procedure.name);
    }));
    all.push(records(section::SYMBOLS, symbols, |bytes, symbol| {
        bytes.size(symbol.offset).raw(&symbol.addend.to_le_bytes()).string(&symbol.name);
    }));
    // Readers older than tracepoints need not refuse a program that has no field.
    if !fields.is_empty() {
        all.push(records(section::FIELDS, fields, name));
    }
    all.push(whole(section::CODE, code.clone()));
    all.push(records(section::SOURCES, &ppdf.places.sources, |bytes, source| {
        let (by, start) = source.included.map_or((NOT_INCLUDED, 0), |(source, start)| (source.0, start));
        bytes.u32(by).u32(start).string(&source.name);
    }));
    all.push(records(section::LINES, lines, |bytes, (offset, span)| {
        bytes.size(*offset).u32(span.source.0).u32(span.start).u32(span.end);
    }));
    all.push(records(section::POSITIONS, &ppdf.places.positions, |bytes, ((source, start), position)| {
        bytes.u32(source.0).u32(*start).size(position.line).size(position.column);
    }));
    all
}

fn probe_fields(probe: &Probe, groups: &[String], types: &[String]) -> Vec<u8> {
    // No `..` in this pattern: a new field must not be forgotten below.
    let Probe {
        point,
        location,
        watch,
        opcode,
        minor,
        group,
        kind,
        ignore,
        maxhits,
        logonfault,
        mask,
        heap,
        entry,
        end,
        span,
        sites,
    } = probe;
    let mut bytes = Bytes::default();
    bytes.field(probe::POINT, |it| it.raw(point.as_bytes()));
    match location {
        Location::Offset(offset) => bytes.field(probe::OFFSET, |it| it.u64(*offset)),
        Location::Address(address) => bytes.field(probe::ADDRESS, |it| it.u64(*address)),
        Location::Symbol { name, addend } => {
            bytes.field(probe::SYMBOL, |it| it.raw(&addend.to_le_bytes()).raw(name.as_bytes()))
        }
        Location::AddressSymbol { name, addend } => {
            bytes.field(probe::ADDRESS_SYMBOL, |it| it.raw(&addend.to_le_bytes()).raw(name.as_bytes()))
        }
        Location::Points { function, point } => {
            let (kind, offset) = match point {
                FunctionPoint::Entry => (0, 0),
                FunctionPoint::Return => (1, 0),
                FunctionPoint::Offset(offset) => (2, *offset),
                FunctionPoint::Each => (3, 0),
            };
            bytes.field(probe::POINTS, |it| it.u8(kind).u64(offset).raw(function.as_bytes()))
        }
        Location::Tracepoint { system, name } => {
            bytes.field(probe::TRACEPOINT, |it| it.raw(system.as_bytes()).raw(b":").raw(name.as_bytes()))
        }
    };
    match (location, sites.as_slice()) {
        (_, []) => {}
        (Location::Points { .. }, sites) => {
            bytes.field(probe::SITES, |it| {
                for site in sites {
                    it.u64(site.offset).u64(site.vaddr).u8(site.bytes.len() as u8).raw(&site.bytes);
                    it.string(&site.function);
                }
                it
            });
        }
        // Other probes have one site; further ones are detected as missing when the file is read
        // back.
        (_, [site, ..]) => {
            bytes.field(probe::SITE, |it| it.u64(site.offset).u64(site.vaddr).raw(&site.bytes));
        }
    }
    if let Some(watch) = watch {
        let access = Access::ALL.iter().position(|access| *access == watch.access).unwrap_or(usize::MAX);
        bytes.field(probe::WATCH, |it| it.u8(access as u8).u8(watch.length));
    }
    if let Some(opcode) = opcode {
        bytes.field(probe::OPCODE, |it| it.u32(*opcode));
    }
    bytes.field(probe::MINOR, |it| it.u32(*minor));
    for (tag, member, names) in [(probe::GROUP, group, groups), (probe::TYPE, kind, types)] {
        if let Some(member) = member {
            let place = names.iter().position(|name| name == member).unwrap_or(usize::MAX);
            bytes.field(tag, |it| it.size(place));
        }
    }
    bytes
        .field(probe::IGNORE, |it| it.u64(*ignore))
        .field(probe::MAXHITS, |it| it.u64(*maxhits))
        .field(probe::LOGONFAULT, |it| it.u8(u8::from(*logonfault)))
        .field(probe::MASK, |it| it.raw(&mask.to_le_bytes()))
        .field(probe::HEAP, |it| it.size(*heap))
        .field(probe::HANDLER, |it| it.size(*entry).size(*end))
        .field(probe::SPAN, |it| it.u32(span.source.0).u32(span.start).u32(span.end));
    bytes.0
}
