//! Bytes as text.

/// Bytes as digits, two each and nothing between them: as build-ids are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
