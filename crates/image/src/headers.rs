//! The file header, program headers and section headers, as plain numbers.
//!
//! The kernel and the dynamic linker use the program headers, so a file with damaged ones is
//! refused. Section headers are for tools: if they are damaged or absent, the image works without
//! them and reports damage.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::pod;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::error::ImageError;
use super::source::Source;

/// The most bytes of program headers of a file. Linux refuses an executable with more; and looking
/// up an address searches all of them.
const PROGRAM_HEADERS: u64 = 64 << 10;
/// The most section headers of a file. A C++ program built with one section for each function has
/// tens of thousands before linking and some forty afterwards.
const SECTION_HEADERS: u64 = 0x4_0000;
/// The bytes of a section's name that are kept.
const SECTION_NAME: usize = 128;
/// The most bytes of all section names together.
const SECTION_NAMES: u64 = 64 << 20;

/// The instruction set of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64, with 64-bit words (or x32).
    X86_64,
    /// i386.
    I386,
    /// Another one: `e_machine` of the ELF header. It cannot be probed.
    Other(u16),
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Machine::X86_64 => f.write_str("x86-64"),
            Machine::I386 => f.write_str("i386"),
            Machine::Other(20) => f.write_str("ppc"),
            Machine::Other(21) => f.write_str("ppc64"),
            Machine::Other(22) => f.write_str("s390"),
            Machine::Other(number) => write!(f, "another machine (e_machine {number})"),
        }
    }
}

impl Machine {
    /// The mode for decoding its instructions: 64 or 32 bits; `None` for another machine.
    pub fn bitness(self) -> Option<u32> {
        match self {
            Machine::X86_64 => Some(64),
            Machine::I386 => Some(32),
            Machine::Other(_) => None,
        }
    }
}

/// A part of the file that is mapped when the program is loaded (PT_LOAD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte, before the load bias is added.
    pub vaddr: u64,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Bytes from the file: no more than the file has.
    pub file_size: u64,
    /// Bytes in memory; those beyond `file_size` are zero.
    pub mem_size: u64,
    /// Alignment in bytes, a power of two in a valid file.
    pub align: u64,
    /// Mapped readable.
    pub readable: bool,
    /// Mapped writable.
    pub writable: bool,
    /// Mapped executable.
    pub executable: bool,
}

impl Segment {
    /// The address of a file offset that is loaded through this segment.
    pub(crate) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let distance = offset.checked_sub(self.offset).filter(|d| *d < self.file_size)?;
        self.vaddr.checked_add(distance)
    }

    /// The file offset of an address whose byte comes from the file.
    pub(crate) fn offset_of_address(&self, vaddr: u64) -> Option<u64> {
        let distance = vaddr.checked_sub(self.vaddr).filter(|d| *d < self.file_size)?;
        self.offset.checked_add(distance)
    }

    /// The addresses of its bytes from the file. If the file has none of them, as in a file with
    /// only debug information, the addresses of all its bytes.
    pub(crate) fn code(&self) -> std::ops::Range<u64> {
        match self.file_size {
            0 => self.vaddr..self.vaddr.saturating_add(self.mem_size),
            _ => self.vaddr..self.file_end(),
        }
    }

    /// First address after the bytes that come from the file.
    pub(crate) fn file_end(&self) -> u64 {
        self.vaddr.saturating_add(self.file_size)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: elf::SectionType,
    pub(crate) allocated: bool,
    pub(crate) executable: bool,
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

impl Section {
    pub(crate) fn contains(&self, vaddr: u64) -> bool {
        self.vaddr <= vaddr && vaddr - self.vaddr < self.size
    }
}

/// A range of the file that a program header other than PT_LOAD points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) align: u64,
}

#[derive(Debug)]
pub(crate) struct Headers {
    pub(crate) is_64: bool,
    pub(crate) endian: Endianness,
    pub(crate) machine: Machine,
    pub(crate) kind: elf::FileType,
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) interpreter: Option<Part>,
    pub(crate) dynamic: Option<Part>,
    pub(crate) unwind: Option<Part>,
    pub(crate) notes: Vec<Part>,
    pub(crate) sections: Vec<Section>,
    /// Why there are no sections, if they are damaged and not absent.
    pub(crate) problem: Option<ImageError>,
}

