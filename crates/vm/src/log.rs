//! The log of a hit: the records that a handler writes, up to `logmax` bytes.
//!
//! ```text
//! log n        word word ...                     no prefix
//! log mrf      00  u16 bytes  byte ...
//! log str      01  u16 bytes  byte ...           without the NUL
//! log lv       05  u16 words  word word ...
//! log gv       06  u16 words  word word ...
//! log          07  u16 words  word word ...
//! a fault      ff  u16 bytes  word               the first address that could not be read
//! ```
//!
//! Numbers are little-endian. The count in a prefix is that of what follows, not of what was asked
//! for.

use crate::machine::{self, Fault, Machine};
use crate::{Exception, Word};

/// The maximum size in bytes of a run's log, whatever `logmax` says.
pub const LOG_LIMIT: usize = 32 * 1024;

/// Bytes of a prefix: the token and a u16.
const PREFIX: usize = 3;

/// Bytes of a string that are read first; most strings end there.
const FIRST_PIECE: usize = 128;

/// The reads of a string never cross a multiple of this, so that an unreadable page that the string
/// does not reach does not matter. No page is smaller.
pub(crate) const PAGE: u64 = 4096;

/// The token of a record.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Token {
    Memory = 0,
    String = 1,
    Locals = 5,
    Globals = 6,
    Elements = 7,
    Fault = 0xff,
}

/// Why a record could not be logged completely.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The log is full.
    Overflow,
    /// Memory could not be read.
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

/// The log during a run.
pub(crate) struct Log<'s> {
    bytes: &'s mut [u8; LOG_LIMIT],
    /// The log pointer.
    length: usize,
    /// The previous log pointer: the length after the last successful log instruction.
    complete: usize,
    limit: usize,
}

