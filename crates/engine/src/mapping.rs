//! Maps memory for probes in a process, by system calls of one of its threads.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use patch::tactic::Limits;
use process::{Call, Caller, Error as ProcessError, Mapping, Stop, Stopped};

use crate::reason::NotMapped;
use crate::slots::Growth;

mod spaces;

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
/// calls, or why there is none.
pub(crate) type Called<T, E = NotMapped> = Result<(Stopped, Stop, Result<T, E>), ProcessError>;

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

/// The reason of a failed mapping.
fn no_memory(error: ProcessError) -> NotMapped {
    NotMapped::Refused(match error {
        ProcessError::Remote { cause, .. } => cause.into(),
        error => error.into(),
    })
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
pub(crate) fn count_mapping(there: usize, own: usize) -> Result<(), NotMapped> {
    let most = most_mappings();
    if own >= most / 2 || there + 1 >= most - most / 16 {
        return Err(NotMapped::TooMany { there, own, most });
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

/// Makes system calls possible in a thread with seccomp filters by suspending them.
/// `Ok(suspended)` if a call may be made.
pub(crate) fn allow_call(thread: &mut Stopped) -> Result<bool, NotMapped> {
    match thread.status().map(|status| status.seccomp) {
        Ok(0) => Ok(false),
        _ => thread.suspend_seccomp().map(|()| true).map_err(|_| NotMapped::Sandbox),
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
