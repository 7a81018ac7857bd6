//! System calls made inside the traced process, by one of its own threads.
//!
//! The thread is settled (see [`Stopped::settle`]), its signals are blocked, and it is sent to a `syscall`
//! instruction that the process already has; it stops on entering the call and on leaving it, so that no byte
//! of the process is changed and no instruction after the `syscall` runs. Then its registers and signal mask
//! are put back, and it is settled again, so that a system call that was interrupted restarts as if nothing
//! had happened.
//!
//! A thread that runs 32-bit code makes its calls by `int 0x80`, under the numbers of i386 and with other registers; the
//! vdso's `__kernel_vsyscall` has that instruction.

use std::io;

use libc::c_long;

use crate::ptrace;
use crate::thread::{Stop, Stopped};
use crate::{Error, Machine, Mapping, Memory, Registers};

/// The bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The bytes of `int 0x80`.
const INT_80: [u8; 2] = [0xcd, 0x80];

/// The largest piece of code searched at once.
const CHUNK: usize = 1 << 16;

/// Finds an instruction in the process's executable mappings by which its programs, which are for `machine`, enter the
/// kernel: its address.
pub fn find_syscall(memory: &Memory, mappings: &[Mapping], machine: Machine) -> Option<u64> {
    let wanted = if machine == Machine::I386 { INT_80 } else { SYSCALL };
    let mut bytes = vec![0; CHUNK];
    // The vdso and the dynamic linker are small and always have one: the last mappings are searched first.
    for mapping in mappings.iter().rev().filter(|mapping| mapping.executable && mapping.readable) {
        let mut start = mapping.start;
        while start < mapping.end {
            let length = CHUNK.min((mapping.end - start) as usize);
            if memory.peek(start, &mut bytes[..length]).is_err() {
                break;
            }
            if let Some(place) = bytes[..length].windows(2).position(|pair| pair == wanted) {
                return Some(start + place as u64);
            }
            // One byte less, for an instruction across the border.
            start += if length == CHUNK { length as u64 - 1 } else { length as u64 };
        }
    }
    None
}

impl Stopped {
    /// Makes one system call inside the process with this thread. `syscall` is the address of an instruction that
    /// enters the kernel ([`find_syscall`]). Gives the settled thread back, with why it is stopped now, and the
    /// call's result.
    ///
    /// `number` is x86-64's. A thread that runs 32-bit code makes i386's call of the same meaning; there is one for
    /// mmap (of anonymous memory), munmap and mprotect.
    ///
    /// # Errors
    /// The thread has been killed. An error of the call itself is in the result.
    pub fn call(
        self,
        syscall: u64,
        number: c_long,
        arguments: [u64; 6],
    ) -> Result<(Stopped, Stop, io::Result<u64>), Error> {
        let (mut thread, _) = self.settle()?;
        let saved = thread.registers()?;
        let mask = ptrace::signal_mask(thread.tid())?;
        ptrace::set_signal_mask(thread.tid(), !0)?;
        let mut registers = saved;
        registers.set_rip(syscall);
        registers.set_orig_rax(!0);
        prepare(&mut registers, number, arguments);
        thread.set_registers(&registers)?;
        let mut held_stop = false;
        let mut system_call_stops = 0;
        while system_call_stops < 2 {
            ptrace::resume_to_syscall(thread.tid())?;
            let (stopped, stop) = thread.next_stop()?;
            thread = stopped;
            match stop {
                Stop::SystemCall => system_call_stops += 1,
                // The one signal that cannot be blocked and does not kill: it is sent again below.
                Stop::Signal(libc::SIGSTOP) => held_stop = true,
                _ => {}
            }
        }
        let value = result(&thread.registers()?);
        thread.set_registers(&saved)?;
        ptrace::set_signal_mask(thread.tid(), mask)?;
        if held_stop {
            // SAFETY: a plain system call without pointers.
            unsafe { libc::syscall(libc::SYS_tkill, thread.tid(), libc::SIGSTOP) };
        }
        let (thread, stop) = thread.settle()?;
        let result = if (-4095..0).contains(&value) {
            Err(io::Error::from_raw_os_error(-value as i32))
        } else {
            Ok(value as u64)
        };
        Ok((thread, stop, result))
    }
}

/// Where a system call's number and its six arguments go, as places in [`Registers::general`]: rax; rdi, rsi, rdx, r10, r8, r9.
const PLACES: [usize; 7] = [0, 7, 6, 2, 10, 8, 9];
/// The same for 32-bit code: eax; ebx, ecx, edx, esi, edi, ebp.
const PLACES_32: [usize; 7] = [0, 3, 1, 2, 6, 7, 5];

/// Puts a call's number and arguments where the kernel looks for them.
fn prepare(registers: &mut Registers, number: c_long, arguments: [u64; 6]) {
    let narrow = registers.is_32_bit();
    let (number, places) = if narrow { (number_32(number), PLACES_32) } else { (number, PLACES) };
    let mut general = registers.general();
    for (place, value) in places.into_iter().zip(std::iter::once(number as u64).chain(arguments)) {
        general[place] = if narrow { value & 0xffff_ffff } else { value };
    }
    registers.set_general(&general);
}

/// i386's number of a call (arch/x86/entry/syscalls/syscall_32.tbl); for others one that the kernel answers with ENOSYS.
fn number_32(number: c_long) -> c_long {
    match number {
        // mmap2, whose offset counts pages.
        libc::SYS_mmap => 192,
        libc::SYS_munmap => 91,
        libc::SYS_mprotect => 125,
        _ => 0x7fff_ffff,
    }
}

/// The result of a call; of 32-bit code an address may have the sign bit, an error is one of the last 4095.
fn result(registers: &Registers) -> i64 {
    let value = registers.result();
    if registers.is_32_bit() && !(-4095..0).contains(&value) { value & 0xffff_ffff } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(cs: u64) -> Registers {
        // SAFETY: the structure holds numbers only, which may all be 0.
        let mut registers = Registers::from_raw(unsafe { std::mem::zeroed() });
        registers.set_cs(cs);
        registers
    }

    #[test]
    fn a_call_of_32_bit_code_has_its_own_number_and_registers() {
        let mut narrow = registers(0x23);
        prepare(&mut narrow, libc::SYS_mmap, [1, 2, 3, 4, !0, 6]);
        assert_eq!(narrow.general()[..8], [192, 2, 3, 1, 0, 6, 4, 0xffff_ffff]);
        let mut wide = registers(0x33);
        prepare(&mut wide, libc::SYS_mmap, [1, 2, 3, 4, !0, 6]);
        assert_eq!((wide.rax(), wide.rdi(), wide.rsi(), wide.rdx()), (9, 1, 2, 3));
        assert_eq!((wide.r10(), wide.r8(), wide.general()[9]), (4, !0, 6));
    }

    #[test]
    fn a_high_address_is_no_error() {
        let mut narrow = registers(0x23);
        for (rax, value) in
            [(0xf7f0_0000, 0xf7f0_0000), (0xffff_ffff_f7f0_0000, 0xf7f0_0000), (0xffff_fff4, -12)]
        {
            narrow.set_rax(rax);
            assert_eq!(result(&narrow), value);
        }
        narrow.set_orig_rax(0xffff_ffff);
        assert_eq!(narrow.call_number(), -1);
    }
}
