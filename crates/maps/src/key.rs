//! Keys: bytes of a certain length, and their hash.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An odd number with about as many ones as zeros. The hash of a key of 8 bytes, which compiled
/// code computes, too, folds the product of `FIRST ^ key` and [`SECOND`], and then that of the
/// result `^ THIRD` and this. To fold is to take the exclusive or of both halves.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
/// Another one.
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
/// And another.
const THIRD: u64 = 0xa0b4_28db_2d3b_52c9;

/// What keys are hashed with: for code that is compiled to do so.
pub const HASH_FACTORS: [u64; 3] = [FIRST, SECOND, THIRD];

/// A key and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    bytes: &'a [u8],
    pub(crate) hash: u64,
}

impl<'a> Key<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Key { bytes, hash: hash(bytes) }
    }

    /// A number of 1 to 127 from the part of the hash that does not choose the buckets.
    #[inline]
    pub(crate) fn tag(&self) -> u8 {
        ((self.hash >> 57) as u8).max(1)
    }

    /// The key's first bucket of so many.
    #[inline]
    pub(crate) fn first(&self, count: u32) -> u32 {
        scale(self.hash as u32, count)
    }

    /// The key's second bucket of so many: another one, if there is more than one.
    #[inline]
    pub(crate) fn second(&self, count: u32) -> u32 {
        let distance = 1 + scale((self.hash >> 25) as u32, count.saturating_sub(1));
        let second = self.first(count) + distance;
        if second >= count { second - count } else { second }
    }

    /// Whether an entry, which begins with its length and key, has this key.
    #[inline]
    pub(crate) fn is_in(&self, entry: &[AtomicU64]) -> bool {
        let Some((length, words)) = entry.split_first() else { return false };
        if length.load(Relaxed) != self.bytes.len() as u64 {
            return false;
        }
        if let (Ok(eight), [word, ..]) = (<[u8; 8]>::try_from(self.bytes), words) {
            return word.load(Relaxed) == u64::from_le_bytes(eight);
        }
        self.is_long_in(words)
    }

    #[inline(never)]
    fn is_long_in(&self, words: &[AtomicU64]) -> bool {
        let (full, rest) = self.bytes.as_chunks::<8>();
        let Some((words, last)) = words.split_at_checked(full.len()) else { return false };
        words.iter().zip(full).all(|(word, part)| word.load(Relaxed) == u64::from_le_bytes(*part))
            && byte_words(rest).all(|part| last.first().is_some_and(|word| word.load(Relaxed) == part))
    }

    /// Writes the length and the key, and zeros behind it.
    pub(crate) fn write(&self, entry: &[AtomicU64]) {
        let Some((length, words)) = entry.split_first() else { return };
        length.store(self.bytes.len() as u64, Relaxed);
        let mut parts = byte_words(self.bytes);
        for word in words {
            word.store(parts.next().unwrap_or(0), Relaxed);
        }
    }
}

/// Bytes as little-endian words; the last one is filled with zeros.
#[inline]
pub(crate) fn byte_words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, rest) = bytes.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    });
    words.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

/// Copies words to bytes; what there are no words for becomes 0.
pub(crate) fn copy(words: &[AtomicU64], into: &mut [u8]) {
    let mut words = words.iter();
    for bytes in into.chunks_mut(8) {
        let word = words.next().map_or(0, |word| word.load(Relaxed)).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Whether words are still what was [copied](copy) from them.
pub(crate) fn is_copy(words: &[AtomicU64], bytes: &[u8]) -> bool {
    words.iter().zip(bytes.chunks(8)).all(|(word, bytes)| {
        let word = word.load(Relaxed).to_le_bytes();
        word[..bytes.len()] == *bytes
    })
}

/// All bits of the hash are used, for two buckets and a tag. So it is folded twice: after once,
/// neighbouring numbers still have hashes with a pattern.
#[inline]
fn hash(bytes: &[u8]) -> u64 {
    let mixed = match <[u8; 8]>::try_from(bytes) {
        Ok(eight) => fold(FIRST ^ u64::from_le_bytes(eight), SECOND),
        Err(_) => mix(bytes),
    };
    fold(mixed ^ THIRD, FIRST)
}

#[inline(never)]
fn mix(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<16>();
    let seed = SECOND ^ bytes.len() as u64;
    let hash = pairs.iter().fold(seed, |hash, pair| {
        let pair = u128::from_le_bytes(*pair);
        fold(hash ^ pair as u64, SECOND ^ (pair >> 64) as u64)
    });
    byte_words(rest).fold(hash, |hash, part| fold(hash ^ part, SECOND))
}

/// Both halves of a product: each bit of the factors reaches most bits of the result.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A 32-bit number, scaled down to less than `count`.
#[inline]
fn scale(number: u32, count: u32) -> u32 {
    ((u64::from(number) * u64::from(count)) >> 32) as u32
}
