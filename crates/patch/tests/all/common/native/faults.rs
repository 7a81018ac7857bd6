//! Notes the faults of the code under test, and ends its run.

use std::ptr::addr_of_mut;

use super::{FAULT, FRAME, Fault, patch_test_recover};

const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Gives the running thread a signal stack, since rsp can be anything when a signal comes.
pub(super) fn prepare_signals() {
    const LENGTH: usize = 1 << 18;
    let stack = libc::stack_t {
        ss_sp: Vec::leak(vec![0_u8; LENGTH]).as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: LENGTH,
    };
    // SAFETY: the stack is leaked memory of that length; the handler has the signature that
    // SA_SIGINFO asks for.
    unsafe {
        assert_eq!(libc::sigaltstack(&raw const stack, std::ptr::null_mut()), 0);
        for signal in SIGNALS {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }
}

pub(super) const TRAP_FLAG: u64 = 0x100;

/// The meaning of a debug exception. The trap flag is set before the registers are loaded, so the
/// first ones come on the way in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepping {
    No,
    Enters,
    Executes,
}

pub(super) static mut STEPPING: Stepping = Stepping::No;

/// The start of the code under test.
pub(super) static mut FIRST: u64 = 0;

static mut FAULT_ADDRESS: u64 = 0;

pub(super) fn fault_address() -> u64 {
    // SAFETY: written by the handler, which does not run now; the lock is held.
    unsafe { FAULT_ADDRESS }
}

/// Notes the fault and ends the run.
extern "C" fn on_fault(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    const ORDER: [i32; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    // SAFETY: the kernel passes a valid siginfo and ucontext for the duration of the call. For a
    // fault outside the arena, of the test program itself, the default action is restored, and the
    // fault happens again.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let rip = registers[libc::REG_RIP as usize] as u64;
        if signal == libc::SIGTRAP && STEPPING == Stepping::Enters {
            if rip == FIRST {
                STEPPING = Stepping::Executes;
            }
            return;
        }
        if (0x5000_0000_0000..0x8000_0000_0000).contains(&rip) {
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
        let frame = addr_of_mut!(FRAME);
        for (number, index) in ORDER.into_iter().enumerate() {
            (*frame).gpr[number] = registers[index as usize] as u64;
        }
        (*frame).rflags = registers[libc::REG_EFL as usize] as u64;
        FAULT_ADDRESS = rip;
        *addr_of_mut!(FAULT) = Some(Fault {
            signal,
            code: (*information).si_code,
            address: if signal == libc::SIGTRAP { 0 } else { (*information).si_addr() as u64 },
            trap: registers[libc::REG_TRAPNO as usize],
            error: registers[libc::REG_ERR as usize],
        });
        registers[libc::REG_RIP as usize] = patch_test_recover as *const () as i64;
        registers[libc::REG_EFL as usize] = 0x202;
        // The low 16 bits are the code segment: switch back to 64-bit code.
        registers[libc::REG_CSGSFS as usize] = registers[libc::REG_CSGSFS as usize] & !0xffff | 0x33;
    }
}
