//! Finds the parts of an ELF file that a table is made from.

use std::borrow::Cow;
use std::vec::Vec;

use gimli::{BaseAddresses, EhFrameHdr, Pointer};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection};

use super::error::TableError;

/// The most bytes of `.eh_frame` or `.debug_frame`. Chromium has 30 MiB.
const FRAMES: u64 = 128 << 20;
/// The bytes of `.eh_frame_hdr`'s header that lead to `.eh_frame`.
const EH_FRAME_HDR: usize = 64;
/// The most segments, and the most sections of a linkage table, that are looked at.
const PARTS: usize = 64;
/// The size of a page.
const PAGE: u64 = 4096;

/// Bytes at a virtual address.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) vaddr: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// The bytes from an address to the end of the part. `None` if the address is not in it.
    fn from(&self, vaddr: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(vaddr.checked_sub(self.vaddr)?).ok()?;
        self.bytes.get(at..).filter(|bytes| !bytes.is_empty())
    }
}

/// The parts of a file.
pub(super) struct Sections<'a> {
    /// The page where the first segment begins.
    pub(super) base: u64,
    /// The executable segments.
    pub(super) code: Vec<Part<'a>>,
    /// The sections of the procedure linkage table: `.plt`, `.plt.sec`, `.plt.got`, `.iplt`.
    pub(super) linkage: Vec<Part<'a>>,
    pub(super) eh_frame: &'a [u8],
    pub(super) debug_frame: Cow<'a, [u8]>,
    /// What addresses in `.eh_frame` are relative to.
    pub(super) bases: BaseAddresses,
}

impl<'a> Sections<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Sections<'a>, TableError> {
        let header = FileHeader64::<LittleEndian>::parse(file)?;
        let machine = header.e_machine(LittleEndian);
        if machine != elf::EM_X86_64 {
            return Err(TableError::Machine(machine.0));
        }
        let segments = header.program_headers(LittleEndian, file)?;
        let loaded =
            || segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD).take(PARTS);
        let base = loaded().map(|segment| segment.p_vaddr(LittleEndian)).min().unwrap_or(0) & !(PAGE - 1);
        let mut parts = Vec::new();
        let mut code = Vec::new();
        for segment in loaded() {
            let Ok(bytes) = segment.data(LittleEndian, file) else { continue };
            let part = Part { vaddr: segment.p_vaddr(LittleEndian), bytes };
            parts.push(part);
            if segment.p_flags(LittleEndian) & elf::PF_X == elf::PF_X {
                code.push(part);
            }
        }
        code.sort_by_key(|part| part.vaddr);
        let mut sections = Sections {
            base,
            code,
            linkage: Vec::new(),
            eh_frame: &[],
            debug_frame: Cow::Borrowed(&[]),
            bases: BaseAddresses::default(),
        };
        // A file stripped of its section headers has the program header still.
        sections.read_named(file)?;
        if sections.eh_frame.is_empty() {
            let header = segments.iter().find(|segment| segment.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME);
            if let Some(vaddr) = header.map(|segment| segment.p_vaddr(LittleEndian)) {
                sections.follow_header(vaddr, &parts);
            }
        }
        limit(".eh_frame", sections.eh_frame.len() as u64)?;
        Ok(sections)
    }

    /// Takes the sections that are found by name.
    fn read_named(&mut self, file: &'a [u8]) -> Result<(), TableError> {
        let Ok(elf) = ElfFile64::<LittleEndian>::parse(file) else { return Ok(()) };
        let mut bases = BaseAddresses::default();
        for section in elf.sections() {
            let vaddr = section.address();
            let Ok(name) = section.name_bytes() else { continue };
            match name {
                b".eh_frame" => {
                    bases = bases.set_eh_frame(vaddr);
                    self.eh_frame = section.data().unwrap_or_default();
                }
                b".text" => bases = bases.set_text(vaddr),
                b".got" => bases = bases.set_got(vaddr),
                b".debug_frame" => {
                    let Ok(compressed) = section.compressed_data() else { continue };
                    limit(".debug_frame", compressed.uncompressed_size)?;
                    self.debug_frame = compressed.decompress().unwrap_or_default();
                }
                b".plt" | b".plt.sec" | b".plt.got" | b".iplt" if self.linkage.len() < PARTS => {
                    self.linkage.push(Part { vaddr, bytes: section.data().unwrap_or_default() });
                }
                _ => {}
            }
        }
        self.linkage.sort_by_key(|part| part.vaddr);
        self.bases = bases;
        Ok(())
    }

    /// Takes `.eh_frame` from where `.eh_frame_hdr` says it is. Its end is not stored anywhere: it
    /// has a terminator.
    fn follow_header(&mut self, vaddr: u64, parts: &[Part<'a>]) {
        let find = |vaddr| parts.iter().find_map(|part| part.from(vaddr));
        let Some(header) = find(vaddr) else { return };
        let header = &header[..header.len().min(EH_FRAME_HDR)];
        let bases = BaseAddresses::default().set_eh_frame_hdr(vaddr);
        let parsed = EhFrameHdr::new(header, gimli::LittleEndian).parse(&bases, 8);
        let Ok(Pointer::Direct(vaddr)) = parsed.map(|header| header.eh_frame_ptr()) else { return };
        if let Some(bytes) = find(vaddr) {
            self.eh_frame = &bytes[..bytes.len().min(FRAMES as usize)];
            self.bases = core::mem::take(&mut self.bases).set_eh_frame(vaddr);
        }
    }

    /// The code from an address to the end of its segment.
    pub(super) fn code_at(&self, vaddr: u64) -> Option<&'a [u8]> {
        self.code.iter().find_map(|part| part.from(vaddr))
    }
}

fn limit(section: &'static str, size: u64) -> Result<(), TableError> {
    if size > FRAMES { Err(TableError::Large { section, size, limit: FRAMES }) } else { Ok(()) }
}
