//! The NT_FILE note: which files are mapped where.
//!
//! ```text
//!   count, page size                               words of the process, little-endian
//!   count times: start, end, offset in the file in pages
//!   count times: the path and a NUL
//! ```
//!
//! The `elfcore` crate does not let its caller make the entries of its own list of files. But it
//! takes a note of any contents as the last one. It gives that note a type of all ones and an
//! additional word with its number of bytes. After the file is written, the note's type and length
//! are corrected, and the length of all notes is reduced by one word.

use std::io;
use std::os::unix::ffi::OsStrExt;

use process::Mapping;

use super::file::CoreFile;
use super::memory::PAGE;

/// The name of the note.
pub(super) const NAME: &str = "CORE";
/// Its type (include/uapi/linux/elf.h): "FILE".
const NT_FILE: u32 = 0x4649_4c45;
/// The type that `elfcore` gives it.
const ANY: u32 = !0;
/// Bytes before the contents: the lengths of name and contents, the type, and the name with its
/// NUL, padded.
const HEAD: usize = 12 + 8;
/// Bytes of the additional word after the contents.
const TAIL: usize = 4;
/// Bytes of contents at most, as the kernel limits them.
const LIMIT: usize = 4 << 20;
/// Offsets in the file: the position, length in the file and length in memory of the first program
/// header, that of the notes.
const NOTES_AT: u64 = 64 + 8;
const NOTES_LENGTH: u64 = 64 + 32;
const NOTES_MEMORY: u64 = 64 + 40;

/// The note's contents for these mappings of a process with words of 4 or 8 bytes. Files beyond the
/// limit are left out.
pub(super) fn note(mappings: &[Mapping], word: usize) -> Vec<u8> {
    let mut places: Vec<u8> = Vec::new();
    let mut names = Vec::new();
    let mut count = 0u64;
    for mapping in mappings {
        let Some(path) = &mapping.path else { continue };
        let removed: &[u8] = if mapping.deleted { b" (deleted)" } else { b"" };
        let name = path.as_os_str().as_bytes();
        if places.len() + names.len() + name.len() + removed.len() > LIMIT {
            break;
        }
        for value in [mapping.start, mapping.end, mapping.offset / PAGE] {
            places.extend(&value.to_le_bytes()[..word]);
        }
        names.extend_from_slice(name);
        names.extend_from_slice(removed);
        names.push(0);
        count += 1;
    }
    let mut note = [&count.to_le_bytes()[..word], &PAGE.to_le_bytes()[..word]].concat();
    note.extend(places);
    note.extend(names);
    note
}

/// Bytes of the whole note as it is first written, padded to a multiple of 4.
pub(super) fn note_length(note: &[u8]) -> usize {
    HEAD + note.len().next_multiple_of(4) + TAIL
}

/// Corrects the type and length of the note with these contents, the last note of a written file.
///
/// # Errors
/// The file cannot be written, or is not laid out as expected.
pub(super) fn mend(file: &mut CoreFile, note: &[u8]) -> io::Result<()> {
    let length = file.word(NOTES_LENGTH)?;
    let place = file.word(NOTES_AT)?.saturating_add(length).saturating_sub(note_length(note) as u64);
    let head = |length: usize, kind: u32| {
        let words = [NAME.len() as u32 + 1, length as u32, kind];
        words.map(u32::to_le_bytes).concat()
    };
    file.replace(place, &head(note.len().next_multiple_of(4) + TAIL, ANY), &head(note.len(), NT_FILE))?;
    for place in [NOTES_LENGTH, NOTES_MEMORY] {
        file.replace(place, &length.to_le_bytes(), &(length - TAIL as u64).to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn mapping(start: u64, path: Option<&str>, deleted: bool) -> Mapping {
        Mapping {
            start,
            end: start + 0x2000,
            readable: true,
            writable: false,
            executable: false,
            shared: false,
            offset: 0x3000,
            device: (0, 0),
            inode: 0,
            path: path.map(PathBuf::from),
            label: None,
            deleted,
        }
    }

    #[test]
    fn files_are_listed_and_anonymous_memory_is_not() {
        let mappings = [
            mapping(0x1000, Some("/a"), false),
            mapping(0x3000, None, false),
            mapping(0x5000, Some("/b"), true),
        ];
        let mut expected = Vec::new();
        for word in [2u64, 4096, 0x1000, 0x3000, 3, 0x5000, 0x7000, 3] {
            expected.extend(word.to_le_bytes());
        }
        expected.extend(b"/a\0/b (deleted)\0");
        assert_eq!(note(&mappings, 8), expected);
        let words = expected[..64].as_chunks::<8>().0;
        let narrow =
            [&words.iter().flat_map(|word| word[..4].to_vec()).collect::<Vec<_>>()[..], &expected[64..]]
                .concat();
        assert_eq!(note(&mappings, 4), narrow);
    }

    #[test]
    fn the_list_is_limited() {
        let name = format!("/{}", "x".repeat(4000));
        let mappings: Vec<_> = (0..5000).map(|number| mapping(number << 16, Some(&name), false)).collect();
        let note = note(&mappings, 8);
        assert!(note.len() <= LIMIT + 32, "{}", note.len());
        assert!(note.len() > LIMIT / 2, "{}", note.len());
    }
}
