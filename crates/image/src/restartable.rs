//! Finds restartable sequences (rseq): code that a thread leaves for an abort address if it is
//! interrupted there.
//!
//! So no thread may be stopped in one (it would never complete), and no instruction of one can be
//! displaced. The sections named `__rseq_cs` say where they are, in the descriptors that the
//! program's threads pass to the kernel (`struct rseq_cs` of linux/rseq.h):
//!
//! ```text
//!   0  version, flags     8  start     16  length     24  abort address
//! ```

use std::ops::Range;

use super::Image;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR: usize = 32;
/// The most descriptors of one file that are read.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// Answers [`Image::restartable_sequences`].
pub(crate) fn restartable_sequences(image: &Image) -> Vec<Range<u64>> {
    restartable_sequences_by(image, |place| {
        let mut descriptor: [u8; DESCRIPTOR] = image.data(place, DESCRIPTOR as u64)?.try_into().ok()?;
        descriptor[8..16].copy_from_slice(&image.pointer_at(place.checked_add(8)?)?.to_le_bytes());
        Some(descriptor)
    })
}

/// Answers [`Image::restartable_sequences_by`].
pub(crate) fn restartable_sequences_by(
    image: &Image,
    read: impl Fn(u64) -> Option<[u8; DESCRIPTOR]>,
) -> Vec<Range<u64>> {
    let sequence = |place: u64| {
        let descriptor = read(place)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| descriptor[at + byte]));
        Some(word(8)..word(8).saturating_add(word(16)))
    };
    let sequences = descriptors(image).filter_map(sequence);
    sequences.filter(|range| !range.is_empty()).collect()
}

/// The addresses of the descriptors.
fn descriptors(image: &Image) -> impl Iterator<Item = u64> {
    let sections = image.headers.sections.iter();
    let named = sections.filter(|section| section.allocated && section.name == "__rseq_cs");
    let whole = |size: u64| size / DESCRIPTOR as u64;
    let places = |start: u64, count: u64| {
        (0..count).map_while(move |number| start.checked_add(number * DESCRIPTOR as u64))
    };
    named.flat_map(move |section| places(section.vaddr, whole(section.size))).take(MAX_DESCRIPTORS)
}
