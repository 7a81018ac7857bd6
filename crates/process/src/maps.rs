//! The memory mappings of a process, as `/proc/PID/maps` lists them.
//!
//! ```text
//! 7f1c22a28000-7f1c22b9d000 r-xp 00028000 fe:00 1234   /usr/lib/x86_64-linux-gnu/libc.so.6
//! start        end          rights offset device inode path
//! ```
//!
//! The kernel writes a newline in a path as `\012` and appends ` (deleted)` to the path of an
//! unlinked file. An existing file whose own name ends that way looks the same.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::Obstacle;
use crate::module::ModuleError;
use crate::procfs::read_to_end;

/// The most bytes of a list of mappings that are read. The kernel's default limit is 65,530
/// mappings (`vm.max_map_count`), of some hundred bytes each.
const MAPS: u64 = 1 << 30;

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The process may read it.
    pub readable: bool,
    /// The process may write it.
    pub writable: bool,
    /// The process may execute it.
    pub executable: bool,
    /// Writes reach the file, or the processes it is shared with (MAP_SHARED).
    pub shared: bool,
    /// The offset in the file at which it starts, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device; (0, 0) for anonymous memory.
    pub device: (u32, u32),
    /// The file's inode; 0 for anonymous memory.
    pub inode: u64,
    /// The file's path in the process's own mount namespace, without ` (deleted)`.
    pub path: Option<PathBuf>,
    /// The kernel's name of a mapping without a file: `[vdso]`, `[heap]`, `[stack]`, `[anon:name]`.
    pub label: Option<String>,
    /// The file has been unlinked.
    pub deleted: bool,
}

impl Mapping {
    /// A made-up mapping of memory without a file, readable and writable.
    pub fn anonymous(start: u64, end: u64, label: Option<&str>) -> Mapping {
        Mapping {
            start,
            end,
            readable: true,
            writable: true,
            executable: false,
            shared: false,
            offset: 0,
            device: (0, 0),
            inode: 0,
            path: None,
            label: label.map(str::to_owned),
            deleted: false,
        }
    }

    /// Whether it contains an address.
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The mappings of a process, by address. They change while the process runs: each mapping is as it
/// was at some moment, but the list may mix two moments.
///
/// # Errors
///
/// The process does not exist, belongs to another user, or has been replaced by one that may not be
/// read.
pub fn maps(pid: i32) -> Result<Vec<Mapping>, ModuleError> {
    let action = |what: &str| format!("{what} the list of mappings");
    let failed = |what: &str, cause| ModuleError::Process { pid, action: action(what), cause };
    let file = File::open(format!("/proc/{pid}/maps")).map_err(|cause| match cause.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => ModuleError::Forbidden { pid, obstacle: Obstacle::to(pid) },
        _ => failed("open", cause),
    })?;
    let text = read_to_end(file).map_err(|cause| failed("read", cause))?;
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line);
                failed("parse", std::io::Error::other(format!("unexpected line {line:?}")))
            })
        })
        .collect()
}

/// A mapping with its flags from `smaps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingWithFlags {
    /// The mapping.
    pub mapping: Mapping,
    /// It is left out of core dumps: madvise(MADV_DONTDUMP), or device memory, which must not be
    /// read.
    pub undumpable: bool,
    /// A child has it as zeros: madvise(MADV_WIPEONFORK).
    pub wiped: bool,
}

/// The mappings of a process with their flags, from `/proc/PID/smaps`. The kernel counts all pages
/// of the process for it, which takes milliseconds per GiB.
///
/// # Errors
///
/// As [`maps`].
pub fn maps_with_flags(pid: i32) -> Result<Vec<MappingWithFlags>, ModuleError> {
    let failed = |what: &str, cause| ModuleError::Process {
        pid,
        action: format!("{what} the flags of the mappings"),
        cause,
    };
    let file = File::open(format!("/proc/{pid}/smaps")).map_err(|cause| failed("open", cause))?;
    let mut text = BufReader::new(file.take(MAPS));
    let mut marked: Vec<MappingWithFlags> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line).map_err(|cause| failed("read", cause))? == 0 {
            return Ok(marked);
        }
        mark(line.strip_suffix(b"\n").unwrap_or(&line), &mut marked);
    }
}

/// Parses one line of `smaps`: it begins a mapping, or describes the last one.
fn mark(line: &[u8], marked: &mut Vec<MappingWithFlags>) {
    if let Some(flags) = line.strip_prefix(b"VmFlags:") {
        let mut flags = flags.split(|byte| *byte == b' ');
        if let Some(last) = marked.last_mut() {
            last.undumpable = flags.clone().any(|flag| matches!(flag, b"dd" | b"io" | b"pf"));
            last.wiped = flags.any(|flag| flag == b"wf");
        }
    } else if let Some(mapping) = parse(line) {
        marked.push(MappingWithFlags { mapping, undumpable: false, wiped: false });
    }
}

