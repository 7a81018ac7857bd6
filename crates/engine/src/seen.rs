//! The memory of a stopped thread as its handlers see it: as in the unprobed program, without
//! dprobes' changes and mappings.

use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

use layout::PAGE;
use process::Mapping;

use crate::space::Space;

/// How far below its stack pointer a thread may grow its stack.
const STACK: u64 = 256 << 20;

/// The memory of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) tid: i32,
    /// Its address space, which knows what dprobes has changed and mapped.
    pub(crate) space: Option<&'a Space>,
    /// Its stack pointer.
    pub(crate) rsp: u64,
}

impl Seen<'_> {
    /// Reads all of `into`, or returns the first address that cannot be read.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), u64> {
        let nothing = self.nothing(address, into.len());
        let length = nothing.map_or(into.len(), |nothing| (nothing - address) as usize);
        let bytes = &mut into[..length];
        let mut done = 0;
        while done < bytes.len() {
            let place = address + done as u64;
            match process::read(self.tid, place, &mut bytes[done..]) {
                Ok(()) => break,
                Err(count) => done += count,
            }
            // A tracer may read less than the program itself.
            let place = address + done as u64;
            let rest = bytes.len() - done;
            let in_page = (PAGE - place % PAGE).min(rest as u64) as usize;
            if !self.can_be_read(place) || !self.peek(place, &mut bytes[done..done + in_page]) {
                return Err(place);
            }
            done += in_page;
        }
        if let Some(space) = self.space {
            space.sites.hide(address, bytes);
        }
        nothing.map_or(Ok(()), Err)
    }

    /// Writes at most 8 bytes: all, or none, returning the first address that cannot be written.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), u64> {
        if let Some(refused) = self.refused(address, from.len()) {
            // The bytes before that address may not be writable either.
            return Err(if refused > address && !self.can_be_written(address) { address } else { refused });
        }
        let end = address.wrapping_add(from.len() as u64 - 1);
        if address / PAGE == end / PAGE {
            return process::write(self.tid, address, from).map_err(|_| address);
        }
        // Across two pages: if only the first can be written, its old bytes are restored.
        let mut old = vec![0; from.len()];
        self.read(address, &mut old)?;
        process::write(self.tid, address, from).map_err(|count| {
            let _ = process::write(self.tid, address, &old[..count]);
            address.wrapping_add(count as u64)
        })
    }

    /// Whether a byte can be read and, if `write`, also written. Changes nothing.
    pub(crate) fn verify(&self, address: u64, write: bool) -> bool {
        if self.read(address, &mut [0]).is_err() {
            return false;
        }
        !write || self.refused(address, 1).is_none() && self.can_be_written(address)
    }

    /// The first address of a range that handlers must not access: memory of dprobes, or a part
    /// into which a stack has not grown yet.
    fn nothing(&self, address: u64, length: usize) -> Option<u64> {
        let ours = self.space.and_then(|space| space.first_hidden(address, length));
        let first = address.max(self.rsp.saturating_sub(STACK));
        let last = address.saturating_add(length as u64 - 1).min(self.rsp.wrapping_sub(1));
        let below = (first <= last && reading_grows_stacks()).then(|| {
            let mappings = process::maps(self.tid).unwrap_or_default();
            let is_there = |address: &u64| mappings.iter().any(|mapping| mapping.contains(*address));
            let pages = std::iter::successors(Some(first), |at| (at / PAGE + 1).checked_mul(PAGE));
            pages.take_while(|&at| at <= last).find(|at| !is_there(at))
        });
        [ours, below.flatten()].into_iter().flatten().min()
    }

    /// The first address of a range that handlers cannot write: inaccessible, or code that has
    /// probes.
    fn refused(&self, address: u64, length: usize) -> Option<u64> {
        let last = address.saturating_add(length as u64 - 1);
        let is_probed = |address: u64| self.space.is_some_and(|space| space.is_probed_page(address));
        let second = last / PAGE * PAGE;
        let second = (second > address && is_probed(second)).then_some(second);
        let first = is_probed(address).then_some(address);
        [self.nothing(address, length), first, second].into_iter().flatten().min()
    }

    /// Whether the mapping of an address is writable. A test by rewriting the byte could undo
    /// another thread's store.
    fn can_be_written(&self, address: u64) -> bool {
        self.mapping(address).is_some_and(|mapping| mapping.writable)
    }

    /// Whether a mapping without read permission is readable nevertheless: writable and executable
    /// memory is, unless the processor has protection keys, with which the kernel makes code
    /// execute-only.
    fn can_be_read(&self, address: u64) -> bool {
        let can = |mapping: Mapping| mapping.writable || mapping.executable && !has_protection_keys();
        self.mapping(address).filter(|mapping| !mapping.readable).is_some_and(can)
    }

    fn mapping(&self, address: u64) -> Option<Mapping> {
        process::maps(self.tid).unwrap_or_default().into_iter().find(|mapping| mapping.contains(address))
    }

    /// Reads with a debugger's rights.
    fn peek(&self, address: u64, into: &mut [u8]) -> bool {
        self.space.is_some_and(|space| space.code.memory.peek(address, into).is_ok())
    }
}

/// Whether the kernel grows a stack when a tracer reads below it: before 6.5.
fn reading_grows_stacks() -> bool {
    static GROWS: OnceLock<bool> = OnceLock::new();
    *GROWS.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version < (6, 5)
    })
}

/// Whether the kernel uses memory protection keys.
fn has_protection_keys() -> bool {
    /// The cpuid leaf of extended features, and its bit in ecx (OSPKE).
    const FEATURES: u32 = 7;
    const KEYS: u32 = 1 << 4;
    __cpuid_count(0, 0).eax >= FEATURES && __cpuid_count(FEATURES, 0).ecx & KEYS != 0
}
