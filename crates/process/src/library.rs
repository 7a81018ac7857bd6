//! Finds the file of a library by its name as the dynamic linker does, without a process.
//!
//! It searches `/etc/ld.so.cache` (see ldconfig(8)), then the standard directories (ld.so(8)). It
//! ignores what a process adds: `LD_LIBRARY_PATH`, `DT_RUNPATH`, variants of a library for newer
//! processors.
//!
//! ```text
//! cache   "glibc-ld.so.cache1.1" | libraries 4 | bytes of strings 4 | 20 more
//! entry   flags 4 | name 4 | path 4 | OS version 4 | hwcap 8           name and path: from the start of "glibc..."
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use image::{Image, Machine};

const CACHE: &str = "/etc/ld.so.cache";
/// The most bytes of the cache that are read; it has some tens of thousands.
const MAX_CACHE_BYTES: u64 = 16 << 20;
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// The flags of the GNU C library's entries for x86-64 and for i386: the kind of library and the
/// required ABI.
const X86_64: u32 = 0x0303;
const I386: u32 = 0x0003;

/// The directories searched after the cache, as in the dynamic linkers of Debian, Fedora and
/// others.
const X86_64_DIRECTORIES: &[&str] =
    &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const I386_DIRECTORIES: &[&str] =
    &["/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu", "/lib32", "/usr/lib32", "/lib", "/usr/lib"];

/// The file of a library, by the name it is loaded by (`libc.so.6`): the first one for the machine
/// in the dynamic linker's cache or, after it, in the standard directories.
pub fn find_library(name: &str, machine: Machine) -> Option<PathBuf> {
    let (flags, directories) = match machine {
        Machine::X86_64 => (X86_64, X86_64_DIRECTORIES),
        Machine::I386 => (I386, I386_DIRECTORIES),
        Machine::Other(_) => return None,
    };
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let cached = in_cache(&cache(), |other| other == name.as_bytes(), flags).into_iter();
    let standard = directories.iter().map(|directory| Path::new(directory).join(name));
    cached.chain(standard).find(|path| Image::open(path).is_ok_and(|image| image.machine() == machine))
}

/// All files of a library in the dynamic linker's cache and the standard directories, for x86-64
/// and for i386. Its name may lack the version, or `.so` and the version: `libc.so`, `libc`. A file
/// that has several names is listed once.
pub fn libraries_named(name: &str) -> Vec<PathBuf> {
    let cache = cache();
    let is_named = |other: &[u8]| {
        str::from_utf8(other).is_ok_and(|other| other == name || is_without_version(other, name))
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for (flags, directories) in [(X86_64, X86_64_DIRECTORIES), (I386, I386_DIRECTORIES)] {
        let listed =
            directories.iter().flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten());
        let listed = listed.flatten().filter(|entry| is_named(entry.file_name().as_bytes()));
        for path in in_cache(&cache, is_named, flags).into_iter().chain(listed.map(|entry| entry.path())) {
            // A linker script, as `libc.so` is, is no library.
            if let Ok(path) = path.canonicalize()
                && !found.contains(&path)
                && Image::open(&path).is_ok()
            {
                found.push(path);
            }
        }
    }
    found
}

/// Whether a name is that of a library without `.so` and its version, or without all or part of its
/// version: `libc` or `libc.so` for `libc.so.6`.
pub(crate) fn is_without_version(library: &str, name: &str) -> bool {
    let has_so = name.ends_with(".so") || name.contains(".so.");
    library.strip_prefix(name).is_some_and(|rest| match has_so {
        true => {
            rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        }
        false => rest == ".so" || rest.starts_with(".so."),
    })
}

/// The dynamic linker's cache. An unreadable one counts as an empty one.
fn cache() -> Vec<u8> {
    let mut cache = Vec::new();
    if let Ok(file) = File::open(CACHE) {
        let _ = file.take(MAX_CACHE_BYTES).read_to_end(&mut cache);
    }
    cache
}

