//! Mapping many pieces of a memory file of the tracer's in a process, as its private memory: pages that nobody writes are the same in all processes.
//!
//! The file comes as shared memory does ([`crate::share`]). The calls that map the pieces are made one behind the other, with few stops: what leads from
//! one to the next is in memory that is mapped for that and unmapped in the end.

use std::io;
use std::os::fd::BorrowedFd;

use libc::c_int;

use crate::caller::Step;
use crate::{Call, Caller, Error, frame};

/// A piece of a file, and where it is to be mapped: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// The address.
    pub place: u64,
    /// Bytes.
    pub size: u64,
    /// Where it is in the file.
    pub offset: u64,
}

/// Calls that are made with one stop at most.
const TOGETHER: usize = 1024;
/// Bytes of a page.
const PAGE: u64 = 4096;

impl Caller {
    /// Maps pieces of a memory file privately, each exactly where it is to be and nothing is mapped, for `protection` (as of mmap(2)). All of
    /// them, or none.
    ///
    /// # Errors
    /// The thread has been killed; or, in the result, the process has no descriptors left or may not make one of the calls, or something is mapped in one
    /// place (EEXIST). The process is then as it was.
    pub fn map_file(
        self,
        file: BorrowedFd<'_>,
        pieces: &[FilePiece],
        protection: c_int,
    ) -> Result<Step<()>, Error> {
        let frames = (TOGETHER.min(pieces.len()) * frame::HEAD) as u64;
        let size = PAGE + frames.next_multiple_of(PAGE);
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let (caller, room) =
            self.call("mmap", libc::SYS_mmap, [away_from(pieces), size, rights, flags, !0, 0])?;
        let room = match room {
            Ok(room) => room,
            Err(error) => return Ok((caller, Err(error))),
        };
        let (caller, opened) = caller.take_in(file, room)?;
        let (caller, mapped) = match opened {
            Ok(opened) => {
                let (caller, mapped) =
                    caller.map_pieces(opened.memory, pieces, protection, room + PAGE..room + size)?;
                let closes: Vec<Call> = opened.all().into_iter().map(Call::close).collect();
                (caller.calls(&closes)?.0, mapped)
            }
            Err(error) => (caller, Err(error)),
        };
        let (caller, _) = caller.unmap(room, size)?;
        Ok((caller, mapped))
    }

    fn map_pieces(
        self,
        file: c_int,
        pieces: &[FilePiece],
        protection: c_int,
        room: std::ops::Range<u64>,
    ) -> Result<Step<()>, Error> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE) as u64;
        let call = |piece: &FilePiece| {
            let arguments = [piece.place, piece.size, protection as u64, flags, file as u64, piece.offset];
            Call::new("mmap", libc::SYS_mmap, arguments)
        };
        let calls: Vec<Call> = pieces.iter().map(call).collect();
        let (caller, results) = self.calls_in(&calls, Some(room))?;
        let pid = caller.thread().tid();
        let (mut failed, mut mapped) = (None, Vec::new());
        for (piece, result) in pieces.iter().zip(results) {
            match result {
                Ok(got) => {
                    mapped.push(Call::unmap(got, piece.size));
                    // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and takes the address as a hint.
                    let cause = io::Error::from_raw_os_error(libc::EEXIST);
                    let elsewhere =
                        (got != piece.place).then_some(Error::Remote { call: "mmap", pid, cause });
                    failed = failed.or(elsewhere);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok((caller, Ok(()))),
            Some(error) => Ok((caller.calls(&mapped)?.0, Err(error))),
        }
    }
}

/// An address that is far from all pieces. The kernel follows it if nothing is there.
fn away_from(pieces: &[FilePiece]) -> u64 {
    const FAR: u64 = 4 << 30;
    let lowest = pieces.iter().map(|piece| piece.place).min().unwrap_or(0);
    let end = pieces.iter().map(|piece| piece.place + piece.size).max().unwrap_or(0);
    if lowest > 2 * FAR { lowest - FAR } else { end + FAR }
}