impl Headers {
    pub(crate) fn read(source: &Source) -> Result<Headers, ImageError> {
        let start = source.read("file header", 0, source.len().min(64), 64)?;
        if start.get(..4) != Some(&elf::ELFMAG) {
            let found = match start.len() {
                0 => "the file is empty".to_owned(),
                _ => beginning(&start),
            };
            return Err(ImageError::NotElf { path: source.path().to_owned(), found });
        }
        match start.get(4) {
            Some(2) => read_class::<FileHeader64<Endianness>>(source, &start),
            Some(1) => read_class::<FileHeader32<Endianness>>(source, &start),
            Some(class) => {
                let cause = format!("class {class} is neither 1 (32 bits) nor 2 (64 bits)");
                Err(source.damaged("file header", 4, cause))
            }
            None => Err(source.damaged("file header", 4, "it is cut short")),
        }
    }

    /// The first section of a kind. Symbol tables exist once for each kind (System V ABI,
    /// "Sections").
    pub(crate) fn section_of(&self, kind: elf::SectionType) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub(crate) fn executable_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.executable)
    }

    /// Whether the byte at an address is loaded from the file and may be executed.
    pub(crate) fn is_executable(&self, vaddr: u64) -> bool {
        self.executable_segments().any(|segment| segment.offset_of_address(vaddr).is_some())
    }

    /// Whether an address is one of code: of this file's, or, in a file with only the symbols and
    /// debug information of another one, of the other's.
    pub(crate) fn is_code(&self, vaddr: u64) -> bool {
        self.executable_segments().any(|segment| segment.code().contains(&vaddr))
    }

    /// The file offset of an address, whatever the segment's rights.
    pub(crate) fn offset_of_address(&self, vaddr: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.offset_of_address(vaddr))
    }
}

fn read_class<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    start: &[u8],
) -> Result<Headers, ImageError> {
    let damaged = |cause: &str| source.damaged("file header", 0, cause);
    let (header, _) = pod::from_bytes::<Elf>(start).map_err(|()| damaged("it is cut short"))?;
    if !header.is_supported() {
        return Err(damaged("its byte order or version is unknown"));
    }
    let endian = header.endian().map_err(|error| damaged(&error.to_string()))?;
    let machine = match header.e_machine(endian) {
        elf::EM_X86_64 => Machine::X86_64,
        elf::EM_386 => Machine::I386,
        other => Machine::Other(other.0),
    };
    let mut headers = Headers {
        is_64: header.is_type_64(),
        endian,
        machine,
        kind: header.e_type(endian),
        entry: header.e_entry(endian).into(),
        segments: Vec::new(),
        interpreter: None,
        dynamic: None,
        unwind: None,
        notes: Vec::new(),
        sections: Vec::new(),
        problem: None,
    };
    let first_section = first_section(source, header, endian);
    read_segments(source, header, first_section.as_ref().ok(), &mut headers)?;
    match first_section.and_then(|first| read_sections(source, header, endian, &first)) {
        Ok(sections) => headers.sections = sections,
        Err(None) => {}
        Err(Some(problem)) => headers.problem = Some(problem),
    }
    Ok(headers)
}

/// Section header 0, which also has the counts that overflow the file header. `Err(None)`: there
/// are no sections.
fn first_section<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    header: &Elf,
    endian: Endianness,
) -> Result<Elf::SectionHeader, Option<ImageError>> {
    let offset: u64 = header.e_shoff(endian).into();
    if offset == 0 {
        return Err(None);
    }
    let size = size_of::<Elf::SectionHeader>();
    if usize::from(header.e_shentsize(endian)) != size {
        let cause = format!("the entry size is {}, not {size}", header.e_shentsize(endian));
        return Err(Some(source.damaged("section headers", offset, cause)));
    }
    let bytes = source.read("section headers", offset, size as u64, size as u64)?;
    let (first, _) = pod::from_bytes::<Elf::SectionHeader>(&bytes)
        .map_err(|()| source.damaged("section headers", offset, "cut short"))?;
    Ok(*first)
}