/// The paths that a cache has for the names that `is_named` accepts, in its order, without variants
/// for newer processors: which of them a process uses depends on its processor.
fn in_cache(cache: &[u8], is_named: impl Fn(&[u8]) -> bool, flags: u32) -> Vec<PathBuf> {
    // Older caches begin with a table in an older format, after which this one is aligned.
    let start = (0..cache.len()).step_by(4).find(|start| cache[*start..].starts_with(MAGIC));
    let Some(cache) = start.and_then(|start| cache.get(start..)) else { return Vec::new() };
    let word = |at: usize| cache.get(at..)?.first_chunk().map(|bytes: &[u8; 4]| u32::from_le_bytes(*bytes));
    let string = |at: u32| cache.get(at as usize..)?.split(|byte| *byte == 0).next();
    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    let table = cache.get(HEADER..).unwrap_or_default();
    let places = (0..count.min(table.len() / ENTRY)).map(|number| HEADER + number * ENTRY);
    let entries = places.filter(|place| word(*place) == Some(flags));
    let plain = entries.filter(|place| (word(place + 16), word(place + 20)) == (Some(0), Some(0)));
    let named = plain.filter(|place| word(place + 4).and_then(string).is_some_and(&is_named));
    let paths = named.filter_map(|place| word(place + 8).and_then(string));
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with these entries: flags, name, path, hwcap.
    fn cache(entries: &[(u32, &str, &str, u64)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let base = HEADER + entries.len() * ENTRY;
        for (flags, name, path, hwcap) in entries {
            let mut place = |text: &str| {
                let place = (base + strings.len()) as u32;
                strings.extend_from_slice(text.as_bytes());
                strings.push(0);
                place
            };
            for word in [*flags, place(name), place(path), 0] {
                table.extend_from_slice(&word.to_le_bytes());
            }
            table.extend_from_slice(&hwcap.to_le_bytes());
        }
        let mut cache = MAGIC.to_vec();
        cache.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        cache.resize(HEADER, 0);
        cache.extend(table);
        cache.extend(strings);
        cache
    }

    #[test]
    fn the_cache_gives_the_plain_entries_of_a_name_and_machine_in_its_order() {
        let cache = cache(&[
            (I386, "liba.so.1", "/32/liba.so.1", 0),
            (X86_64, "liba.so.1", "/v3/liba.so.1", 1 << 62),
            (X86_64, "liba.so.1", "/one/liba.so.1", 0),
            (X86_64, "liba.so", "/one/liba.so", 0),
            (X86_64, "liba.so.1", "/two/liba.so.1", 0),
        ]);
        let paths = |flags| in_cache(&cache, |name| name == b"liba.so.1", flags);
        assert_eq!(paths(X86_64), ["/one/liba.so.1", "/two/liba.so.1"].map(PathBuf::from));
        assert_eq!(paths(I386), ["/32/liba.so.1"].map(PathBuf::from));
        let mut after_old = b"ld.so-1.7.0\0\x01\0\0\0".to_vec();
        after_old.extend(&cache);
        assert_eq!(
            in_cache(&after_old, |name| name == b"liba.so", X86_64),
            ["/one/liba.so"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_damaged_cache_gives_nothing_and_never_panics() {
        let whole = cache(&[(X86_64, "liba.so.1", "/one/liba.so.1", 0)]);
        for end in 0..whole.len() {
            in_cache(&whole[..end], |name| name == b"liba.so.1", X86_64);
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] = 0xff;
            in_cache(&damaged, |name| name == b"liba.so.1", X86_64);
        }
        assert!(in_cache(&[0; 100], |name| name == b"liba.so.1", X86_64).is_empty());
    }

    #[test]
    fn the_c_library_of_this_machine_is_found_and_is_one() {
        let Some(path) = find_library("libc.so.6", Machine::X86_64) else { return };
        let image = Image::open(&path).expect("it was opened before");
        assert_eq!(image.soname(), Some("libc.so.6"), "{}", path.display());
        assert_eq!(find_library("libno-such.so.1", Machine::X86_64), None);
        assert_eq!(find_library("../libc.so.6", Machine::X86_64), None);
        let path = path.canonicalize().expect("it was opened before");
        for name in ["libc.so.6", "libc", "libc.so"] {
            assert!(libraries_named(name).contains(&path), "{name}: {:?}", libraries_named(name));
        }
        assert!(!libraries_named("lib").contains(&path) && libraries_named("../libc").is_empty());
    }
}
