//! Handles the program's own signals.
//!
//! The program must not see where its instructions really run. A thread that a signal stops in a
//! slot is moved to where it would be in the unprobed program: to the probed instruction if that
//! has not been executed, else to the next one. If the instruction faults, the record is dropped,
//! and the handlers run again when the instruction is retried. If another signal comes before the
//! instruction, the hit stands: when the thread returns to the site, the instruction is executed
//! and its record kept, without a second hit.

use libc::siginfo_t;
use patch::SlotPosition;
use process::{Registers, Status};

pub(crate) mod slot_watcher;

mod tracer;

/// `si_code` of signals raised by the kernel, `int3` among them.
pub(crate) const SI_KERNEL: i32 = 0x80;

/// `si_code` that marks the signal of an `int3` whose thread was moved back to it; `si_addr` is the
/// address of the `int3`. The kernel does not use this code, and no other process can send it,
/// since it is not negative (rt_sigqueueinfo(2)).
pub(crate) const PUT_BACK: i32 = 0xd9b0;
const _: () = assert!(PUT_BACK > 0, "who may send a signal to a process could send its threads anywhere");

/// The bit of SIGTRAP in a signal set.
pub(crate) const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// The offset of `si_addr` in a `siginfo_t`.
const SI_ADDR: usize = 16;

/// Moves a thread in a site's slot to where it would be in the unprobed program.
pub(crate) fn show(place: SlotPosition, site: u64, registers: &mut Registers) {
    let mut shown = crate::patch_registers::to_patch(registers);
    if place.mend(site, &mut shown) {
        crate::patch_registers::from_patch(&shown, registers);
    }
}

/// Whether a signal was raised by the instruction at which its thread is stopped, and not sent by a
/// process.
pub(crate) fn is_synchronous(signal: i32, info: &siginfo_t) -> bool {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    matches!(signal, SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGTRAP | SIGSYS) && info.si_code > 0
}

/// Whether a thread is stopped on its way out of a system call that the stop has interrupted.
fn is_interrupted(registers: &Registers) -> bool {
    /// The kernel's codes for calls that it will restart: ERESTARTSYS to ERESTART_RESTARTBLOCK.
    const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;
    let result = registers.result();
    registers.call_number() >= 0 && (result == -i64::from(libc::EINTR) || RESTART.contains(&result))
}

/// Whether a signal has no effect in the thread's process. It would not even have woken the
/// untraced thread.
pub(crate) fn is_ignored(tid: i32, signal: i32) -> bool {
    let Ok(status) = Status::read(tid) else { return false };
    let bit = 1u64 << (signal - 1);
    let harmless = matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT);
    status.ignored & bit != 0 || (harmless && status.caught & bit == 0)
}

/// The address in a fault's signal.
pub(crate) fn fault_address(info: &siginfo_t) -> u64 {
    // SAFETY: reads a field of the union for which any bit pattern is valid; the caller knows its
    // meaning.
    unsafe { info.si_addr() as u64 }
}

/// Changes the address in a fault's signal.
pub(crate) fn set_fault_address(info: &mut siginfo_t, address: u64) {
    let bytes = std::ptr::from_mut(info).cast::<u8>();
    // SAFETY: the kernel's siginfo has si_addr at this offset, inside the structure, on every
    // 64-bit machine.
    unsafe { bytes.add(SI_ADDR).cast::<u64>().write_unaligned(address) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_address_is_where_the_kernel_puts_it() {
        // SAFETY: all zeros are a siginfo_t.
        let mut info: siginfo_t = unsafe { std::mem::zeroed() };
        set_fault_address(&mut info, 0x1234_5678_9abc);
        assert_eq!(fault_address(&info), 0x1234_5678_9abc);
    }
}