fn read_segments<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    header: &Elf,
    first_section: Option<&Elf::SectionHeader>,
    headers: &mut Headers,
) -> Result<(), ImageError> {
    let endian = headers.endian;
    let offset: u64 = header.e_phoff(endian).into();
    let mut count = u64::from(header.e_phnum(endian));
    if count == u64::from(elf::PN_XNUM)
        && let Some(first) = first_section
    {
        count = u64::from(first.sh_info(endian));
    }
    if offset == 0 || count == 0 {
        return Ok(());
    }
    let size = size_of::<Elf::ProgramHeader>() as u64;
    if u64::from(header.e_phentsize(endian)) != size {
        let cause = format!("the entry size is {}, not {size}", header.e_phentsize(endian));
        return Err(source.damaged("program headers", offset, cause));
    }
    let bytes = source.read("program headers", offset, count * size, PROGRAM_HEADERS)?;
    let table = pod::slice_from_all_bytes::<Elf::ProgramHeader>(&bytes)
        .map_err(|()| source.damaged("program headers", offset, "cut short"))?;
    for entry in table {
        let part = Part {
            vaddr: entry.p_vaddr(endian).into(),
            offset: entry.p_offset(endian).into(),
            size: entry.p_filesz(endian).into(),
            align: entry.p_align(endian).into(),
        };
        match entry.p_type(endian) {
            elf::PT_LOAD => {
                let flags = entry.p_flags(endian).0;
                // A segment's bytes beyond the end of the file do not exist.
                let held = source.len().saturating_sub(part.offset);
                headers.segments.push(Segment {
                    vaddr: part.vaddr,
                    offset: part.offset,
                    file_size: part.size.min(held),
                    mem_size: entry.p_memsz(endian).into(),
                    align: part.align,
                    readable: flags & elf::PF_R.0 != 0,
                    writable: flags & elf::PF_W.0 != 0,
                    executable: flags & elf::PF_X.0 != 0,
                });
            }
            elf::PT_INTERP => headers.interpreter = Some(part),
            elf::PT_DYNAMIC => headers.dynamic = Some(part),
            elf::PT_GNU_EH_FRAME => headers.unwind = Some(part),
            elf::PT_NOTE => headers.notes.push(part),
            _ => {}
        }
    }
    headers.segments.sort_by_key(|segment| segment.vaddr);
    Ok(())
}

fn read_sections<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    header: &Elf,
    endian: Endianness,
    first: &Elf::SectionHeader,
) -> Result<Vec<Section>, Option<ImageError>> {
    let offset: u64 = header.e_shoff(endian).into();
    let count = match header.e_shnum(endian) {
        0 => first.sh_size(endian).into(),
        count => u64::from(count),
    };
    let size = size_of::<Elf::SectionHeader>() as u64;
    let bytes = source.read("section headers", offset, count.saturating_mul(size), SECTION_HEADERS * size)?;
    let table = pod::slice_from_all_bytes::<Elf::SectionHeader>(&bytes)
        .map_err(|()| source.damaged("section headers", offset, "cut short"))?;
    let names = match header.shstrndx_or_first(endian, first) {
        Some(index) => {
            let entry = table.get(index as usize).ok_or_else(|| {
                source.damaged(
                    "section headers",
                    offset,
                    format!("the section name table, section {index}, is missing"),
                )
            })?;
            let (at, len) = (entry.sh_offset(endian).into(), entry.sh_size(endian).into());
            source.read("section names", at, len, SECTION_NAMES)?
        }
        None => Vec::new(),
    };
    let section = |entry: &Elf::SectionHeader| {
        let name = names.get(entry.sh_name(endian) as usize..).unwrap_or_default();
        let name = &name[..name.len().min(SECTION_NAME)];
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
        let flags = entry.sh_flags(endian).0;
        Section {
            name: String::from_utf8_lossy(name).into_owned(),
            kind: entry.sh_type(endian),
            allocated: flags & elf::SHF_ALLOC.0 != 0,
            executable: flags & elf::SHF_EXECINSTR.0 != 0,
            vaddr: entry.sh_addr(endian).into(),
            offset: entry.sh_offset(endian).into(),
            size: entry.sh_size(endian).into(),
            link: entry.sh_link(endian),
        }
    };
    Ok(table.iter().map(section).collect())
}

/// The beginning of a file that is not an ELF file.
fn beginning(bytes: &[u8]) -> String {
    /// How many bytes are shown.
    const SHOWN: usize = 16;
    let start = &bytes[..bytes.len().min(SHOWN)];
    let text = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if !text.is_empty() && text.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return format!("it is text that begins with `{}`", printable::bytes(text.trim_ascii_end()));
    }
    let bytes: Vec<String> = start.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("it begins with the bytes {}", bytes.join(" "))
}

/// Finds the section with the section names.
trait NameSection: FileHeader {
    fn shstrndx_or_first(&self, endian: Self::Endian, first: &Self::SectionHeader) -> Option<u32> {
        match self.e_shstrndx(endian) {
            elf::SHN_UNDEF => None,
            elf::SHN_XINDEX => Some(first.sh_link(endian)),
            index => Some(u32::from(index.0)),
        }
    }
}

impl<Elf: FileHeader> NameSection for Elf {}
