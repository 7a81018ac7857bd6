//! A block of a store: a header of 64 bytes, and a payload.

use super::bytes::DecodeError;

/// The first bytes of every block. As in PNG, the first byte is not ASCII, so that no text is taken
/// for a store.
pub const MARK: [u8; 4] = *b"\x89DPT";
/// The format version that is written.
pub const VERSION: u16 = 2;
/// The oldest format version that is read. Its templates do not name their program.
const OLDEST: u16 = 1;
/// The size of a block's header, in bytes.
pub(super) const HEADER: usize = 64;
/// The greatest size of a payload, in bytes.
pub(super) const MAX_PAYLOAD: usize = 1 << 20;
/// The payload size from which on a block is written.
pub(super) const FULL: usize = 1 << 18;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What is needed to understand records: programs, probes, modules, and so on.
    Facts = 1,
    /// Records.
    Records = 2,
    /// The positions of the blocks.
    Index = 3,
    /// The last block: the position of the index.
    End = 4,
}

/// The header of a block.
///
/// ```text
///  0  4  mark: 89 44 50 54
///  4  4  the store's own number: the same in all its blocks
///  8  2  version: 2, or 1
/// 10  1  kind: 1 facts, 2 records, 3 index, 4 end
/// 11  1  0
/// 12  4  bytes of the payload
/// 16  8  number of the first record: how many records stand in the blocks before
/// 24  8  the least time of a record in it, in nanoseconds since 1970
/// 32  8  the greatest
/// 40  8  the greatest step back in time up to its end, in nanoseconds
/// 48  4  records in it
/// 52  4  number of the block: 0 for the first
/// 56  4  CRC-32 of the payload
/// 60  4  CRC-32 of the 60 bytes before
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store: u32,
    pub(super) kind: Kind,
    pub(super) length: u32,
    pub(super) first: u64,
    pub(super) least: u64,
    pub(super) greatest: u64,
    pub(super) disorder: u64,
    pub(super) records: u32,
    pub(super) number: u32,
    pub(super) checksum: u32,
}

impl Header {
    /// The header as bytes.
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MARK);
        put(4, &self.store.to_le_bytes());
        put(8, &VERSION.to_le_bytes());
        put(10, &[self.kind as u8]);
        put(12, &self.length.to_le_bytes());
        put(16, &self.first.to_le_bytes());
        put(24, &self.least.to_le_bytes());
        put(32, &self.greatest.to_le_bytes());
        put(40, &self.disorder.to_le_bytes());
        put(48, &self.records.to_le_bytes());
        put(52, &self.number.to_le_bytes());
        put(56, &self.checksum.to_le_bytes());
        let own = crc32fast::hash(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Parses the header of a block.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Header, DecodeError> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let whole = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let wrong = |at: usize, what: String| Err(DecodeError { at, what });
        if bytes[..4] != MARK {
            return wrong(0, "no block begins here".to_owned());
        }
        if crc32fast::hash(&bytes[..HEADER - 4]) != half(60) {
            return wrong(60, "a block's header has a wrong checksum".to_owned());
        }
        let version = half(8) as u16;
        if !(OLDEST..=VERSION).contains(&version) {
            return wrong(8, format!("version {version}; this dprobes reads versions {OLDEST} to {VERSION}"));
        }
        let kind = match bytes[10] {
            1 => Kind::Facts,
            2 => Kind::Records,
            3 => Kind::Index,
            4 => Kind::End,
            other => return wrong(10, format!("a block of unknown kind {other}; kinds 1 to 4 are known")),
        };
        let length = half(12);
        if length as usize > MAX_PAYLOAD {
            return wrong(12, format!("a block of {length} bytes; the limit is {MAX_PAYLOAD}"));
        }
        Ok(Header {
            store: half(4),
            kind,
            length,
            first: whole(16),
            least: whole(24),
            greatest: whole(32),
            disorder: whole(40),
            records: half(48),
            number: half(52),
            checksum: half(56),
        })
    }

    /// The size of the whole block, in bytes.
    pub(super) fn size(&self) -> u64 {
        HEADER as u64 + u64::from(self.length)
    }

    /// The number of the first record after this block.
    pub(super) fn after(&self) -> u64 {
        self.first.saturating_add(self.records.into())
    }
}

/// Whether a file that begins with these bytes is a store, damaged or not.
pub fn is_store(start: &[u8]) -> bool {
    start.starts_with(&MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_as_documented() {
        let header = Header {
            store: 0x0403_0201,
            kind: Kind::Records,
            length: 5,
            first: 6,
            least: 7,
            greatest: 8,
            disorder: 9,
            records: 10,
            number: 11,
            checksum: 12,
        };
        let bytes = header.encode();
        let (fields, own) = bytes.split_at(60);
        assert_eq!(
            fields,
            [
                0x89, b'D', b'P', b'T', 1, 2, 3, 4, 2, 0, 2, 0, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0,
                0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, 12,
                0, 0, 0
            ]
        );
        assert_eq!(own, crc32fast::hash(fields).to_le_bytes());
        assert_eq!(Header::decode(&bytes), Ok(header));
        for byte in 0..HEADER {
            let mut flipped = bytes;
            flipped[byte] ^= 0x10;
            assert!(Header::decode(&flipped).is_err(), "{byte}");
        }
    }
}
