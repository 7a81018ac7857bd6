//! Has a stopped thread map and unmap memory, by system calls.

use image::Machine;
use process::{Caller, Entrance, Error as ProcessError, Mapping, Stop, Stopped};

use super::{CODE, Called, PRIVATE, TRIES, Wanted, allow_call, count_mapping, no_memory, taken, unmap};
use crate::reason::NotMapped;
use crate::slots;
use crate::space::Space;
use crate::spaces::Spaces;

impl Spaces {
    /// Unmaps the landing pads of a draft that was not written: no other draft wants them there.
    pub(crate) fn unmap_pads(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        pads: Vec<(u64, u64)>,
    ) -> Result<(Stopped, Stop), process::Error> {
        let (thread, stop, left) = self.unmap_pieces(number, thread, stop, &pads)?;
        if let Some((space, left)) = self.get_mut(&number).zip(left.ok()) {
            let gone: Vec<_> = pads.into_iter().filter(|pad| !left.contains(pad)).collect();
            space.mapped.mappings = space.mapped.mappings.saturating_sub(gone.len());
            space.jumps.remove_pads(&gone);
        }
        Ok((thread, stop))
    }

    /// Maps private zeroed memory, readable and executable. Returns its address. `thread` is one of
    /// the address space.
    pub(crate) fn map_code(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        wanted: &Wanted,
    ) -> Called<u64> {
        let tid = thread.tid();
        let mappings = match thread.mappings() {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, Err(NotMapped::Mappings(error.into())))),
        };
        let own = self.get(&number).map_or(0, |space| space.mapped.mappings);
        if let Err(reason) = count_mapping(mappings.len(), own) {
            return Ok((thread, stop, Err(reason)));
        }
        let taken = taken(tid, &mappings);
        let places = slots::gaps(&taken, wanted.size, wanted.near, &wanted.reach);
        let mut outcome = Err(NotMapped::NoneNear);
        let size = wanted.size;
        let done = self.with_calls(number, thread, stop, &mappings, |mut caller| {
            for gap in places.into_iter().take(TRIES) {
                let (next, result) =
                    caller.call("mmap", libc::SYS_mmap, [gap.start, size, CODE, PRIVATE, !0, 0])?;
                caller = next;
                match result {
                    Ok(base) if base == gap.start => {
                        outcome = Ok(base);
                        break;
                    }
                    Ok(elsewhere) => {
                        // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and treats the
                        // address as a hint.
                        (caller, _) = unmap(caller, &[(elsewhere, size)])?;
                    }
                    Err(error) => outcome = Err(no_memory(error)),
                }
            }
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        if outcome.is_ok()
            && let Some(space) = self.get_mut(&number)
        {
            space.mapped.mappings += 1;
        }
        Ok((thread, stop, allowed.and(outcome)))
    }

    /// Maps private zeroed memory, readable and executable, at these addresses with these sizes:
    /// all or none.
    pub(crate) fn map_pieces(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        pieces: &[(u64, u64)],
    ) -> Called<()> {
        if pieces.is_empty() {
            return Ok((thread, stop, Ok(())));
        }
        let mappings = match thread.mappings() {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, Err(NotMapped::Mappings(error.into())))),
        };
        let mut failed = None;
        let pieces: Vec<_> = pieces.iter().map(|&(start, size)| (start, size, CODE as i32)).collect();
        let done = self.with_calls(number, thread, stop, &mappings, |caller| {
            let (caller, mapped) = caller.map_all(&pieces)?;
            failed = mapped.err().map(|error| match error {
                ProcessError::Remote { cause, .. } if cause.raw_os_error() == Some(libc::EEXIST) => {
                    NotMapped::Taken
                }
                error => no_memory(error),
            });
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        Ok((thread, stop, allowed.and(failed.map_or(Ok(()), Err))))
    }

    /// Unmaps memory for probes that no thread is in. Returns the pieces that could not be
    /// unmapped.
    pub(crate) fn unmap_pieces(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        pieces: &[(u64, u64)],
    ) -> Called<Vec<(u64, u64)>> {
        if pieces.is_empty() {
            return Ok((thread, stop, Ok(Vec::new())));
        }
        if let Some(space) = self.get_mut(&number) {
            space.strike_memory();
        }
        let mut left = Ok(Vec::new());
        let done = self.with_calls(number, thread, stop, &[], |caller| {
            let (caller, not_unmapped) = unmap(caller, pieces)?;
            left = Ok(not_unmapped);
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        Ok((thread, stop, allowed.and(left)))
    }

    /// Makes system calls in a thread, also in a seccomp sandbox if possible.
    pub(crate) fn with_calls(
        &mut self,
        number: u32,
        mut thread: Stopped,
        stop: Stop,
        mappings: &[Mapping],
        calls: impl FnOnce(Caller) -> Result<Caller, ProcessError>,
    ) -> Called<()> {
        let syscall = match self.find_syscall(number, &thread, mappings)? {
            Ok(syscall) => syscall,
            Err(reason) => return Ok((thread, stop, Err(reason))),
        };
        let suspended = match allow_call(&mut thread) {
            Ok(suspended) => suspended,
            Err(reason) => return Ok((thread, stop, Err(reason))),
        };
        let (thread, stop) = self.guard(number, thread, stop, syscall)?;
        let entrance = self.get(&number).and_then(Space::entrance).unwrap_or(syscall);
        let (mut thread, stop) = calls(Caller::unfiltered(thread, stop, entrance))?.end()?;
        if suspended {
            thread.restore_seccomp()?;
        }
        Ok((thread, stop, Ok(())))
    }

    /// An instruction of the address space that makes system calls.
    pub(crate) fn find_syscall(
        &mut self,
        number: u32,
        thread: &Stopped,
        mappings: &[Mapping],
    ) -> Result<Result<Entrance, NotMapped>, ProcessError> {
        let machine = if thread.registers()?.is_32_bit() { Machine::I386 } else { Machine::X86_64 };
        let Some(space) = self.get_mut(&number) else {
            return Ok(Err(NotMapped::Gone));
        };
        if space.calls.syscall.is_none() {
            space.calls.syscall = process::find_syscall(&space.code.memory, mappings, machine);
            space.note_spare();
        }
        Ok(space.entrance().ok_or(NotMapped::NoSystemCall))
    }
}
