//! The memory of a stopped thread as its handlers see it: as the program itself does, without what dprobes has put there.

use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

use layout::PAGE;
use process::Mapping;

use crate::space::Space;

/// How far below its stack pointer a thread may make its stack grow.
const STACK: u64 = 256 << 20;

/// The memory of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) tid: i32,
    /// Its address space, which knows what dprobes has put there.
    pub(crate) space: Option<&'a Space>,
    /// Its stack pointer.
    pub(crate) rsp: u64,
}

impl Seen<'_> {
    /// Copies memory: all of `into`, or the first address that cannot be read.
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
            // The kernel gives a tracer less than the processor gives the program.
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

    /// Writes at most 8 bytes: all, or none and the first address that cannot be written.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), u64> {
        if let Some(refused) = self.refused(address, from.len()) {
            // What is before it may be refused, too.
            return Err(if refused > address && !self.can_be_written(address) { address } else { refused });
        }
        let end = address.wrapping_add(from.len() as u64 - 1);
        if address / PAGE == end / PAGE {
            return process::write(self.tid, address, from).map_err(|_| address);
        }
        // Across two pages the first could be written and the second not: what the first held is put back.
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

    /// The first of some addresses at which there is nothing for handlers: memory of dprobes, or that into which a stack has not grown.
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

    /// The first of some addresses that handlers cannot write to: there is nothing for them, or it is code with probes in it.
    fn refused(&self, address: u64, length: usize) -> Option<u64> {
        let last = address.saturating_add(length as u64 - 1);
        let is_probed = |address: u64| self.space.is_some_and(|space| space.is_probed_page(address));
        let second = last / PAGE * PAGE;
        let second = (second > address && is_probed(second)).then_some(second);
        let first = is_probed(address).then_some(address);
        [self.nothing(address, length), first, second].into_iter().flatten().min()
    }

    /// Whether the mapping of an address can be written to. Writing the byte that is there could undo a store of another thread.
    fn can_be_written(&self, address: u64) -> bool {
        self.mapping(address).is_some_and(|mapping| mapping.writable)
    }

    /// Whether a mapping can be read that does not say so: what can be written or executed can be read, too, but where the processor has keys
    /// for pages, with which the kernel keeps code from being read.
    fn can_be_read(&self, address: u64) -> bool {
        let can = |mapping: Mapping| mapping.writable || mapping.executable && !has_protection_keys();
        self.mapping(address).filter(|mapping| !mapping.readable).is_some_and(can)
    }

    fn mapping(&self, address: u64) -> Option<Mapping> {
        process::maps(self.tid).unwrap_or_default().into_iter().find(|mapping| mapping.contains(address))
    }

    /// Reads what a debugger can.
    fn peek(&self, address: u64, into: &mut [u8]) -> bool {
        self.space.is_some_and(|space| space.code.memory.peek(address, into).is_ok())
    }
}

/// Whether the kernel makes a stack grow where a tracer reads: before 6.5.
fn reading_grows_stacks() -> bool {
    static GROWS: OnceLock<bool> = OnceLock::new();
    *GROWS.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version < (6, 5)
    })
}

/// Whether the kernel uses the processor's keys for pages.
fn has_protection_keys() -> bool {
    /// The leaf of further features, and the bit in ecx (OSPKE).
    const FEATURES: u32 = 7;
    const KEYS: u32 = 1 << 4;
    __cpuid_count(0, 0).eax >= FEATURES && __cpuid_count(FEATURES, 0).ecx & KEYS != 0
}
