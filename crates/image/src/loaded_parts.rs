//! An ELF file without what is only for debuggers, for readers that need it whole in memory.

use object::elf;
use object::pod::from_bytes;

use super::Image;

/// The most bytes of a file. Most of them are not read: a debug build has gigabytes of debug
/// information.
const FILE: u64 = 8 << 30;
/// The most bytes that are read.
const READ: u64 = 512 << 20;

impl Image {
    /// A copy of the file in which only some parts are filled in, and all others are zeros: what is
    /// mapped when it is loaded, the headers, and the named sections. `None` if it is no file of 64
    /// bits, is too large or cannot be read.
    pub fn loaded_parts(&self, sections: &[&str]) -> Option<Vec<u8>> {
        const HEADER: u64 = size_of::<elf::FileHeader64<object::LittleEndian>>() as u64;
        const PROGRAM: u64 = size_of::<elf::ProgramHeader64<object::LittleEndian>>() as u64;
        const SECTION: u64 = size_of::<elf::SectionHeader64<object::LittleEndian>>() as u64;
        let length = self.source.len();
        if !self.headers.is_64 || length > FILE {
            return None;
        }
        let header = self.file_bytes(0, HEADER)?;
        let (header, _) = from_bytes::<elf::FileHeader64<object::LittleEndian>>(&header).ok()?;
        let of = object::LittleEndian;
        let loaded = self.segments().iter().map(|segment| (segment.offset, segment.file_size));
        let named = self.headers.sections.iter().enumerate().filter(|(index, section)| {
            *index == usize::from(header.e_shstrndx.get(of).0) || sections.contains(&&*section.name)
        });
        let named = named.filter(|(_, section)| section.kind != elf::SHT_NOBITS);
        let parts = [
            (0, HEADER),
            (header.e_phoff.get(of), PROGRAM * u64::from(header.e_phnum.get(of))),
            (header.e_shoff.get(of), SECTION * self.headers.sections.len() as u64),
        ];
        let named = named.map(|(_, section)| (section.offset, section.size));
        let parts: Vec<(u64, u64)> = parts.into_iter().chain(loaded).chain(named).collect();
        if parts.iter().try_fold(0, |sum: u64, (_, size)| sum.checked_add(*size))? > READ {
            return None;
        }
        // Pages that are not written take no memory. But there may be a limit of addresses, or of
        // what may be asked for at once: a sparse file, which anybody can make, is to end nothing.
        let length = usize::try_from(length).ok()?;
        Vec::<u8>::new().try_reserve_exact(length).ok()?;
        let mut copy = vec![0; length];
        for (offset, size) in parts {
            let at = usize::try_from(offset).ok()?;
            let Some(bytes) = self.file_bytes(offset, size) else { continue };
            copy.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(&bytes);
        }
        Some(copy)
    }
}
