//! Maps memory for probes in a process, by system calls of one of its threads.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use image::Machine;
use patch::tactic::Limits;
use process::{Call, Caller, Entrance, Error as ProcessError, Mapping, Stop, Stopped};

use crate::slots::{self, Growth};
use crate::space::Space;
use crate::tracer::Tracer;

/// Places tried before giving up: another thread may map something at one first.
const TRIES: usize = 8;

/// Protection of memory for code: the process cannot write to it.
const CODE: u64 = EXECUTE as u64;
/// The same as an argument of mmap(2).
pub(crate) const EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;
/// At exactly the requested address, or not at all.
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

/// The kernel's default for vm.max_map_count, used if it cannot be read.
const MAP_COUNT: usize = 65_530;

/// A request for memory.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Bytes, a multiple of the page size.
    pub(crate) size: u64,
    /// The address it should be near.
    pub(crate) near: u64,
    /// The range in which all of it must be.
    pub(crate) reach: RangeInclusive<u64>,
}

/// A thread that has made system calls for the tracer, its current stop, and the result of the
/// calls.
pub(crate) type Called<T> = Result<(Stopped, Stop, Result<T, String>), ProcessError>;

impl Tracer<'_> {
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
            Err(error) => return Ok((thread, stop, Err(error.to_string()))),
        };
        let own = self.spaces.get(&number).map_or(0, |space| space.mappings);
        if let Err(reason) = count_mapping(mappings.len(), own) {
            return Ok((thread, stop, Err(reason)));
        }
        let taken = taken(tid, &mappings);
        let places = slots::gaps(&taken, wanted.size, wanted.near, &wanted.reach);
        let mut outcome = Err("no free memory within 2 GiB of the module".to_owned());
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
                    Err(error) => outcome = Err(no_memory(&error)),
                }
            }
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        if outcome.is_ok()
            && let Some(space) = self.spaces.get_mut(&number)
        {
            space.mappings += 1;
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
            Err(error) => return Ok((thread, stop, Err(error.to_string()))),
        };
        let mut failed = None;
        let pieces: Vec<_> = pieces.iter().map(|&(start, size)| (start, size, CODE as i32)).collect();
        let done = self.with_calls(number, thread, stop, &mappings, |caller| {
            let (caller, mapped) = caller.map_all(&pieces)?;
            failed = mapped.err().map(|error| match &error {
                ProcessError::Remote { cause, .. } if cause.raw_os_error() == Some(libc::EEXIST) => {
                    "a place for the probes' memory was taken meanwhile".to_owned()
                }
                _ => no_memory(&error),
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
        if let Some(space) = self.spaces.get_mut(&number) {
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
        let suspended = match Self::allow_call(&mut thread) {
            Ok(suspended) => suspended,
            Err(reason) => return Ok((thread, stop, Err(reason))),
        };
        let (thread, stop) = self.guard(number, thread, stop, syscall)?;
        let entrance = self.spaces.get(&number).and_then(Space::entrance).unwrap_or(syscall);
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
    ) -> Result<Result<Entrance, String>, ProcessError> {
        let machine = if thread.registers()?.is_32_bit() { Machine::I386 } else { Machine::X86_64 };
        let Some(space) = self.spaces.get_mut(&number) else {
            return Ok(Err("the process is gone".to_owned()));
        };
        if space.syscall.is_none() {
            space.syscall = process::find_syscall(&space.code.memory, mappings, machine);
            space.note_spare();
        }
        Ok(space
            .entrance()
            .ok_or_else(|| "the process has no instruction that makes a system call".to_owned()))
    }
}

/// Unmaps pieces by calls of a thread. Returns those that could not be unmapped.
pub(crate) fn unmap(
    caller: Caller,
    pieces: &[(u64, u64)],
) -> Result<(Caller, Vec<(u64, u64)>), ProcessError> {
    let calls: Vec<Call> = pieces.iter().map(|&(start, size)| Call::unmap(start, size)).collect();
    let (caller, results) = caller.calls(&calls)?;
    let left = pieces.iter().zip(results).filter(|(_, result)| result.is_err()).map(|(piece, _)| *piece);
    Ok((caller, left.collect()))
}

/// The message for a failed mapping.
fn no_memory(error: &ProcessError) -> String {
    match error {
        ProcessError::Remote { cause, .. } => format!("mapping memory for the probes: {cause}"),
        _ => format!("mapping memory for the probes: {error}"),
    }
}

/// Merges pieces of memory into spans that contain no other mapping. Pieces are merged where
/// nothing is mapped between them.
pub(crate) fn spans(mut pieces: Vec<(u64, u64)>, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    pieces.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (base, size) in pieces {
        let is_free = |from: u64| {
            let next = mappings.partition_point(|mapping| mapping.end <= from);
            from == base || from < base && mappings.get(next).is_none_or(|mapping| mapping.start >= base)
        };
        match spans.last_mut() {
            // Without the mappings, the space between pieces is unknown.
            Some((start, length)) if !mappings.is_empty() && is_free(*start + *length) => {
                *length = base + size - *start;
            }
            _ => spans.push((base, size)),
        }
    }
    spans
}

/// Checks whether one more mapping can be made in a process with `there` mappings, `own` of them
/// for probes: the program keeps at least half of what the kernel allows.
pub(crate) fn count_mapping(there: usize, own: usize) -> Result<(), String> {
    let most = most_mappings();
    if own >= most / 2 || there + 1 >= most - most / 16 {
        return Err(format!(
            "the process has {there} of the {most} mappings that the kernel allows (vm.max_map_count), {own} of them \
             for probes; the rest is the program's"
        ));
    }
    Ok(())
}

/// The number of mappings the kernel allows a process, read once. If the limit is lowered later,
/// the kernel refuses the excess.
fn most_mappings() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        most.and_then(|text| text.trim().parse().ok()).unwrap_or(MAP_COUNT)
    })
}

