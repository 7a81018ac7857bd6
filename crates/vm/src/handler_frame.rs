//! The frame of a run: bytes that a handler works in, all 0 when it begins.

use crate::Exception;

/// Bytes of a frame.
pub const FRAME_LIMIT: usize = 16 * 1024;

/// `parm1` of INVALID_OPERAND: an offset in the frame.
const OFFSET: u64 = 8;

/// The frame.
pub(crate) struct HandlerFrame {
    bytes: [u8; FRAME_LIMIT],
    /// Bytes from here on are 0.
    used: usize,
}

impl HandlerFrame {
    /// A frame of zeros.
    pub(crate) const fn new() -> HandlerFrame {
        HandlerFrame { bytes: [0; FRAME_LIMIT], used: 0 }
    }

    /// Sets all bytes to 0.
    pub(crate) fn clear(&mut self) {
        let used = core::mem::replace(&mut self.used, 0).min(FRAME_LIMIT);
        self.bytes[..used].fill(0);
    }

    /// A range of its bytes, to be read.
    pub(crate) fn get(&self, offset: u64, count: u64) -> Result<&[u8], Exception> {
        let (start, end) = range(offset, count)?;
        Ok(&self.bytes[start..end])
    }

    /// A range of its bytes, to be written.
    pub(crate) fn get_mut(&mut self, offset: u64, count: u64) -> Result<&mut [u8], Exception> {
        let (start, end) = range(offset, count)?;
        self.used = self.used.max(end);
        Ok(&mut self.bytes[start..end])
    }

    /// Two ranges that do not overlap; both are to be written.
    pub(crate) fn two(&mut self, first: (u64, u64), second: (u64, u64)) -> Result<[&mut [u8]; 2], Exception> {
        let (a, b) = (range(first.0, first.1)?, range(second.0, second.1)?);
        self.used = self.used.max(a.1).max(b.1);
        // An empty range has nothing in common with any other, wherever it is.
        let placed = |(start, end): (usize, usize)| if start == end { 0..0 } else { start..end };
        match self.bytes.get_disjoint_mut([placed(a), placed(b)]) {
            Ok(both) => Ok(both),
            Err(_) => Err(Exception::operand(OFFSET, second.0)),
        }
    }

    /// Copies bytes within it. The ranges may overlap.
    pub(crate) fn copy(&mut self, to: u64, from: u64, count: u64) -> Result<(), Exception> {
        let ((to, end), (start, stop)) = (range(to, count)?, range(from, count)?);
        self.used = self.used.max(end);
        self.bytes.copy_within(start..stop, to);
        Ok(())
    }

    /// The word at an offset.
    pub(crate) fn word(&self, offset: u64) -> Result<u64, Exception> {
        let bytes = self.get(offset, 8)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Sets the word at an offset.
    pub(crate) fn set_word(&mut self, offset: u64, value: u64) -> Result<(), Exception> {
        self.get_mut(offset, 8)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// The room from an offset on for `length` bytes and the zeros up to a multiple of 8 behind
    /// them, as far as the frame goes.
    pub(crate) fn padded(&mut self, offset: u64, length: u64) -> Result<&mut [u8], Exception> {
        let (start, end) = range(offset, length)?;
        let end = (start + (end - start).next_multiple_of(8)).min(FRAME_LIMIT);
        self.used = self.used.max(end);
        Ok(&mut self.bytes[start..end])
    }
}

/// Start and end of a range that is within the frame.
fn range(offset: u64, count: u64) -> Result<(usize, usize), Exception> {
    match offset.checked_add(count) {
        Some(end) if end <= FRAME_LIMIT as u64 => Ok((offset as usize, end as usize)),
        _ => Err(Exception::operand(OFFSET, offset)),
    }
}
