//! Where functions start and end, as the unwinding tables tell: they survive stripping.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer, UnwindSection,
};

use super::error::ImageError;
use super::headers::Headers;
use super::source::Source;

/// Bytes of `.eh_frame`; Chromium's is 30 MiB.
const EH_FRAME: u64 = 256 << 20;
/// Bytes of the header of `.eh_frame_hdr` that lead to `.eh_frame`.
const EH_FRAME_HDR: u64 = 64;
/// Distinct CIEs; linkers merge equal ones, glibc has some thirty.
const CIES: usize = 4096;

/// The ranges of all frame description entries, by address. Damage ends the list early: what was read
/// up to there holds.
pub(crate) fn read(source: &Source, headers: &Headers) -> Result<Vec<Range<u64>>, ImageError> {
    if headers.machine.bitness().is_none() || headers.endian != object::Endianness::Little {
        return Ok(Vec::new());
    }
    let Some((vaddr, offset, size)) = locate(source, headers)? else { return Ok(Vec::new()) };
    let bytes = source.read(".eh_frame", offset, size, EH_FRAME)?;
    let mut section = EhFrame::new(&bytes, LittleEndian);
    section.set_address_size(if headers.is_64 { 8 } else { 4 });
    let mut bases = BaseAddresses::default().set_eh_frame(vaddr);
    if let Some(text) = headers.section(".text") {
        bases = bases.set_text(text.vaddr);
    }
    if let Some(got) = headers.section(".got") {
        bases = bases.set_got(got.vaddr);
    }

    let mut ranges = Vec::new();
    let mut cies = HashMap::new();
    let mut entries = section.entries(&bases);
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
        // The entry of a signal trampoline starts a byte early, in the padding before it, by a convention that lets
        // an unwinder look one byte before a return address.
        if let Ok(fde) = fde
            && !fde.is_empty_range()
            && !fde.is_signal_trampoline()
        {
            ranges.push(fde.initial_address()..fde.end_address());
        }
    }
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    Ok(ranges)
}

/// Address, file offset and size of `.eh_frame`: by its section header, or by the program header PT_GNU_EH_FRAME.
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
        // Its length is nowhere written; a terminator of four zero bytes ends it within the segment.
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

/// Frame description entries of code the linker discarded have no length or start at 0.
trait EmptyRange {
    fn is_empty_range(&self) -> bool;
}

impl EmptyRange for gimli::FrameDescriptionEntry<EndianSlice<'_, LittleEndian>> {
    fn is_empty_range(&self) -> bool {
        self.len() == 0 || self.initial_address() == 0
    }
}
