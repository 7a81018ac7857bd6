//! Maps many pieces of one of the tracer's memory files privately in a process. Processes share the
//! pages that none of them writes.
//!
//! The process gets the file as it gets shared memory ([`crate::share`]). It maps the pieces and
//! closes the descriptors without stopping between the calls. The frames that lead from one call to
//! the next are in memory that is mapped for them and unmapped afterwards.

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
    /// Its offset in the file.
    pub offset: u64,
}

/// The most calls that are made without a stop.
const TOGETHER: usize = 1024;
/// Bytes of a page.
const PAGE: u64 = 4096;

impl Caller {
    /// Maps pieces of a memory file privately, with a protection (as of mmap(2)). Each is mapped
    /// exactly at its place, where nothing must be mapped. Either all are mapped or none.
    ///
    /// # Errors
    /// The thread has been killed. Or, in the result: the process has no descriptors left, may not
    /// make one of the calls, or has something mapped at one of the places (EEXIST). The process is
    /// then unchanged.
    pub fn map_file(
        self,
        file: BorrowedFd<'_>,
        pieces: &[FilePiece],
        protection: c_int,
    ) -> Result<Step<()>, Error> {
        // One more call closes the descriptors.
        let frames = (TOGETHER.min(pieces.len() + 1) * frame::HEAD) as u64;
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
                let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE) as u64;
                let map = |piece: &FilePiece| {
                    let from = [flags, opened.memory as u64, piece.offset];
                    let arguments = [piece.place, piece.size, protection as u64, from[0], from[1], from[2]];
                    Call::new("mmap", libc::SYS_mmap, arguments)
                };
                let calls: Vec<Call> = pieces.iter().map(map).collect();
                let (caller, results) =
                    caller.close_all(&calls, opened.all(), Some(room + PAGE..room + size))?;
                let places: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.place, piece.size)).collect();
                caller.all_or_none(&places, results)?
            }
            Err(error) => (caller, Err(error)),
        };
        let (caller, _) = caller.unmap(room, size)?;
        Ok((caller, mapped))
    }
}

/// An address far from all pieces, as a hint for the kernel where to map the frames.
fn away_from(pieces: &[FilePiece]) -> u64 {
    const FAR: u64 = 4 << 30;
    let lowest = pieces.iter().map(|piece| piece.place).min().unwrap_or(0);
    let end = pieces.iter().map(|piece| piece.place + piece.size).max().unwrap_or(0);
    if lowest > 2 * FAR { lowest - FAR } else { end + FAR }
}
