//! Places in the frame of a run.
//!
//! Places are given like those of a stack: a block gives back what it took when it ends.

/// The bytes of a frame that a script may use: those of a run less one word, so that a word can be
/// read at each byte of a value.
pub(super) const LIMIT: usize = 16 * 1024 - 8;

/// How much of the frame is in use.
#[derive(Debug, Default)]
pub(super) struct Frame {
    next: usize,
    most: usize,
}

/// How far the frame was in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(usize);

impl Frame {
    /// Takes bytes, a multiple of 8; `Err` with the number of all bytes if there is no room.
    pub(super) fn take(&mut self, bytes: usize) -> Result<u16, usize> {
        let bytes = bytes.checked_next_multiple_of(8).unwrap_or(usize::MAX);
        let end = self.next.saturating_add(bytes);
        if end > LIMIT {
            return Err(end);
        }
        let at = u16::try_from(self.next).map_err(|_| end)?;
        self.next = end;
        self.most = self.most.max(end);
        Ok(at)
    }

    /// What is in use now.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Gives back what was taken since.
    pub(super) fn release(&mut self, mark: Mark) {
        self.next = mark.0;
    }

    /// The most bytes that were in use, and a word behind them.
    pub(super) fn most(&self) -> usize {
        if self.most == 0 { 0 } else { self.most + 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_refused() {
        let mut frame = Frame::default();
        assert_eq!(frame.take(9), Ok(0));
        assert_eq!(frame.take(8), Ok(16));
        for bytes in [LIMIT, usize::MAX - 8, usize::MAX] {
            assert!(frame.take(bytes).is_err());
        }
        assert_eq!(frame.most(), 32);
    }
}