/// The number of mappings that landing pads may use in a process with `there` mappings. The program
/// keeps half of the limit.
pub(crate) fn mappings_for_pads(there: usize) -> usize {
    let most = most_mappings();
    (most / 2).min((most - most / 16).saturating_sub(there))
}

/// The limits for planning landing pads in a process with `others` other mappings.
pub(crate) fn limits_for_pads(tid: i32, others: usize) -> Limits {
    Limits {
        mappings: mappings_for_pads(others),
        shadow_stacks: process::has_shadow_stack(tid),
        few_addresses: process::addresses_left(tid).is_some(),
    }
}

/// The used parts of a process's address space, by address: (start, end, growth).
pub(crate) fn taken(tid: i32, mappings: &[Mapping]) -> Vec<(u64, u64, Growth)> {
    taken_with(process::heap_start(tid), mappings)
}

/// As [`taken`], with a known start of the heap.
pub(crate) fn taken_with(heap: Option<u64>, mappings: &[Mapping]) -> Vec<(u64, u64, Growth)> {
    // A program that has just begun has no heap yet, and must find room for it.
    let heap = heap.map(|start| (start, start, Growth::Up));
    let mut taken: Vec<_> =
        mappings.iter().map(|mapping| (mapping.start, mapping.end, growth(mapping))).chain(heap).collect();
    taken.sort_by_key(|&(start, ..)| start);
    taken
}

/// How a mapping may grow.
pub(crate) fn growth(mapping: &Mapping) -> Growth {
    match mapping.label.as_deref() {
        Some("[heap]") => Growth::Up,
        Some("[stack]") => Growth::Down,
        _ => Growth::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_unmapped_together_where_nothing_is_between() {
        let mapping = |start, end| Mapping::anonymous(start, end, None);
        let pieces =
            vec![(0x5000, 0x1000), (0x1000, 0x1000), (0x3000, 0x1000), (0x9000, 0x1000), (0xa000, 0x1000)];
        let ours = [(0x1000, 0x2000), (0x3000, 0x4000), (0x5000, 0x6000), (0x9000, 0xb000)];
        let mut mappings: Vec<Mapping> = ours.map(|(start, end)| mapping(start, end)).to_vec();
        assert_eq!(spans(pieces.clone(), &mappings), [(0x1000, 0xa000)]);
        mappings.insert(3, mapping(0x7000, 0x8000));
        assert_eq!(spans(pieces.clone(), &mappings), [(0x1000, 0x5000), (0x9000, 0x2000)]);
        // One mapping reaches into a gap.
        mappings[0] = mapping(0x1000, 0x2001);
        assert_eq!(spans(pieces.clone(), &mappings)[0], (0x1000, 0x1000));
        // One mapping is larger than the piece in it.
        mappings[1] = mapping(0x3000, 0x5000);
        assert_eq!(spans(pieces.clone(), &mappings)[1], (0x3000, 0x1000));
        assert_eq!(spans(pieces, &[]).len(), 5);
    }
}
