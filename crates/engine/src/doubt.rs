//! Checks whether bytes are an instruction of their own.

use crate::reason::NotPlaced;

/// Refuses a place that may be data.
pub(crate) fn check_doubt(image: &image::Image, vaddr: u64) -> Result<(), NotPlaced> {
    image.doubt(vaddr).map_or(Ok(()), |doubt| Err(NotPlaced::Doubtful(doubt)))
}

/// Refuses an instruction with a text relocation: the dynamic linker adds to the bytes it finds
/// there, whenever it gets to it.
pub(crate) fn not_relocated(
    image: &image::Image,
    vaddr: u64,
    displaced: &patch::Displaced,
) -> Result<(), NotPlaced> {
    match image.is_relocated(vaddr, displaced.length() as u64) {
        true => Err(NotPlaced::Relocated { instruction: displaced.text().to_string() }),
        false => Ok(()),
    }
}
