//! The control word of a bucket: the states of its lanes, and a version.
//!
//! ```text
//!     bits 0-7   8-15   ...  48-55   56-63
//!     lane 0   lane 1   ...  lane 6  version
//! ```
//!
//! A lane is 0 if it is empty, a tag of 1 to 127 while its owner writes (busy), and `0x80 | tag`
//! when everybody may use it (ready). It is 0x80 when it was busy for too long and others have
//! taken it from its owner, who alone may make it empty. The tag is a part of the key's hash. Each
//! change of a lane adds 1 to the version in the same atomic operation, so that a reader that finds
//! the word unchanged knows that what it copied belongs together, unless it was stopped while it
//! copied and the version has come round: so values of several words are looked at twice.

/// Lanes of a bucket.
pub const LANES: usize = 7;
/// The bit of a ready lane.
pub const READY: u8 = 0x80;
/// A lane that was taken from its owner: no key's tag is 0.
pub(crate) const TAKEN: u8 = READY;
/// What is added to a control word with each change.
pub const CHANGE: u64 = 1 << 56;

const ALL: u64 = CHANGE - 1;
const ONES: u64 = 0x01_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// The lanes whose byte is this one.
#[inline]
pub(crate) fn equal(control: u64, byte: u8) -> Lanes {
    let differing = (control & ALL) ^ (ONES * u64::from(byte));
    // A byte plus 0x7f has its high bit exactly if one of its low bits is set.
    let nonzero = ((differing & !HIGH) + (HIGH - ONES)) | differing;
    Lanes(!nonzero & HIGH)
}

/// The lanes that are ready.
#[inline]
pub(crate) fn ready(control: u64) -> Lanes {
    // As in `equal`: the high bit of a byte plus 0x7f tells whether it has a tag.
    let tagged = (control & ALL & !HIGH) + (HIGH - ONES);
    Lanes(control & tagged & HIGH)
}

/// Whether a lane with this byte is ready.
pub(crate) fn is_ready(byte: u8) -> bool {
    byte > TAKEN
}

/// The control word without its ready lanes.
#[inline]
pub(crate) fn without_ready(control: u64) -> u64 {
    let lanes = (ready(control).0 >> 7) * 0xff;
    (control & !lanes).wrapping_add(CHANGE)
}

/// A byte, moved to a lane.
#[inline]
pub(crate) fn at(lane: usize, byte: u8) -> u64 {
    u64::from(byte) << (8 * lane)
}

/// The byte of a lane.
#[inline]
pub(crate) fn byte(control: u64, lane: usize) -> u8 {
    (control >> (8 * lane)) as u8
}

/// A set of lanes; as an iterator, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes(u64);

impl Lanes {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() / 8;
        self.0 &= self.0 - 1;
        Some(lane as usize)
    }
}
