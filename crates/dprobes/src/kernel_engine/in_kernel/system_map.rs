//! The kernel's symbols from its `System.map`, the file of `--sym`, and how far the running kernel
//! is from it.
//!
//! ```text
//! ffffffff81000000 T _text        address as linked, kind, name
//! 0000000000014000 A irq_stack    not in the kernel's mapping: left out
//! ```
//!
//! The kernel is moved when it boots (KASLR). All of it moves by one distance, the slide: that of
//! `_text` in `/proc/kallsyms` or, if addresses are hidden there, of `_stext` in the notes for
//! crash dumps, VMCOREINFO, in `/proc/kcore`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::LittleEndian;
use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};

use super::symbols::{Symbol, Symbols};

/// The largest file: that of a kernel with everything built in has some 20 MiB.
const LARGEST: u64 = 256 << 20;
/// Where the kernel's mapping begins. What is below is no address in it.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// The kernel is moved by multiples of this.
const STEP: u64 = 2 << 20;
/// The most bytes of headers, and of notes, in `/proc/kcore`.
const HEADERS: usize = 1 << 16;
const NOTES: u64 = 1 << 20;

/// The symbols of a kernel as it was linked.
#[derive(Debug)]
pub(crate) struct SystemMap {
    path: PathBuf,
    symbols: Vec<Symbol>,
    /// The same where the running kernel has them, once that was asked for.
    running: OnceLock<Result<Vec<Symbol>, NotPlaced>>,
}

/// Why it is not known where the running kernel has the symbols of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kernel_engine) enum NotPlaced {
    /// This process cannot see where the kernel is.
    Unseen(String),
    /// The file is of another kernel.
    Other(String),
}

impl NotPlaced {
    /// The reason in words.
    pub(in crate::kernel_engine) fn reason(&self) -> &str {
        let (NotPlaced::Unseen(reason) | NotPlaced::Other(reason)) = self;
        reason
    }
}

impl SystemMap {
    /// Whether a file may be one: it begins as one does.
    pub(crate) fn is_one(path: &Path) -> bool {
        // More than a line: what follows the first may be cut.
        let mut start = Vec::new();
        let is_file = path.metadata().is_ok_and(|data| data.is_file());
        let read = is_file && File::open(path).is_ok_and(|it| it.take(4096).read_to_end(&mut start).is_ok());
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        read && str::from_utf8(line).ok().and_then(parse_line).is_some()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub(crate) fn read(path: &Path) -> Result<SystemMap, String> {
        let failed = |reason: &dyn std::fmt::Display| format!("--sym: {}: {reason}", printable::path(path));
        let file = File::open(path).map_err(|error| failed(&error))?;
        let data = file.metadata().map_err(|error| failed(&error))?;
        if !data.is_file() || data.len() > LARGEST {
            return Err(failed(&"a System.map is expected, a file of some megabytes"));
        }
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).map_err(|error| failed(&error))?;
        let symbols = parse(&text).map_err(|reason| failed(&reason))?;
        Ok(SystemMap { path: path.to_owned(), symbols, running: OnceLock::new() })
    }

    /// The symbols as the file has them, in its order.
    pub(in crate::kernel_engine) fn linked(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The symbols where the running kernel has them, in the file's order.
    ///
    /// # Errors
    /// The slide is not known, or the file is of another kernel.
    pub(in crate::kernel_engine) fn running(&self) -> Result<&[Symbol], &NotPlaced> {
        self.running.get_or_init(|| self.moved()).as_deref()
    }

    fn moved(&self) -> Result<Vec<Symbol>, NotPlaced> {
        let (slide, listed) = match Symbols::read(None) {
            Ok(listed) => (self.slide("_text", listed.first("_text"), "/proc/kallsyms")?, Some(listed)),
            Err(hidden) => {
                let start = vmcoreinfo().and_then(|notes| symbol_of(&notes, "_stext"));
                let start = start.map_err(|reason| {
                    NotPlaced::Unseen(format!(
                        "{}: where this kernel is, is not known: {hidden}; {reason}",
                        self.name()
                    ))
                })?;
                (self.slide("_stext", Some(start), "VMCOREINFO in /proc/kcore")?, None)
            }
        };
        let moved =
            |symbol: &Symbol| Symbol { address: symbol.address.wrapping_add(slide), ..symbol.clone() };
        let moved: Vec<Symbol> = self.symbols.iter().map(moved).collect();
        match listed.and_then(|listed| difference(&moved, listed.all())) {
            Some(difference) => Err(self.other_kernel(&difference)),
            None => Ok(moved),
        }
    }

    /// How far the kernel was moved: one of its symbols is there.
    fn slide(&self, name: &str, there: Option<u64>, by: &str) -> Result<u64, NotPlaced> {
        let there =
            there.ok_or_else(|| NotPlaced::Unseen(format!("{}: {by} has no `{name}`", self.name())))?;
        let linked = self.symbols.iter().find(|symbol| symbol.name == name);
        let linked =
            linked.ok_or_else(|| NotPlaced::Other(format!("{} has no `{name}`", self.name())))?.address;
        let slide = there.wrapping_sub(linked);
        match slide.is_multiple_of(STEP) {
            true => Ok(slide),
            false => Err(self.other_kernel(&format!(
                "`{name}` is at {linked:#x} there and at {there:#x} here, by {by}; a kernel moves by multiples of 2 MiB"
            ))),
        }
    }

    fn other_kernel(&self, difference: &str) -> NotPlaced {
        NotPlaced::Other(format!("{} is of another kernel than the running one: {difference}", self.name()))
    }

    fn name(&self) -> String {
        format!("--sym: {}", printable::path(&self.path))
    }
}

/// The symbols in the kernel's mapping.
fn parse(text: &[u8]) -> Result<Vec<Symbol>, String> {
    let mut symbols = Vec::new();
    let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
    for (number, line) in (1..).zip(lines) {
        let symbol = str::from_utf8(line).ok().and_then(parse_line).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
            let shown = printable::text(&shown).into_owned();
            format!(
                "line {number}, `{shown}`: an address, a letter and a name are expected, as in a System.map"
            )
        })?;
        if symbol.address >= KERNEL {
            symbols.push(symbol);
        }
    }
    Ok(symbols)
}