/// Parses one line of `maps`.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let range = field(&mut rest)?;
    let rights = field(&mut rest)?.as_bytes();
    let offset = u64::from_str_radix(field(&mut rest)?, 16).ok()?;
    let device = field(&mut rest)?;
    let inode = field(&mut rest)?.parse().ok()?;
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let has = |index: usize, letter: u8| rights.get(index) == Some(&letter);
    let mut mapping = Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable: has(0, b'r'),
        writable: has(1, b'w'),
        executable: has(2, b'x'),
        shared: has(3, b's'),
        offset,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        path: None,
        label: None,
        deleted: false,
    };
    let name = &rest[rest.iter().take_while(|byte| **byte == b' ').count()..];
    match name.first() {
        None => {}
        Some(b'/') => {
            let alive = name.strip_suffix(b" (deleted)");
            mapping.deleted = alive.is_some();
            mapping.path = Some(unescape(alive.unwrap_or(name)));
        }
        Some(_) => mapping.label = Some(String::from_utf8_lossy(name).into_owned()),
    }
    Some(mapping)
}

/// Takes a word and the space after it off the line.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = tail.get(1..).unwrap_or_default();
    std::str::from_utf8(word).ok().filter(|word| !word.is_empty())
}

fn unescape(name: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = b"\\012";
    if !name.windows(NEWLINE.len()).any(|window| window == NEWLINE) {
        return PathBuf::from(OsStr::from_bytes(name));
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(byte) = rest.first() {
        match rest.strip_prefix(NEWLINE) {
            Some(tail) => {
                plain.push(b'\n');
                rest = tail;
            }
            None => {
                plain.push(*byte);
                rest = &rest[1..];
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file() {
        let line = b"7f1c22a28000-7f1c22b9d000 r-xp 00028000 fe:00 1234       /usr/lib/my lib.so (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f1c_22a2_8000, 0x7f1c_22b9_d000));
        assert!(mapping.readable && mapping.executable && !mapping.writable && !mapping.shared);
        assert_eq!((mapping.offset, mapping.device, mapping.inode), (0x28000, (0xfe, 0), 1234));
        assert_eq!(mapping.path.as_deref(), Some(Path::new("/usr/lib/my lib.so")));
        assert!(mapping.deleted);
    }

    #[test]
    fn a_newline_in_a_name() {
        let mapping = parse(b"1000-2000 rw-s 00000000 00:01 7 /tmp/a\\012b\\01").unwrap();
        assert_eq!(mapping.path.as_deref(), Some(Path::new("/tmp/a\nb\\01")));
        assert!(mapping.shared && !mapping.deleted);
    }

    #[test]
    fn no_file() {
        let anonymous = parse(b"1000-2000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.path, anonymous.label), (None, None));
        let vdso = parse(b"7ffd1000-7ffd3000 r-xp 00000000 00:00 0                          [vdso]").unwrap();
        assert_eq!((vdso.path, vdso.label.as_deref()), (None, Some("[vdso]")));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["", "x", "1000 r-xp 0 0:0 0", "1000-2000", "1000-2000 r-xp 0 00 0", "1-zz r-xp 0 0:0 0"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn our_own() {
        let here = our_own as *const () as u64;
        let maps = maps(std::process::id() as i32).unwrap();
        let mapping = maps.iter().find(|mapping| mapping.contains(here)).unwrap();
        assert!(mapping.executable);
        assert_eq!(mapping.path.as_deref(), Some(std::env::current_exe().unwrap().as_path()));
        assert!(maps.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn marks() {
        let mut all = Vec::new();
        let text: &[u8] = b"1000-2000 r--p 00000000 00:00 0                          [vvar]\n\
                     Size:                  4 kB\nVmFlags: rd mr pf io de dd sd \n\
                     2000-3000 rw-p 00000000 00:00 0 \nRss: 4 kB\nVmFlags: rd wr mr mw me ac sd";
        for line in text.split(|byte| *byte == b'\n') {
            mark(line, &mut all);
        }
        let seen: Vec<_> = all.iter().map(|one| (one.mapping.start, one.undumpable)).collect();
        assert_eq!(seen, [(0x1000, true), (0x2000, false)]);
    }

    #[test]
    fn our_own_marks() {
        let marked = maps_with_flags(std::process::id() as i32).unwrap();
        let data = &raw const marked as u64;
        let stack = marked.iter().find(|one| one.mapping.contains(data)).expect("the stack is mapped");
        assert!(!stack.undumpable && stack.mapping.writable);
        let vvar = marked.iter().find(|one| one.mapping.label.as_deref() == Some("[vvar]"));
        assert!(vvar.is_none_or(|one| one.undumpable));
    }

    #[test]
    fn no_such_process() {
        let error = maps(i32::MAX).unwrap_err().to_string();
        assert!(error.contains("2147483647") && error.contains("mappings"), "{error}");
    }
}