impl<'s> Log<'s> {
    /// An empty log of at most `logmax` bytes in `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &'s mut [u8; LOG_LIMIT], logmax: usize) -> Log<'s> {
        Log { bytes, length: 0, complete: 0, limit: logmax.min(LOG_LIMIT) }
    }

    /// Loads the log of a run that is resumed: its bytes and its previous log pointer.
    #[inline(always)]
    pub(crate) fn fill(&mut self, bytes: &[u8], complete: usize) {
        let fits = bytes.len().min(self.limit);
        if fits != 0 {
            self.bytes[..fits].copy_from_slice(&bytes[..fits]);
        }
        (self.length, self.complete) = (fits, complete.min(fits));
    }

    /// The bytes logged.
    #[cfg(test)]
    pub(crate) fn logged(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Bytes logged: the log pointer.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The previous log pointer: bytes logged after the last successful log instruction.
    pub(crate) fn complete_length(&self) -> usize {
        self.complete
    }

    /// Notes that a log instruction has succeeded.
    #[inline(always)]
    pub(crate) fn succeeded(&mut self) {
        self.complete = self.length;
    }

    /// Sets both log pointers. Bytes beyond the new end are dropped; if the log grows, the new
    /// bytes are zeros. If they do not all fit, as many as do are added, and an overflow is
    /// returned.
    pub(crate) fn set_length(&mut self, length: u64) -> Result<(), Failure> {
        let fits = length.min(self.limit as u64) as usize;
        if fits > self.length {
            self.bytes[self.length..fits].fill(0);
        }
        (self.length, self.complete) = (fits, fits);
        if fits as u64 == length { Ok(()) } else { Err(Failure::Overflow) }
    }

    /// The exception of a full log.
    #[cold]
    pub(crate) fn overflow(&self) -> Exception {
        Exception::new(Exception::LOG_OVERFLOW, self.limit as u64, 0)
    }

    /// The free part of the buffer.
    #[inline(always)]
    fn free_part(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length.min(self.limit)..self.limit]
    }

    /// The free part after a prefix, if a prefix fits.
    #[inline(always)]
    fn room_behind_prefix(&mut self) -> Result<&mut [u8], Failure> {
        self.free_part().get_mut(PREFIX..).ok_or(Failure::Overflow)
    }

    /// Makes a record of the next `size` bytes after a prefix, which are already in place, by
    /// writing the prefix with `count`. Both must fit. A count in a log of [`LOG_LIMIT`] bytes
    /// always fits a u16.
    #[inline(always)]
    fn commit(&mut self, token: Token, count: usize, size: usize) {
        let [low, high] = (count as u16).to_le_bytes();
        self.free_part()[..PREFIX].copy_from_slice(&[token as u8, low, high]);
        self.length += PREFIX + size;
    }

    /// Logs `count` words, which `element` returns by number, with a prefix if there is a token.
    /// `element` is not called for words that do not fit; then an overflow is returned. An error of
    /// `element` is returned. Whole words before either stay logged.
    #[inline]
    pub(crate) fn words<E>(
        &mut self,
        word: Word,
        token: Option<Token>,
        count: u64,
        element: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<Result<(), Failure>, E> {
        self.log_low_bytes(word.bytes(), token, count, element)
    }

    /// The same with the lowest `bytes` bytes of each word, at least one.
    #[inline]
    pub(crate) fn log_low_bytes<E>(
        &mut self,
        bytes: usize,
        token: Option<Token>,
        count: u64,
        mut element: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<Result<(), Failure>, E> {
        let room = match token {
            None => self.free_part(),
            Some(_) => match self.room_behind_prefix() {
                Ok(room) => room,
                Err(failure) => return Ok(Err(failure)),
            },
        };
        let fits = count.min((room.len() / bytes) as u64) as usize;
        let mut result = Ok(if fits as u64 == count { Ok(()) } else { Err(Failure::Overflow) });
        let mut logged = 0;
        for place in room.chunks_exact_mut(bytes).take(fits) {
            match element(logged as u64) {
                Ok(value) => place.copy_from_slice(&value.to_le_bytes()[..bytes]),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            logged += 1;
        }
        match token {
            None => self.length += logged * bytes,
            Some(token) => self.commit(token, logged, logged * bytes),
        }
        result
    }

    /// Logs `size` bytes of memory from `address` on; if they do not fit, as many as do, and
    /// returns an overflow. Reads only what fits. A fault logs nothing.
    pub(crate) fn memory<M: Machine>(
        &mut self,
        machine: &mut M,
        word: Word,
        address: u64,
        size: u64,
    ) -> Result<(), Failure> {
        let room = self.room_behind_prefix()?;
        let fits = size.min(room.len() as u64) as usize;
        machine::read(machine, word, address, 0, &mut room[..fits])?;
        self.commit(Token::Memory, fits, fits);
        if fits as u64 == size { Ok(()) } else { Err(Failure::Overflow) }
    }

    /// Logs bytes as if they were memory. If they do not fit, nothing is logged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let room = self.room_behind_prefix()?;
        room.get_mut(..bytes.len()).ok_or(Failure::Overflow)?.copy_from_slice(bytes);
        self.commit(Token::Memory, bytes.len(), bytes.len());
        Ok(())
    }

    /// Logs bytes without a prefix. If they do not fit, nothing is logged.
    pub(crate) fn plain(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        let size = parts.iter().map(|part| part.len()).sum();
        let mut room = self.free_part().get_mut(..size).ok_or(Failure::Overflow)?;
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        self.length += size;
        Ok(())
    }

    /// Logs the string at `address`: the bytes before the first NUL, at most `size`. Behaves as if
    /// it read byte by byte: only an address before the end of the string can fault. If the string
    /// does not fit, or on a fault, logs nothing.
    pub(crate) fn string<M: Machine>(
        &mut self,
        machine: &mut M,
        word: Word,
        address: u64,
        size: u64,
    ) -> Result<(), Failure> {
        let room = self.room_behind_prefix()?;
        let fits = size.min(room.len() as u64) as usize;
        let mut length = 0;
        while length < fits {
            let to_page_end = PAGE - address.wrapping_add(length as u64) % PAGE;
            let most = if length == 0 { FIRST_PIECE } else { fits };
            let piece = most.min(fits - length).min(to_page_end as usize);
            let into = &mut room[length..length + piece];
            let (read, fault) = read_before_fault(machine, word, address, length, into)?;
            if let Some(nul) = into[..read].iter().position(|&byte| byte == 0) {
                self.commit(Token::String, length + nul, length + nul);
                return Ok(());
            }
            if let Some(fault) = fault {
                return Err(Failure::Fault(fault));
            }
            length += piece;
        }
        if (length as u64) < size {
            // The log is full: the string fits only if it ends here.
            let mut next = [0];
            machine::read(machine, word, address, length, &mut next)?;
            if next != [0] {
                return Err(Failure::Overflow);
            }
        }
        self.commit(Token::String, length, length);
        Ok(())
    }

    /// Logs a fault record, if one fits.
    pub(crate) fn fault(&mut self, word: Word, fault: Fault) -> Result<(), Failure> {
        let address = word.truncate(fault.address).to_le_bytes();
        let room = self.room_behind_prefix()?;
        room.get_mut(..word.bytes()).ok_or(Failure::Overflow)?.copy_from_slice(&address[..word.bytes()]);
        self.commit(Token::Fault, word.bytes(), word.bytes());
        Ok(())
    }
}

/// Reads part of a string at `base + offset`: all of it or, if it cannot all be read, the bytes
/// before the fault. Returns how many were read, and the fault.
pub(crate) fn read_before_fault<M: Machine>(
    machine: &mut M,
    word: Word,
    base: u64,
    offset: usize,
    into: &mut [u8],
) -> Result<(usize, Option<Fault>), Fault> {
    let Err(fault) = machine::read(machine, word, base, offset, into) else {
        return Ok((into.len(), None));
    };
    // Addresses do not wrap: a read that passes the end of the address space faults at 0, after all
    // its bytes.
    let start = base.wrapping_add(offset as u64);
    let before = word.truncate(fault.address.wrapping_sub(start));
    if before >= into.len() as u64 {
        return Err(fault);
    }
    machine::read(machine, word, base, offset, &mut into[..before as usize])?;
    Ok((before as usize, Some(fault)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Register;

    /// Memory full of `a`, which notes its reads.
    struct Noting(Vec<(u64, usize)>);

    impl Machine for Noting {
        fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
            self.0.push((address, into.len()));
            into.fill(b'a');
            Ok(())
        }
        fn register(&mut self, _: Register) -> u64 {
            0
        }
        fn set_register(&mut self, _: Register, _: u64) {}
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }
        fn verify(&mut self, _: u64, _: bool) -> bool {
            true
        }
        fn pid(&mut self) -> u64 {
            0
        }
        fn processor(&mut self) -> u64 {
            0
        }
    }

    #[test]
    fn a_string_is_read_once_and_no_piece_of_it_crosses_a_page() {
        for address in [0x1000, 0x1001, 0x1f7f, 0x1f80, 0x1f81, 0x1fff] {
            let mut bytes = [0; LOG_LIMIT];
            let mut log = Log::new(&mut bytes, LOG_LIMIT);
            let mut machine = Noting(Vec::new());
            log.string(&mut machine, Word::W8, address, 10_000).expect("it fits");
            let mut next = address;
            for (start, length) in machine.0 {
                assert_eq!(start, next);
                next += length as u64;
                assert_eq!(start / PAGE, (next - 1) / PAGE, "{length} bytes at {start:#x}");
            }
            assert_eq!(next, address + 10_000);
        }
    }
}
