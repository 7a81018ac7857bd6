//! A counter of two bytes in the data of a process.

use process::Memory;

/// Its bytes.
pub(crate) const BYTES: u64 = 2;

/// Its value, unless it cannot be read.
pub(crate) fn value(memory: &Memory, address: u64) -> Option<u16> {
    let mut bytes = [0; BYTES as usize];
    memory.peek(address, &mut bytes).ok()?;
    Some(u16::from_le_bytes(bytes))
}

/// Counts it down. One that is 0 was not counted up.
pub(crate) fn lower(memory: &Memory, address: u64) {
    if let Some(count) = value(memory, address).filter(|count| *count > 0) {
        // Fails only if the process is gone or has unmapped the page.
        let _ = memory.poke(address, &(count - 1).to_le_bytes());
    }
}
