//! The build-id of a file: a note that names one build of it.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator};

use super::headers::Headers;
use super::source::Source;

/// The most bytes of the notes with the build-id.
const NOTES: u64 = 1 << 20;

/// The build-id of a file, if it has one.
pub(crate) fn build_id(source: &Source, headers: &Headers) -> Option<Vec<u8>> {
    match headers.is_64 {
        true => read::<FileHeader64<Endianness>>(source, headers),
        false => read::<FileHeader32<Endianness>>(source, headers),
    }
}

fn read<Elf: FileHeader<Endian = Endianness>>(source: &Source, headers: &Headers) -> Option<Vec<u8>>
where
    Elf::Word: TryFrom<u64>,
{
    for part in &headers.notes {
        let Ok(bytes) = source.read("notes", part.offset, part.size, NOTES) else { continue };
        let align = Elf::Word::try_from(part.align).unwrap_or_default();
        let Ok(mut notes) = NoteIterator::<Elf>::new(headers.endian, align, &bytes) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(headers.endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}
