//! Where the debug information of a module may be, if it is in a file of its own.
//!
//! | file | how it is known |
//! |---|---|
//! | `/usr/lib/debug/.build-id/ab/cdef.debug` | the module's build-id: packages of debug information |
//! | `CACHE/abcdef/debuginfo` | the same: what a client of debuginfod servers has fetched |
//! | beside the module, in `.debug`, below `/usr/lib/debug` | `.gnu_debuglink`: a name and a checksum |
//!
//! Sources: "Debug Information in Separate Files" in gdb's manual; debuginfod_find_debuginfo(3) for
//! the cache.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::build_id;
use super::headers::Headers;
use super::hex::hex;
use super::source::{FileId, Source, open_regular};

/// The most bytes of `.gnu_debuglink`: a name, and four bytes.
const SECTION: u64 = 4096;
/// The largest file of which the checksum is computed.
const FILE: u64 = 1 << 30;
/// Where files of debug information are installed, below it as in the file system.
const INSTALLED: &str = "/usr/lib/debug";
/// The most bytes of a build-id that names files.
const BUILD_ID: usize = 65;

/// A file that may have a module's debug information.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DebugFile {
    path: PathBuf,
    /// The checksum of its contents, where the module names it.
    checksum: Option<u32>,
}

/// The files that may have a module's debug information, those first that are looked at first.
pub(crate) fn debug_files(source: &Source, headers: &Headers, build_id: Option<&[u8]>) -> Vec<DebugFile> {
    let named = build_id.into_iter().flat_map(|build_id| {
        let installed = installed(Path::new(INSTALLED), build_id);
        let cached =
            cache(|name| env::var_os(name).map(PathBuf::from)).and_then(|cache| cached(&cache, build_id));
        installed.into_iter().chain(cached)
    });
    let named = named.map(|path| DebugFile { path, checksum: None });
    let linked = link(source, headers).into_iter().flat_map(|(name, checksum)| {
        let file = move |path| DebugFile { path, checksum: Some(checksum) };
        linked(source.path(), &name).into_iter().map(file)
    });
    named.chain(linked).filter(|file| file.path != source.path()).collect()
}

impl DebugFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, if it is there and of the same build as a module: it has the same build-id or, if
    /// there is none, the checksum.
    pub(crate) fn open(&self, build_id: Option<&[u8]>) -> Option<(File, FileId)> {
        let (file, id) = open_regular(&self.path).ok()?;
        let source = Source::file(&self.path, file.try_clone().ok()?, id.size);
        let headers = Headers::read(&source).ok()?;
        let is_same = match build_id {
            Some(_) => build_id::build_id(&source, &headers).as_deref() == build_id,
            None => id.size <= FILE && self.checksum.is_some_and(|sum| checksum(&file) == Some(sum)),
        };
        is_same.then_some((file, id))
    }
}

fn installed(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let is_name = !rest.is_empty() && build_id.len() <= BUILD_ID;
    is_name.then(|| root.join(".build-id").join(hex(&[*first])).join(format!("{}.debug", hex(rest))))
}

/// The folder of a debuginfod client's cache, from variables of the environment.
fn cache(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| path.is_absolute());
    if let Some(path) = set("DEBUGINFOD_CACHE_PATH") {
        return Some(path);
    }
    let old = set("HOME").map(|home| home.join(".debuginfod_client_cache")).filter(|path| path.is_dir());
    let new = || {
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        caches.map(|caches| caches.join("debuginfod_client"))
    };
    old.or_else(new)
}

fn cached(cache: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let is_name = (2..=BUILD_ID).contains(&build_id.len());
    is_name.then(|| cache.join(hex(build_id)).join("debuginfo"))
}

/// The name and the checksum in `.gnu_debuglink`.
fn link(source: &Source, headers: &Headers) -> Option<(PathBuf, u32)> {
    let section = headers.section(".gnu_debuglink")?;
    let bytes = source.read(".gnu_debuglink", section.offset, section.size, SECTION).ok()?;
    parse_link(&bytes).map(|(name, checksum)| (PathBuf::from(name), checksum))
}

/// The name, and the checksum behind it, at a multiple of four bytes.
fn parse_link(section: &[u8]) -> Option<(&OsStr, u32)> {
    let end = section.iter().position(|byte| *byte == 0)?;
    let name = OsStr::from_bytes(&section[..end]);
    let checksum = section.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    // A name only: what a module says must not lead anywhere else.
    let is_name = Path::new(name).file_name() == Some(name);
    is_name.then_some((name, u32::from_le_bytes(*checksum)))
}

/// Where gdb looks for the file that a module names, in this order.
fn linked(module: &Path, name: &Path) -> Vec<PathBuf> {
    let Some(directory) = module.parent() else { return Vec::new() };
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let below = absolute.strip_prefix("/").unwrap_or(&absolute);
    vec![
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(INSTALLED).join(below).join(name),
    ]
}

/// The CRC-32 of a file, as in zlib.
fn checksum(mut file: &File) -> Option<u32> {
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
    fn a_link_is_a_name_and_a_checksum() {
        let parsed =
            |bytes: &'static [u8]| parse_link(bytes).map(|(name, sum)| (name.to_str().unwrap(), sum));
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
            assert_eq!(parsed(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn linked_files_are_beside_their_modules_or_below_the_root_of_all() {
        let found = linked(Path::new("/nowhere/app"), Path::new("app.debug"));
        let expected =
            ["/nowhere/app.debug", "/nowhere/.debug/app.debug", "/usr/lib/debug/nowhere/app.debug"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_build_id_names_files() {
        let id = [0xab, 0x01, 0xff];
        assert_eq!(installed(Path::new("/d"), &id).unwrap(), Path::new("/d/.build-id/ab/01ff.debug"));
        assert_eq!(cached(Path::new("/c"), &id).unwrap(), Path::new("/c/ab01ff/debuginfo"));
        for id in [&[0xab][..], &[], &[7; 66]] {
            assert_eq!((installed(Path::new("/d"), id), cached(Path::new("/c"), id)), (None, None));
        }
    }

    #[test]
    fn a_cache_is_where_the_environment_has_it() {
        let scratch = testing::Scratch::new();
        let home = scratch.path().to_owned();
        let of = |set: &[(&str, &Path)]| {
            cache(|name| set.iter().find(|(known, _)| *known == name).map(|(_, path)| path.to_path_buf()))
        };
        let (cache_path, xdg) =
            (("DEBUGINFOD_CACHE_PATH", Path::new("/c")), ("XDG_CACHE_HOME", Path::new("/x")));
        assert_eq!(of(&[cache_path, xdg, ("HOME", &home)]), Some(PathBuf::from("/c")));
        assert_eq!(of(&[xdg, ("HOME", &home)]), Some(PathBuf::from("/x/debuginfod_client")));
        assert_eq!(of(&[("HOME", &home)]), Some(home.join(".cache/debuginfod_client")));
        assert_eq!(of(&[("HOME", Path::new("relative"))]), None);
        assert_eq!(of(&[]), None);
        std::fs::create_dir(home.join(".debuginfod_client_cache")).unwrap();
        assert_eq!(of(&[xdg, ("HOME", &home)]), Some(home.join(".debuginfod_client_cache")));
    }

    #[test]
    fn the_checksum_is_that_of_zlib() {
        let scratch = testing::Scratch::new();
        let path = scratch.path().join("file");
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(checksum(&File::open(path).unwrap()), Some(0xcbf4_3926));
    }
}
