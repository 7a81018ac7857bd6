//! Reads the unwinding tables, which survive stripping: where functions start and end, and where in
//! a function the stack is as at its entry.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian, Pointer,
    UnwindContext, UnwindSection,
};

use super::error::ImageError;
use super::headers::Headers;
use super::source::Source;

/// The most bytes of `.eh_frame`; Chromium's has 30 MiB.
const EH_FRAME: u64 = 256 << 20;
/// The bytes of `.eh_frame_hdr`'s header that lead to `.eh_frame`.
const EH_FRAME_HDR: u64 = 64;
/// The most distinct CIEs; linkers merge equal ones, glibc has some thirty.
const CIES: usize = 4096;

/// The state of the stack at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// As at a function's entry: the return address is on top.
    AtEntry,
    /// Deeper than at the entry, or relative to another register.
    Used,
    /// Given by an expression. Linkers write these for the procedure linkage table, whose entries
    /// differ.
    Computed,
}

/// The unwinding entries of an image.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The ranges of all frame description entries, by address.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The offset in the section of each range's entry.
    offsets: Vec<usize>,
    /// The starts of the functions with landing pads of exceptions, ascending, and the addresses of
    /// their exception tables.
    landing: Vec<(u64, u64)>,
    bytes: Vec<u8>,
    bases: BaseAddresses,
    is_64: bool,
}

impl Frames {
    /// Reads the entries, up to the first damaged one.
    pub(crate) fn read(source: &Source, headers: &Headers) -> Result<Frames, ImageError> {
        if headers.machine.bitness().is_none() || headers.endian != object::Endianness::Little {
            return Ok(Frames::default());
        }
        let Some((vaddr, offset, size)) = locate(source, headers)? else { return Ok(Frames::default()) };
        let bytes = source.read(".eh_frame", offset, size, EH_FRAME)?;
        let mut bases = BaseAddresses::default().set_eh_frame(vaddr);
        if let Some(text) = headers.section(".text") {
            bases = bases.set_text(text.vaddr);
        }
        if let Some(got) = headers.section(".got") {
            bases = bases.set_got(got.vaddr);
        }
        let mut frames = Frames {
            ranges: Vec::new(),
            offsets: Vec::new(),
            landing: Vec::new(),
            bytes,
            bases,
            is_64: headers.is_64,
        };
        let mut found = frames.entries();
        found.sort_unstable_by_key(|(range, ..)| (range.start, range.end));
        frames.landing =
            found.iter().filter_map(|(range, _, table)| Some((range.start, (*table)?))).collect();
        (frames.ranges, frames.offsets) = found.into_iter().map(|(range, offset, _)| (range, offset)).unzip();
        Ok(frames)
    }

