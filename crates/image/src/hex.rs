//! Bytes as hexadecimal text.

/// Bytes as hexadecimal digits without separators, like build-ids.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
