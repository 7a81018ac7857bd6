//! Finds the separate debug file that a file names in `.gnu_debuglink`: a name and a checksum
//! ("Debug Information in Separate Files" in gdb's manual).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::headers::Headers;
use super::source::{Source, open_regular};

/// The most bytes of the section: a name, and four bytes.
const SECTION: u64 = 4096;
/// The largest file of which the checksum is computed.
const FILE: u64 = 256 << 20;
/// Where files of debug information are installed, below it as in the file system.
const DEBUG_FILES: &str = "/usr/lib/debug";

/// Opens the file that a file's `.gnu_debuglink` names, if there is one with that checksum.
pub(crate) fn linked(source: &Source, headers: &Headers) -> Option<Source> {
    let section = headers.section(".gnu_debuglink")?;
    let bytes = source.read(".gnu_debuglink", section.offset, section.size, SECTION).ok()?;
    let (name, checksum) = parse(&bytes)?;
    places(source.path(), name).into_iter().find_map(|path| {
        let (file, id) = open_regular(&path).ok()?;
        let is_same = id.size <= FILE && checksum_of(&file) == Some(checksum);
        is_same.then(|| Source::file(&path, file, id.size))
    })
}

/// The name, and the checksum behind it, at a multiple of four bytes.
fn parse(section: &[u8]) -> Option<(&OsStr, u32)> {
    let end = section.iter().position(|byte| *byte == 0)?;
    let name = OsStr::from_bytes(&section[..end]);
    let checksum = section.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    // Not elsewhere: the file may be anybody's.
    let is_name = Path::new(name).file_name() == Some(name);
    is_name.then_some((name, u32::from_le_bytes(*checksum)))
}

/// Where the file may be.
fn places(module: &Path, name: &OsStr) -> Vec<PathBuf> {
    let Some(directory) = module.parent() else { return Vec::new() };
    let below = directory.strip_prefix("/").map(|directory| Path::new(DEBUG_FILES).join(directory));
    let beside = [directory.join(name), directory.join(".debug").join(name)];
    beside.into_iter().chain(below.ok().map(|directory| directory.join(name))).collect()
}

/// The CRC-32 of a file, as in zlib.
fn checksum_of(mut file: &File) -> Option<u32> {
    let mut table = [0u32; 256];
    for (byte, entry) in (0u32..).zip(&mut table) {
        *entry = (0..8).fold(byte, |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 });
    }
    let mut crc = u32::MAX;
    let mut bytes = vec![0; 64 << 10];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(!crc),
            count => {
                for byte in &bytes[..count] {
                    crc = crc >> 8 ^ table[usize::from(crc as u8 ^ byte)];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_name_and_a_checksum() {
        let parsed = |bytes: &'static [u8]| parse(bytes).map(|(name, sum)| (name.to_str().unwrap(), sum));
        assert_eq!(parsed(b"ls.debug\0\0\0\0\x01\x02\0\0"), Some(("ls.debug", 0x201)));
        assert_eq!(parsed(b"abc\0\x01\0\0\0"), Some(("abc", 1)));
        for bytes in [
            &b""[..],
            b"abc",
            b"abc\0",
            b"abc\0\x01\0",
            b"\0\0\0\0\x01\0\0\0",
            b"../x\0\0\0\0abcd",
            b"..\0\0abcd",
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_file_is_looked_for_beside_the_module_and_where_debug_files_are() {
        let expected = ["/usr/bin/x.debug", "/usr/bin/.debug/x.debug", "/usr/lib/debug/usr/bin/x.debug"];
        assert_eq!(places(Path::new("/usr/bin/x"), OsStr::new("x.debug")), expected.map(PathBuf::from));
    }

    #[test]
    fn the_checksum_is_that_of_zlib() {
        let scratch = testing::Scratch::new();
        let path = scratch.path().join("file");
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(checksum_of(&File::open(path).unwrap()), Some(0xcbf4_3926));
    }
}
