//! System calls made inside the traced process, by one of its own threads.
//!
//! The thread is settled (see [`Stopped::settle`]), its signals are blocked, and it is sent to a `syscall`
//! instruction that the process already has; it stops on entering the call and on leaving it, so that no byte
//! of the process is changed and no instruction after the `syscall` runs. Then its registers and signal mask
//! are put back, and it is settled again, so that a system call that was interrupted restarts as if nothing
//! had happened.

use std::io;

use libc::c_long;

use crate::ptrace;
use crate::thread::{Stop, Stopped};
use crate::{Error, Mapping, Memory};

/// The bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The largest piece of code searched at once.
const CHUNK: usize = 1 << 16;

/// Finds a `syscall` instruction in the process's executable mappings: its address.
pub fn find_syscall(memory: &Memory, mappings: &[Mapping]) -> Option<u64> {
    let mut bytes = vec![0; CHUNK];
    // The vdso and the dynamic linker are small and always have one: the last mappings are searched first.
    for mapping in mappings.iter().rev().filter(|mapping| mapping.executable && mapping.readable) {
        let mut start = mapping.start;
        while start < mapping.end {
            let length = CHUNK.min((mapping.end - start) as usize);
            if memory.peek(start, &mut bytes[..length]).is_err() {
                break;
            }
            if let Some(place) = bytes[..length].windows(2).position(|pair| pair == SYSCALL) {
                return Some(start + place as u64);
            }
            // One byte less, for an instruction across the border.
            start += if length == CHUNK { length as u64 - 1 } else { length as u64 };
        }
    }
    None
}

impl Stopped {
    /// Makes one system call inside the process with this thread. `syscall` is the address of a `syscall`
    /// instruction there. Gives the settled thread back, with why it is stopped now, and the call's result.
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
        registers.set_rax(number as u64);
        registers.set_orig_rax(!0);
        registers.set_rdi(arguments[0]);
        registers.set_rsi(arguments[1]);
        registers.set_rdx(arguments[2]);
        registers.set_r10(arguments[3]);
        registers.set_r8(arguments[4]);
        let mut general = registers.general();
        general[9] = arguments[5];
        registers.set_general(&general);
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
        let value = thread.registers()?.rax() as i64;
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
