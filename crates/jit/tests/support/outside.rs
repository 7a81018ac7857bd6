//! A thread from outside: what programs read and write beside their memory is noted.
#![allow(dead_code, reason = "each test uses its own part")]

use libc::{c_void, iovec};
use testing::conformance::number;
use vm::{Clock, Fault, Machine, Register};

use super::programs::{MEMORY, memory};
use super::script_pieces::{THREAD, time};

const PAGE: u64 = 4096;

/// This thread from outside: its registers at the site, its memory through the kernel.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) general: [u64; 16],
    pub(crate) rip: u64,
    pub(crate) rflags: u64,
    /// Whether the probe is removed, which ends long runs.
    pub(crate) removed: bool,
    /// Whether it has reached memory that is not the programs'. That is the tests' own, which other
    /// threads change, and which must not be written to.
    pub(crate) strayed: bool,
}

/// Whether a byte is in the pages that programs may reach.
fn is_programs(address: u64) -> bool {
    let first = memory() + MEMORY as u64 - PAGE;
    [first, first + 2 * PAGE].contains(&(address & !(PAGE - 1)))
}

impl Machine for Outside {
    fn register(&mut self, register: Register) -> u64 {
        match register {
            Register::Rip | Register::Eip => self.rip,
            Register::Rflags | Register::Eflags => self.rflags,
            other => number(other).map_or(0, |place| self.general[place]),
        }
    }

    fn set_register(&mut self, register: Register, value: u64) {
        if let Some(place) = number(register) {
            self.general[place] = value;
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let local = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = iovec { iov_base: address as *mut c_void, iov_len: into.len() };
        // SAFETY: the local vector is `into`; the kernel checks the other.
        let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        let count = count.max(0) as u64;
        self.strayed |= (0..count).any(|byte| !is_programs(address.wrapping_add(byte)));
        if count == into.len() as u64 { Ok(()) } else { Err(Fault { address: address.wrapping_add(count) }) }
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let mut bytes = (0..from.len() as u64).map(|byte| address.wrapping_add(byte));
        if let Some(refused) = bytes.find(|&address| !self.verify(address, true)) {
            return Err(Fault { address: refused });
        }
        // SAFETY: every byte is in the one page that programs may write.
        unsafe { (address as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        // Also what is only to be written is read, so that straying is noted.
        let readable = self.read(address, &mut [0]).is_ok();
        readable && (!write || address & !(PAGE - 1) == memory() & !(PAGE - 1))
    }

    fn is_over(&mut self) -> bool {
        self.removed
    }

    fn pid(&mut self) -> u64 {
        std::process::id().into()
    }

    fn processor(&mut self) -> u64 {
        // SAFETY: a call without arguments.
        (unsafe { libc::sched_getcpu() }) as u64
    }

    fn thread(&mut self) -> Option<u64> {
        Some(THREAD)
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        Some(time(clock))
    }
}
