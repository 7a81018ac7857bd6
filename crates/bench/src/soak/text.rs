//! Compares the code of a process with its files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes to compare at once.
const PIECE: u64 = 1 << 20;

/// The first difference between the executable file mappings of a process and their files, as text.
/// `None` also if the process has ended.
pub(super) fn difference(pid: u32) -> Option<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    maps.lines().find_map(|line| compare(&memory, line).ok().flatten())
}

/// `START-END r-xp OFFSET DEVICE INODE PATH`
fn compare(memory: &File, line: &str) -> io::Result<Option<String>> {
    let mut words = line.split_ascii_whitespace();
    let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
        return Ok(None);
    };
    let Some(path) = words.nth(2).filter(|path| path.starts_with('/')) else { return Ok(None) };
    if !rights.contains('x') {
        return Ok(None);
    }
    let hexadecimal = |text| u64::from_str_radix(text, 16).map_err(io::Error::other);
    let (start, end) = range.split_once('-').ok_or_else(|| io::Error::other("no range"))?;
    let (start, end, offset) = (hexadecimal(start)?, hexadecimal(end)?, hexadecimal(offset)?);
    let file = File::open(path)?;
    let length = (end - start).min(file.metadata()?.len().saturating_sub(offset));
    let mut at = 0;
    while at < length {
        let piece = PIECE.min(length - at) as usize;
        let (mut live, mut original) = (vec![0; piece], vec![0; piece]);
        memory.read_exact_at(&mut live, start + at)?;
        file.read_exact_at(&mut original, offset + at)?;
        if let Some(place) = live.iter().zip(&original).position(|(live, original)| live != original) {
            let (is, was) = (live[place], original[place]);
            return Ok(Some(format!(
                "{path}+{:#x} is {is:#04x}, not {was:#04x}",
                offset + at + place as u64
            )));
        }
        at += piece as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_runs_what_its_files_have() {
        assert_eq!(super::difference(std::process::id()), None);
    }
}
