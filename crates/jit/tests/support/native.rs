//! Enters compiled code with chosen registers, and returns with the resulting ones.
//!
//! Faults are handled as by the tracer.

use super::interpreter;
use dprobes_jit::Compiled;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once};

/// Words of the red zone.
const RED_ZONE: usize = 16;

/// The registers before and after a hit.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// By register number; rsp is the site's.
    pub(crate) general: [u64; 16],
    /// rflags; only the status flags and the direction flag are set before.
    pub(crate) flags: u64,
    /// The red zone below rsp.
    pub(crate) red_zone: [u64; RED_ZONE],
    pub(crate) target: u64,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers { general: [0; 16], flags: 2, red_zone: [0; RED_ZONE], target: 0 }
    }
}

impl Registers {
    /// The status flags and the direction flag.
    pub(crate) const FLAGS: u64 = 0xcd5;
}

// The block's address is in rdi; the site's rsp is the function's, with the block's address on top.
std::arch::global_asm!(
    ".text",
    ".globl jit_test_enter",
    "jit_test_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "pushfq",
    "push [rdi + 264]",
    "push rdi",
    "mov [rdi + 32], rsp",
    // Nothing is written below the red zone: the stack may end there.
    "lea rsi, [rdi + 136]",
    "xor ecx, ecx",
    "2: mov rax, [rsi + rcx * 8]",
    "mov [rsp + rcx * 8 - 128], rax",
    "inc ecx",
    "cmp ecx, 16",
    "jne 2b",
    "lea rsp, [rdi + 128]",
    "popfq",
    "mov rsp, [rdi + 32]",
    "mov rax, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "jmp [rsp + 8]",
    ".globl jit_test_back",
    "jit_test_back:",
    "mov [rsp + 8], rdi",
    "mov rdi, [rsp]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], rdx",
    "mov [rdi + 24], rbx",
    "mov [rdi + 32], rsp",
    "mov [rdi + 40], rbp",
    "mov [rdi + 48], rsi",
    "mov rax, [rsp + 8]",
    "mov [rdi + 56], rax",
    "mov [rdi + 64], r8",
    "mov [rdi + 72], r9",
    "mov [rdi + 80], r10",
    "mov [rdi + 88], r11",
    "mov [rdi + 96], r12",
    "mov [rdi + 104], r13",
    "mov [rdi + 112], r14",
    "mov [rdi + 120], r15",
    "lea rsp, [rdi + 136]",
    "pushfq",
    "mov rsp, [rdi + 32]",
    "cld",
    "lea rsi, [rdi + 136]",
    "xor ecx, ecx",
    "2: mov rax, [rsp + rcx * 8 - 128]",
    "mov [rsi + rcx * 8], rax",
    "inc ecx",
    "cmp ecx, 16",
    "jne 2b",
    "pop rdi",
    "pop rdi",
    "popfq",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // The agent's part of a call: its own stack, vector registers and flags preserved.
    ".globl jit_test_resume",
    "jit_test_resume:",
    "lea rax, [rip + jit_test_resume_inner]",
    "jmp 3f",
    ".globl jit_test_wait",
    "jit_test_wait:",
    "lea rax, [rip + jit_test_wait_inner]",
    "jmp 3f",
    ".globl jit_test_map",
    "jit_test_map:",
    "lea rax, [rip + jit_test_map_inner]",
    "3: push rbp",
    "pushfq",
    "cld",
    "mov rbp, rsp",
    "lea rsp, [rdi + 0x40000 - 256]",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "movups [rsp + 128], xmm8",
    "movups [rsp + 144], xmm9",
    "movups [rsp + 160], xmm10",
    "movups [rsp + 176], xmm11",
    "movups [rsp + 192], xmm12",
    "movups [rsp + 208], xmm13",
    "movups [rsp + 224], xmm14",
    "movups [rsp + 240], xmm15",
    "call rax",
    // What a function may change.
    "mov rcx, -1",
    "mov rdx, -2",
    "mov rsi, -3",
    "mov rdi, -4",
    "mov r8, -5",
    "mov r9, -6",
    "mov r10, -7",
    "mov r11, -8",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "movups xmm8, [rsp + 128]",
    "movups xmm9, [rsp + 144]",
    "movups xmm10, [rsp + 160]",
    "movups xmm11, [rsp + 176]",
    "movups xmm12, [rsp + 192]",
    "movups xmm13, [rsp + 208]",
    "movups xmm14, [rsp + 224]",
    "movups xmm15, [rsp + 240]",
    "mov rsp, rbp",
    "popfq",
    "pop rbp",
    "ret",
);

unsafe extern "C" {
    fn jit_test_enter(registers: *mut Registers);
    fn jit_test_back();
    fn jit_test_resume();
    fn jit_test_wait();
    fn jit_test_map();
}

// SAFETY: no other function has that name.
#[unsafe(no_mangle)]
unsafe extern "C" fn jit_test_resume_inner(
    context: *mut layout::Context,
    info: *const layout::HandlerInfo,
) -> u64 {
    // SAFETY: compiled code gives the context that it has claimed, and the info of its environment.
    unsafe { interpreter::resume(context, info) }
}

