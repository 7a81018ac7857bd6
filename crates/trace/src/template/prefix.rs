//! Prefixes of logged data whose length is known only when it is logged: a token, and a length of
//! 16 bits.
//!
//! | token | the length counts | what follows |
//! |---|---|---|
//! | 0 | bytes | memory |
//! | 1 | bytes | a string, which ends earlier where it has a NUL |
//! | 5, 6, 7 | words | variables, elements of the stack |
//! | 0xff | bytes | the address that could not be read |
//! | 0xfe | bytes | the selector that could not be used |

/// The size of a prefix, in bytes.
pub(super) const PREFIX: usize = 3;

/// Whether a token announces data. The others announce why there is none, or are unknown.
pub(super) fn has_data(token: u8) -> bool {
    matches!(token, 0 | 1 | 5..=7)
}

/// The bytes that a prefix announces, where a word has `word` bytes.
pub(super) fn length(token: u8, count: u16, word: usize) -> usize {
    let unit = match token {
        5..=7 if word == 4 => 4,
        5..=7 => 8,
        _ => 1,
    };
    usize::from(count) * unit
}

/// An item with a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefixed<'a> {
    /// Memory.
    Memory(&'a [u8]),
    /// A string without its NUL, and the bytes that it takes.
    Text(&'a [u8], usize),
    /// Words.
    Words(&'a [u8]),
    /// The address that could not be read.
    Fault(&'a [u8]),
    /// The selector that could not be used.
    Selector(&'a [u8]),
}

impl<'a> Prefixed<'a> {
    /// Splits an item off; none if the token is unknown, or not all of it is there.
    pub(crate) fn split(data: &'a [u8], word: usize) -> Option<(Prefixed<'a>, &'a [u8])> {
        let (&[token, low, high], rest) = data.split_first_chunk::<PREFIX>()?;
        let (own, after) = rest.split_at_checked(length(token, u16::from_le_bytes([low, high]), word))?;
        let item = match token {
            0 => Prefixed::Memory(own),
            1 => match own.iter().position(|&byte| byte == 0) {
                // As a template reads it: the data after the NUL is not the string's.
                Some(end) => return Some((Prefixed::Text(&own[..end], end + 1), &rest[end + 1..])),
                None => Prefixed::Text(own, own.len()),
            },
            5..=7 => Prefixed::Words(own),
            0xff => Prefixed::Fault(own),
            0xfe => Prefixed::Selector(own),
            _ => return None,
        };
        Some((item, after))
    }

    /// The bytes that it takes, with its prefix.
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        PREFIX
            + match self {
                Prefixed::Text(_, length) => *length,
                Prefixed::Memory(own)
                | Prefixed::Words(own)
                | Prefixed::Fault(own)
                | Prefixed::Selector(own) => own.len(),
            }
    }
}