fn parse_line(line: &str) -> Option<Symbol> {
    let mut words = line.split(' ');
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let is_number = (8..=16).contains(&address.len()) && address.bytes().all(|it| it.is_ascii_hexdigit());
    let address = u64::from_str_radix(address, 16).ok().filter(|_| is_number)?;
    let is_kind = kind.len() == 1 && kind.bytes().all(|letter| letter.is_ascii_graphic());
    let is_code = matches!(kind, "t" | "T" | "w" | "W");
    let is_all = is_kind && !name.is_empty() && words.next().is_none();
    is_all.then(|| Symbol { address, name: name.to_owned(), is_code })
}

/// A function that is in two lists, once in each, at different addresses.
fn difference(moved: &[Symbol], listed: &[Symbol]) -> Option<String> {
    let by_name = |symbols: &[Symbol]| {
        let mut by_name: HashMap<String, Option<u64>> = HashMap::new();
        for symbol in symbols.iter().filter(|symbol| symbol.is_code) {
            let address = Some(symbol.address);
            by_name.entry(symbol.name.clone()).and_modify(|it| *it = None).or_insert(address);
        }
        by_name
    };
    let here = by_name(listed);
    let mut differences = by_name(moved).into_iter().filter_map(|(name, address)| {
        let (there, here) = (address?, here.get(&name).copied().flatten()?);
        (there != here).then_some((there, here, name))
    });
    let first = differences.next()?;
    let (there, here, name) = differences.fold(first, Ord::min);
    let name = printable::text(&name);
    Some(format!("`{name}` would be at {there:#x}, and is at {here:#x} by /proc/kallsyms"))
}

/// The notes of the running kernel for crash dumps: lines of names and values.
///
/// # Errors
/// They cannot be read, or are not there.
fn vmcoreinfo() -> Result<String, String> {
    const PATH: &str = "/proc/kcore";
    let failed = |error: std::io::Error| format!("{PATH}: {error}");
    let file = File::open(PATH).map_err(failed)?;
    let mut head = vec![0; HEADERS];
    let length = file.read_at(&mut head, 0).map_err(failed)?;
    let (offset, size) = notes_at(&head[..length]).ok_or_else(|| format!("{PATH} has no notes"))?;
    let mut notes = vec![0; size as usize];
    let length = file.read_at(&mut notes, offset).map_err(failed)?;
    noted(&notes[..length]).ok_or_else(|| format!("{PATH} has no VMCOREINFO (Linux 4.19 and later have it)"))
}

/// Where the notes of a core file are, and how many bytes.
fn notes_at(head: &[u8]) -> Option<(u64, u64)> {
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let mut segments = header.program_headers(LittleEndian, head).ok()?.iter();
    let notes = segments.find(|segment| segment.p_type(LittleEndian) == PT_NOTE)?;
    Some((notes.p_offset(LittleEndian), notes.p_filesz(LittleEndian).min(NOTES)))
}

/// The text of the note VMCOREINFO.
fn noted(notes: &[u8]) -> Option<String> {
    let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"VMCOREINFO" {
            return Some(String::from_utf8_lossy(note.desc()).into_owned());
        }
    }
    None
}