// SAFETY: no other function has that name.
#[unsafe(no_mangle)]
unsafe extern "C" fn jit_test_wait_inner(context: *mut layout::Context, bytes: u64) -> u64 {
    // SAFETY: compiled code gives the context that it has claimed.
    unsafe { interpreter::wait(context, bytes) }
}

// SAFETY: no other function has that name.
#[unsafe(no_mangle)]
unsafe extern "C" fn jit_test_map_inner(
    context: *mut layout::Context,
    info: *const layout::HandlerInfo,
) -> u64 {
    // SAFETY: compiled code gives the context that it has claimed, and the info of its environment.
    unsafe { interpreter::map(context, info) }
}

/// Where compiled code continues behind the displaced instruction.
pub(crate) fn way_back() -> u64 {
    jit_test_back as *const () as u64
}

/// The agent's `resume`.
pub(crate) fn resume_entry() -> u64 {
    jit_test_resume as *const () as u64
}

/// The agent's `wait`.
pub(crate) fn wait_entry() -> u64 {
    jit_test_wait as *const () as u64
}

/// The agent's `map`.
pub(crate) fn map_entry() -> u64 {
    jit_test_map as *const () as u64
}

/// Enters code at an address.
///
/// # Safety
///
/// The code at `target` goes to [`way_back`] with the stack pointer that it got.
pub(crate) unsafe fn enter_raw(target: u64, registers: &mut Registers) {
    registers.target = target;
    registers.flags = registers.flags & Registers::FLAGS | 2;
    // SAFETY: the caller's.
    unsafe { jit_test_enter(registers) };
}

/// The code under test, for its fault handler.
static TESTED: AtomicPtr<Compiled> = AtomicPtr::new(std::ptr::null_mut());
static ADDRESS: AtomicU64 = AtomicU64::new(0);
/// Faults that were repaired.
pub(crate) static REPAIRED: AtomicU64 = AtomicU64::new(0);
/// Whether the last fault was one of the prologue.
pub(crate) static OVERFLOWED: AtomicBool = AtomicBool::new(false);

extern "C" fn fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let (tested, address) = (TESTED.load(SeqCst), ADDRESS.load(SeqCst));
    // SAFETY: the kernel gives a ucontext_t to a handler of SA_SIGINFO.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let rip = registers[libc::REG_RIP as usize] as u64;
    let offset = rip.wrapping_sub(address);
    // SAFETY: `enter` sets it to a Compiled that lives until it is set to null again.
    if let Some(compiled) = unsafe { tested.as_ref() } {
        if let Some(repair) = u32::try_from(offset).ok().and_then(|offset| compiled.repair(offset)) {
            registers[libc::REG_RIP as usize] = (address + u64::from(repair)) as i64;
            // SAFETY: the kernel gives a siginfo_t of a fault.
            registers[libc::REG_RAX as usize] = unsafe { (*info).si_addr() } as i64;
            REPAIRED.fetch_add(1, SeqCst);
            return;
        }
        if let Some(below) = u32::try_from(offset).ok().and_then(|offset| compiled.undo(offset)) {
            registers[libc::REG_RSP as usize] += i64::from(below);
            registers[libc::REG_RIP as usize] = (address + compiled.len() as u64) as i64;
            OVERFLOWED.store(true, SeqCst);
            return;
        }
    }
    eprintln!("fault at {rip:#x} (offset {offset:#x}) of {address:#x}, registers {registers:x?}");
    // SAFETY: restores the default, so that the repeated fault ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

static ONE: Mutex<()> = Mutex::new(());

/// Only one test at a time may have faults handled.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: an all-zero sigaction is valid, and `fault` is a handler of SA_SIGINFO.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
    });
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Enters a compiled handler that was placed at an address by [`super::arena::Arena::place`]; the
/// caller holds [`exclusive`].
pub(crate) fn enter(compiled: &Compiled, address: u64, registers: &mut Registers) {
    ADDRESS.store(address, SeqCst);
    TESTED.store(std::ptr::from_ref(compiled).cast_mut(), SeqCst);
    // SAFETY: it is compiled code, which keeps the stack pointer, and the way back is behind it.
    unsafe { enter_raw(address + u64::from(compiled.entry()), registers) };
    TESTED.store(std::ptr::null_mut(), SeqCst);
}

/// [`enter`], with the stack pointer at the site as given: the function's own frame lies above it.
pub(crate) fn enter_on(compiled: &Compiled, address: u64, registers: &mut Registers, rsp: u64) {
    ADDRESS.store(address, SeqCst);
    TESTED.store(std::ptr::from_ref(compiled).cast_mut(), SeqCst);
    registers.target = address + u64::from(compiled.entry());
    registers.flags = registers.flags & Registers::FLAGS | 2;
    // The function pushes its return address and nine words before the site.
    let top = (rsp + 10 * 8) & !7;
    // SAFETY: the stack there is the test's, with room for the function; code that runs on it
    // restores rsp.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {enter}",
            "mov rsp, r12",
            top = in(reg) top,
            enter = in(reg) jit_test_enter as *const () as u64,
            in("rdi") std::ptr::from_mut(registers),
            out("r12") _,
            clobber_abi("C"),
        );
    }
    TESTED.store(std::ptr::null_mut(), SeqCst);
}
