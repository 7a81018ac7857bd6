//! Execution counts of instructions by callgrind, a simulation that does not change the program.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::path::Path;

/// Reads a file of `callgrind --dump-instr=yes --skip-plt=no`: the executions of each instruction
/// of the object, by its address in the object's file.
///
/// A line of costs has an address, a line number and the executed instructions; the first two are
/// absolute, or relative to the line before (`+3`, `-2`, `*`). The line after `calls=` has the cost
/// of the callee, not of the instruction.
///
/// # Errors
/// If the file cannot be read, or has another format.
pub(super) fn read(file: impl BufRead, object: &Path) -> io::Result<HashMap<u64, u64>> {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut counts = HashMap::new();
    let (mut wanted, mut inclusive, mut address) = (false, false, 0u64);
    for line in file.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(value) = line.strip_prefix("ob=") {
            // `(3) /lib/libc.so.6` where first named, then `(3)`.
            let (number, name) = value.split_once(' ').unwrap_or((value, ""));
            if !name.is_empty() {
                names.insert(number.to_owned(), name.to_owned());
            }
            let name = names.get(number).map_or(value, String::as_str);
            wanted = Path::new(name) == object;
        } else if let Some(value) = line.strip_prefix("cob=") {
            // The object of a called function: it may be named here first.
            if let Some((number, name)) = value.split_once(' ') {
                names.insert(number.to_owned(), name.to_owned());
            }
        } else if line.starts_with("calls=") {
            inclusive = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let bad = || io::Error::other(format!("not a line of callgrind's: {line}"));
            let mut words = line.split(' ');
            address = position(words.next().unwrap_or(""), address).ok_or_else(bad)?;
            let count: u64 = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            if wanted && !inclusive {
                *counts.entry(address).or_insert(0) += count;
            }
            inclusive = false;
        }
    }
    Ok(counts)
}

fn position(word: &str, last: u64) -> Option<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match word.as_bytes().first()? {
        b'*' => Some(last),
        b'+' => Some(last.wrapping_add(number(&word[1..])?)),
        b'-' => Some(last.wrapping_sub(number(&word[1..])?)),
        _ => number(word),
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::path::Path;

    #[test]
    fn costs_are_added_and_calls_are_not() {
        let text = "positions: instr line\nevents: Ir\n\nob=(3) /lib/libc.so.6\nfl=(1) x.c\nfn=(1) f\n\
            0x100 37 6\n+4 +3 6\ncob=(4) /bin/p\ncfn=(2) g\ncalls=2 0x9000 4\n* 40 700\n+5 * 6\n\n\
            ob=(4)\nfn=(2)\n0x9000 1 2\n\nob=(3)\nfn=(1)\n0x104 3 1\n-4 3 1\n";
        let counts = read(text.as_bytes(), Path::new("/lib/libc.so.6")).unwrap();
        let mut counts: Vec<(u64, u64)> = counts.into_iter().collect();
        counts.sort_unstable();
        assert_eq!(counts, [(0x100, 7), (0x104, 7), (0x109, 6)]);
        let other = read(text.as_bytes(), Path::new("/bin/p")).unwrap();
        assert_eq!(other.into_iter().collect::<Vec<_>>(), [(0x9000, 2)]);
    }
}
