//! Inspects a process and its modules from outside, without the product's own code.

use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file offset of the first byte of a symbol.
pub(crate) fn file_offset(module: &Path, symbol: &str) -> Option<u64> {
    let bytes = std::fs::read(module).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let address = address_in(&file, symbol)?;
    file.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        (segment.address()..segment.address() + size)
            .contains(&address)
            .then(|| address - segment.address() + offset)
    })
}

/// The address of a symbol, as the file gives it.
pub(crate) fn symbol_address(module: &Path, symbol: &str) -> Option<u64> {
    let bytes = std::fs::read(module).ok()?;
    address_in(&object::File::parse(&*bytes).ok()?, symbol)
}

/// The address of a byte of the file that is loaded with its text, as given in the file.
pub(crate) fn address_of_offset(module: &Path, offset: u64) -> Option<u64> {
    let bytes = std::fs::read(module).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    file.segments().find_map(|segment| {
        let (start, size) = segment.file_range();
        (start..start + size).contains(&offset).then(|| offset - start + segment.address())
    })
}

fn address_in(file: &object::File<'_>, symbol: &str) -> Option<u64> {
    let mut symbols = file.symbols().chain(file.dynamic_symbols());
    symbols.find(|each| each.is_definition() && each.name() == Ok(symbol)).map(|each| each.address())
}

/// One line of /proc/PID/maps.
struct Mapping {
    start: u64,
    end: u64,
    executable: bool,
    offset: u64,
    path: String,
}

fn mappings(pid: u32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let executable = fields.next()?.contains('x');
        let offset = fields.next()?;
        let path = fields.nth(2).unwrap_or_default().to_string();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Mapping { start: hex(start)?, end: hex(end)?, executable, offset: hex(offset)?, path })
    };
    text.lines().filter_map(parse).collect()
}

/// The address of a file's byte in a process that has it mapped executable.
pub(crate) fn site_address(pid: u32, module: &Path, offset: u64) -> Option<u64> {
    let module = module.canonicalize().ok()?;
    mappings(pid)
        .iter()
        .filter(|each| each.executable && Path::new(&each.path) == module)
        .find(|each| (each.offset..each.offset + (each.end - each.start)).contains(&offset))
        .map(|each| each.start + (offset - each.offset))
}

/// Reads memory of a process.
pub(crate) fn memory(pid: u32, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, address)?;
    Ok(bytes)
}

/// Compares every executable mapping of a process with its file; lists the bytes that differ, and
/// the executable mappings without a file.
pub(crate) fn text_differences(pid: u32) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compared = 0;
    for mapping in mappings(pid).iter().filter(|each| each.executable) {
        if mapping.path == "[vdso]" || mapping.path == "[vsyscall]" {
            continue;
        }
        let Ok(file) = File::open(&mapping.path) else {
            differences.push(format!(
                "{:x}-{:x} executable, of no file: {}",
                mapping.start, mapping.end, mapping.path
            ));
            continue;
        };
        let now =
            memory(pid, mapping.start, (mapping.end - mapping.start) as usize).expect("text can be read");
        let mut original = vec![0; now.len()];
        let size = file.metadata().map_or(0, |data| data.len()).saturating_sub(mapping.offset);
        let inside = original.len().min(size as usize);
        file.read_exact_at(&mut original[..inside], mapping.offset).expect("the file can be read");
        compared += inside;
        let differ = now.iter().zip(&original).enumerate().filter(|(_, (now, original))| now != original);
        differences.extend(differ.map(|(at, (now, original))| {
            format!(
                "{} + {:x}: {now:02x}, in the file {original:02x}",
                mapping.path,
                mapping.offset + at as u64
            )
        }));
    }
    assert!(compared > 0, "process {pid} has no text to compare");
    differences
}

/// Whether any thread of a process is traced.
pub(crate) fn is_traced(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .any(|status| status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")))
}

/// The differences of a process's text from its files. Mappings without a file are not counted:
/// those of a killed tracer stay.
pub(crate) fn changed_text(pid: u32) -> Vec<String> {
    text_differences(pid).into_iter().filter(|difference| !difference.contains("of no file")).collect()
}
