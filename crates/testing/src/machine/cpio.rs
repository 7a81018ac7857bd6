//! The format of an initramfs: a cpio archive with "new" ASCII headers.
//!
//! Each entry is 4-byte aligned, and so are its contents:
//!
//! ```text
//! "070701" INODE MODE UID GID LINKS TIME SIZE MAJOR MINOR RMAJOR RMINOR NAMELENGTH CHECKSUM
//!          (13 numbers of 8 hexadecimal digits)
//! NAME 0, padding, CONTENTS, padding
//! ```

use std::io::{self, Write};

/// A file type, as in a mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub(super) struct Archive<W> {
    output: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(output: W) -> Archive<W> {
        Archive { output, entries: 0 }
    }

    /// Adds a directory. Those above it must be there already.
    pub(super) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | permissions, contents)
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, to: &str) -> io::Result<()> {
        self.entry(name, LINK | 0o777, to.as_bytes())
    }

    /// Writes the entry that ends an archive.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.output.flush()
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        let size = u32::try_from(contents.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.entries += 1;
        let name_length = name.len() as u32 + 1;
        let numbers = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_length, 0];
        let header: String = numbers.iter().map(|number| format!("{number:08X}")).collect();
        write!(self.output, "070701{header}{name}\0")?;
        self.pad(6 + header.len() + name.len() + 1)?;
        self.output.write_all(contents)?;
        self.pad(contents.len())
    }

    /// Aligns what follows so many bytes.
    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.output.write_all(&[0; 3][..length.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_are_aligned() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.directory("bin").expect("memory takes it");
        archive.file("bin/a", 0o755, b"hello").expect("memory takes it");
        archive.link("b", "bin/a").expect("memory takes it");
        archive.finish().expect("memory takes it");
        let zeros = |count: usize| "0".repeat(8 * count);
        let entry = |number: u32, mode: &str, size: u32, length: u32, name: &str| {
            format!(
                "070701{number:08X}{mode}{}00000001{}{size:08X}{}{length:08X}{}{name}",
                zeros(2),
                zeros(1),
                zeros(4),
                zeros(1)
            )
        };
        let expected = [
            entry(1, "000041ED", 0, 4, "bin\0\0\0"),
            entry(2, "000081ED", 5, 6, "bin/a\0hello\0\0\0"),
            entry(3, "0000A1FF", 5, 2, "b\0bin/a\0\0\0"),
        ];
        let end = format!(
            "070701{:08X}{}00000001{}{:08X}{}TRAILER!!!\0\0\0\0",
            4,
            zeros(3),
            zeros(6),
            11,
            zeros(1)
        );
        let text = String::from_utf8(bytes).expect("headers and contents are ASCII");
        assert_eq!(text, expected.concat() + &end);
        assert_eq!(text.len() % 4, 0);
    }
}
