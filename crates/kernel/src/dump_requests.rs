//! The requests of handlers for core dumps (`exit 3`): their maps, and their reader. `core_dumps`
//! says what handlers do with these.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bpf::{Map as BpfMap, MapError, MapSpec, RingBuffer, Shared};

use crate::layout::state;

/// The words of the map that says whether a dump is being written.
pub(crate) mod word {
    /// 0: none. When a handler has asked for one, by `CLOCK_BOOTTIME`; [`super::TAKEN`] from when
    /// it is answered until the dump is written.
    pub(crate) const ASKED: u32 = 0;
    /// Exits that came meanwhile.
    pub(crate) const REFUSED: u32 = 8;
    /// Bytes.
    pub(crate) const SIZE: u32 = 64;
}

/// No time.
const TAKEN: u64 = 1;

/// A request: where its words are.
pub(crate) mod request {
    pub(crate) const TIME: i16 = 0;
    pub(crate) const COOKIE: i16 = 8;
    pub(crate) const PID_TGID: i16 = 16;
    pub(crate) const CODES: i16 = 24;
    pub(crate) const REGISTERS: i16 = 32;
    pub(crate) const SIZE: i32 = 32 + 8 * super::WORDS as i32;
}

/// The words of the kernel's `struct pt_regs`.
pub(crate) const WORDS: usize = 21;
/// Bytes of the ring of requests: there is one request at a time.
const RING: u32 = 4096;

/// A request for a core dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpRequest {
    /// The number of the probe, and of the site.
    pub probe: u32,
    /// The number of the site.
    pub site: u32,
    /// When it was made: nanoseconds of `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The process, as the initial namespace numbers it.
    pub tgid: u32,
    /// The thread, likewise.
    pub tid: u32,
    /// The major code, if the handler has set one.
    pub major: Option<u32>,
    /// The minor code, if the handler has set one.
    pub minor: Option<u32>,
    /// The registers as the handler has left them, in the order of the kernel's `struct pt_regs`:
    /// r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, the number of a
    /// system call or -1, rip, cs, rflags, rsp, ss.
    pub registers: [u64; WORDS],
}

impl DumpRequest {
    /// Reads a request.
    fn parse(bytes: &[u8]) -> Option<DumpRequest> {
        let word = |place: i16| {
            let bytes = bytes.get(place as usize..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let halves = |place| word(place).map(|both| (both as u32, (both >> 32) as u32));
        let set = |code: u32| Some(code).filter(|&code| code != u32::MAX);
        let (probe, site) = halves(request::COOKIE)?;
        let (tid, tgid) = halves(request::PID_TGID)?;
        let (major, minor) = halves(request::CODES)?;
        let mut registers = [0; WORDS];
        for (number, register) in registers.iter_mut().enumerate() {
            *register = word(request::REGISTERS + 8 * number as i16)?;
        }
        let time = word(request::TIME)?;
        Some(DumpRequest { probe, site, time, tgid, tid, major: set(major), minor: set(minor), registers })
    }

    /// How long ago the probe was hit.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(crate::rings::now().saturating_sub(self.time))
    }
}

/// The maps of the requests of a program.
#[derive(Debug)]
pub(crate) struct DumpMaps {
    pub(crate) words: BpfMap,
    pub(crate) requests: BpfMap,
}

impl DumpMaps {
    /// No request yet.
    pub(crate) fn create() -> Result<DumpMaps, MapError> {
        let words = MapSpec { mappable: true, ..MapSpec::array("dp_dumps", word::SIZE, 1) };
        let requests = MapSpec::ring("dp_requests", RING);
        Ok(DumpMaps { words: BpfMap::create(&words)?, requests: BpfMap::create(&requests)? })
    }

    /// Their reader; there is one at a time. `states` is the map of the probes' states.
    pub(crate) fn reader(&self, states: &BpfMap) -> Result<DumpRequests, MapError> {
        Ok(DumpRequests {
            words: self.words.share()?,
            states: states.share()?,
            ring: RingBuffer::new(&self.requests)?,
        })
    }
}

/// The reader of requests for core dumps. Another thread than that of the [`crate::Maps`] may have
/// it.
#[derive(Debug)]
pub struct DumpRequests {
    words: Shared,
    states: Shared,
    ring: RingBuffer,
}

impl DumpRequests {
    /// Lets a probe, by its number, ask for dumps, or not any more.
    pub fn allow(&self, probe: usize, allowed: bool) {
        let place = probe * (state::SIZE / 8) as usize + (state::DUMPS / 8) as usize;
        if let Some(word) = self.states.get(place) {
            word.store(allowed.into(), Ordering::Relaxed);
        }
    }

    /// The next request, if there is one. It is to be taken, and done.
    pub fn next_request(&mut self) -> Option<DumpRequest> {
        let mut next = None;
        // The kernel breaks no ring: only our programs write to it.
        let _ = self.ring.drain_while(|bytes| {
            let is_first = next.is_none();
            next = next.take().or_else(|| DumpRequest::parse(bytes));
            is_first
        });
        next
    }

    /// Answers a request: a thread that waits goes on. Returns whether it has waited until now.
    pub fn take(&self, request: &DumpRequest) -> bool {
        let asked = &self.words[(word::ASKED / 8) as usize];
        asked.compare_exchange(request.time, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The dump is written, or there is none: the next one may be asked for. Returns how many were
    /// meanwhile.
    pub fn done(&self, request: &DumpRequest) -> u64 {
        let refused = self.words[(word::REFUSED / 8) as usize].swap(0, Ordering::Relaxed);
        let asked = &self.words[(word::ASKED / 8) as usize];
        // A request that nobody has taken may be over already.
        for mine in [TAKEN, request.time] {
            let _ = asked.compare_exchange(mine, 0, Ordering::Release, Ordering::Relaxed);
        }
        refused
    }
}

impl AsFd for DumpRequests {
    /// Readable when there is a request.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
