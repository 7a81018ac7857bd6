//! The auxiliary vector: what the kernel told the process when it began.

use std::io::Read;

use elfcore::Elf64_Auxv;

/// Bytes of the auxiliary vector that are read, at most; the kernel's has about twenty entries of
/// 16 bytes.
const AUXILIARY: u64 = 1 << 14;

/// The auxiliary vector that the kernel gave to the process: pairs of words.
pub(super) fn auxiliary_vector(tid: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{tid}/auxv")) {
        // What cannot be read is left out; debuggers can do without.
        let _ = file.take(AUXILIARY).read_to_end(&mut bytes);
    }
    bytes
}

/// The auxiliary vector of a 64-bit process.
pub(super) fn pairs(bytes: &[u8]) -> Vec<Elf64_Auxv> {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let pairs = words.as_chunks().0.iter();
    pairs.map(|&[a_type, a_val]| Elf64_Auxv { a_type, a_val }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::memory::PAGE;

    #[test]
    fn the_auxiliary_vector_tells_the_size_of_a_page() {
        let vector = pairs(&auxiliary_vector(std::process::id() as i32));
        let page = vector.iter().find(|entry| entry.a_type == libc::AT_PAGESZ).expect("every process has it");
        assert_eq!(page.a_val, PAGE);
        assert_eq!(vector.last().map(|entry| entry.a_type), Some(libc::AT_NULL));
    }
}
