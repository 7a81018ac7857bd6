//! Counts in messages, with the words that fit one and many.

/// `1 call is`, `2 calls are`: a number and the words after it.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