/// The address of a symbol that the notes tell: `SYMBOL(_stext)=ffffffff9d000000`.
fn symbol_of(notes: &str, name: &str) -> Result<u64, String> {
    let wanted = format!("SYMBOL({name})=");
    let value = notes.lines().find_map(|line| line.strip_prefix(&wanted));
    let address = value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
    address.ok_or_else(|| format!("VMCOREINFO in /proc/kcore does not say where `{name}` is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data\n0000000001000000 A phys_startup_64\n\
        ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000010 t f\nffffffff81000020 t f\n\
        ffffffff81000030 W g\nffffffff82000000 D jiffies\n";

    fn map(text: &[u8]) -> SystemMap {
        SystemMap {
            path: "System.map".into(),
            symbols: parse(text).expect("it is one"),
            running: OnceLock::new(),
        }
    }

    #[test]
    fn symbols_of_the_kernels_mapping_are_read() {
        let symbols = map(TEXT).symbols;
        assert_eq!(symbols.len(), 6);
        let code: Vec<&str> = symbols.iter().filter(|it| it.is_code).map(|it| &*it.name).collect();
        assert_eq!(code, ["_stext", "_text", "f", "f", "g"]);
    }

    #[test]
    fn what_is_no_system_map_is_refused_with_its_line() {
        let lines = [
            &b""[..],
            b"\n",
            b"\x7fELF\x02\x01\x01",
            b"ffffffff81000000 T",
            b"ffffffff81000000 T ",
            b"ffffffff81000000 T f [module]",
            b"ffffffff81000000 TT f",
            b"+fffffff81000000 T f",
            b"0ffffffff81000000 T f",
            b"ffffffff81000000  T f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff T f",
        ];
        for line in lines {
            let text = [b"ffffffff81000000 T _text\n", line, b"\nffffffff81000010 T g\n"].concat();
            let reason = parse(&text).expect_err("it is none");
            assert!(reason.starts_with("line 2, "), "{line:?}: {reason}");
        }
        let long = parse(&vec![b'x'; 1 << 20]).expect_err("it is none");
        assert!(long.len() < 300, "{long}");
    }

    #[test]
    fn a_file_is_known_by_its_first_line() {
        let scratch = testing::Scratch::new();
        let is_one = |text: &[u8]| {
            let path = scratch.path().join("file");
            std::fs::write(&path, text).expect("it can be written");
            SystemMap::is_one(&path)
        };
        assert!(is_one(TEXT) && is_one(b"ffffffff81000000 T _text"));
        for text in [&b""[..], b"\n", b"\x7fELF\x02\x01\x01", b"T f\n", b"name = vmlinux\n", &[b'f'; 5000]] {
            assert!(!is_one(text), "{text:?}");
        }
        assert!(!SystemMap::is_one(scratch.path()) && !SystemMap::is_one(Path::new("/dev/zero")));
        assert!(!SystemMap::is_one(Path::new("/none")));
    }

    #[test]
    fn the_slide_is_that_of_a_symbol() {
        let map = map(TEXT);
        let by = |there| map.slide("_text", there, "a list");
        assert_eq!(by(Some(0xffff_ffff_9d00_0000)), Ok(0x1c00_0000));
        assert_eq!(by(Some(0xffff_ffff_8080_0000)), Ok(0x80_0000u64.wrapping_neg()));
        let other = by(Some(0xffff_ffff_9d00_1000)).expect_err("no kernel is moved so");
        assert!(matches!(&other, NotPlaced::Other(why) if why.contains("another kernel")), "{other:?}");
        let unseen = by(None).expect_err("it is not known");
        assert!(
            matches!(&unseen, NotPlaced::Unseen(why) if why.contains("a list has no `_text`")),
            "{unseen:?}"
        );
        let without = map.slide("_end", Some(0), "a list").expect_err("the file has none");
        assert!(matches!(&without, NotPlaced::Other(why) if why.ends_with("has no `_end`")), "{without:?}");
    }

    #[test]
    fn functions_elsewhere_are_a_difference_but_not_names_of_several() {
        let ours = map(TEXT).symbols;
        assert_eq!(difference(&ours, &ours), None);
        let theirs = b"ffffffff81000000 T _text\nffffffff81000018 t f\nffffffff81000030 t other\n";
        assert_eq!(difference(&ours, &map(theirs).symbols), None);
        let theirs = b"ffffffff81000000 T _text\nffffffff81000038 t g\n";
        let told = difference(&ours, &map(theirs).symbols).expect("g is elsewhere");
        assert!(told.starts_with("`g` would be at 0xffffffff81000030"), "{told}");
    }

    #[test]
    fn notes_of_crash_dumps_tell_where_the_kernel_is() {
        let note = |name: &[u8], text: &[u8]| {
            let mut bytes = Vec::new();
            let sizes = [name.len() as u32 + 1, text.len() as u32, 0];
            sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            for part in [&[name, b"\0"].concat(), text] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let text = b"OSRELEASE=6.1.0\nSYMBOL(_stext)=ffffffff9d000000\nKERNELOFFSET=1c000000\n";
        let notes = [note(b"CORE", b"abc"), note(b"VMCOREINFO", text)].concat();
        let found = noted(&notes).expect("it is there");
        assert_eq!(symbol_of(&found, "_stext"), Ok(0xffff_ffff_9d00_0000));
        assert!(symbol_of(&found, "_text").is_err());
        assert!(symbol_of("SYMBOL(_stext)=-1\n", "_stext").is_err());
        for cut in 0..notes.len() {
            // Whatever is missing, nothing else is found.
            assert!(noted(&notes[..cut]).is_none_or(|found| found.len() <= text.len()), "{cut}");
        }
        assert_eq!(notes_at(b"no core file"), None);
    }
}