    fn section(&self) -> EhFrame<EndianSlice<'_, LittleEndian>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(if self.is_64 { 8 } else { 4 });
        section
    }

    /// The starts of the functions with landing pads of exceptions.
    pub(crate) fn with_landing_pads(&self) -> impl Iterator<Item = u64> {
        self.landing.iter().map(|(start, _)| *start)
    }

    /// The functions with landing pads of exceptions: start, and address of the exception table, 0
    /// if it is unknown.
    pub(crate) fn exception_tables(&self) -> &[(u64, u64)] {
        &self.landing
    }

    fn entries(&self) -> Vec<(Range<u64>, usize, Option<u64>)> {
        let section = self.section();
        let mut found = Vec::new();
        let mut cies = HashMap::new();
        let mut entries = section.entries(&self.bases);
        // Each entry is longer than its length field, so the walk ends with the section.
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(|section, bases, offset| {
                if let Some(cie) = cies.get(&offset) {
                    return Clone::clone(cie);
                }
                if cies.len() >= CIES {
                    return Err(gimli::Error::TooManyRegisterRules);
                }
                let cie = section.cie_from_offset(bases, offset);
                cies.insert(offset, cie.clone());
                cie
            });
            // The entry of a signal trampoline starts one byte early, in the padding, since
            // unwinders look one byte before a return address.
            if let Ok(fde) = fde
                && !fde.is_empty_range()
                && !fde.is_signal_trampoline()
            {
                let table = fde.lsda().map(|table| match table {
                    Pointer::Direct(vaddr) => vaddr,
                    Pointer::Indirect(_) => 0,
                });
                found.push((fde.initial_address()..fde.end_address(), fde.offset(), table));
            }
        }
        found
    }

    /// The index of the entry whose range contains an address.
    fn index_of(&self, vaddr: u64) -> Option<usize> {
        let index = self.ranges.partition_point(|range| range.start <= vaddr).checked_sub(1)?;
        self.ranges.get(index).filter(|range| range.contains(&vaddr)).map(|_| index)
    }

    /// The range of the entry that contains an address.
    pub(crate) fn range_of(&self, vaddr: u64) -> Option<&Range<u64>> {
        self.ranges.get(self.index_of(vaddr)?)
    }

    /// The state of the stack when control reaches an address. `None` if no entry has it.
    pub(crate) fn stack_at(&self, vaddr: u64) -> Option<Stack> {
        let offset = *self.offsets.get(self.index_of(vaddr)?)?;
        let section = self.section();
        let cie = EhFrame::cie_from_offset;
        let fde = section.fde_from_offset(&self.bases, EhFrameOffset(offset), cie).ok()?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&section, &self.bases, &mut context, vaddr).ok()?;
        // DWARF's number of the stack pointer, and bytes of the return address (System V ABI,
        // x86-64 and Intel386).
        let (stack, word) = if self.is_64 { (gimli::X86_64::RSP, 8) } else { (gimli::X86::ESP, 4) };
        Some(match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if (*register, *offset) == (stack, word) => {
                Stack::AtEntry
            }
            CfaRule::RegisterAndOffset { .. } => Stack::Used,
            CfaRule::Expression(_) => Stack::Computed,
        })
    }
}
/// Address, file offset and size of `.eh_frame`, from its section header or the program header
/// PT_GNU_EH_FRAME.
fn locate(source: &Source, headers: &Headers) -> Result<Option<(u64, u64, u64)>, ImageError> {
    if let Some(section) = headers.section(".eh_frame")
        && section.kind != object::elf::SHT_NOBITS
    {
        return Ok(Some((section.vaddr, section.offset, section.size)));
    }
    let Some(part) = headers.unwind else { return Ok(None) };
    let bytes = source.read(".eh_frame_hdr", part.offset, part.size.min(EH_FRAME_HDR), EH_FRAME_HDR)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(part.vaddr);
    let address_size = if headers.is_64 { 8 } else { 4 };
    let header = EhFrameHdr::new(&bytes, LittleEndian)
        .parse(&bases, address_size)
        .map_err(|error| source.damaged(".eh_frame_hdr", part.offset, error.to_string()))?;
    let Pointer::Direct(vaddr) = header.eh_frame_ptr() else {
        return Err(source.damaged(".eh_frame_hdr", part.offset, "it points to .eh_frame indirectly"));
    };
    let found = headers.segments.iter().find_map(|segment| {
        let offset = segment.offset_of_address(vaddr)?;
        // Its length is stored nowhere; a terminator of four zero bytes ends it within the segment.
        Some((vaddr, offset, (segment.file_end() - vaddr).min(EH_FRAME)))
    });
    found.map(Some).ok_or_else(|| {
        source.damaged(
            ".eh_frame_hdr",
            part.offset,
            format!("it points to {vaddr:#x}, which is not in the file"),
        )
    })
}

/// Entries of code that the linker has discarded have no length or start at 0.
trait EmptyRange {
    fn is_empty_range(&self) -> bool;
}

impl EmptyRange for gimli::FrameDescriptionEntry<EndianSlice<'_, LittleEndian>> {
    fn is_empty_range(&self) -> bool {
        self.len() == 0 || self.initial_address() == 0
    }
}
