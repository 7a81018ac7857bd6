//! The four functions that the compiler takes for granted, there being no libc. In assembly: in Rust the compiler may
//! see what a loop is and replace it with a call of itself.

use core::arch::naked_asm;

/// Copies `rdx` bytes from `rsi` to `rdi`, which do not overlap, and gives the old `rdi`.
///
/// # Safety
/// The bytes are there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    naked_asm!("mov rax, rdi", "mov rcx, rdx", "rep movsb", "ret")
}

/// Copies `rdx` bytes from `rsi` to `rdi`, which may overlap, and gives the old `rdi`.
///
/// # Safety
/// The bytes are there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdx",
        "mov rdx, rdi",
        "sub rdx, rsi",
        // The destination begins inside of the source: from the end down.
        "cmp rdx, rcx",
        "jb 2f",
        "rep movsb",
        "ret",
        "2:",
        "lea rsi, [rsi + rcx - 1]",
        "lea rdi, [rdi + rcx - 1]",
        "std",
        "rep movsb",
        "cld",
        "ret",
    )
}

/// Sets `rdx` bytes from `rdi` on to the low byte of `esi`, and gives the old `rdi`.
///
/// # Safety
/// The bytes are there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    naked_asm!("mov r8, rdi", "mov rcx, rdx", "mov eax, esi", "rep stosb", "mov rax, r8", "ret")
}

/// Compares `rdx` bytes at `rdi` and `rsi`: negative, 0 or positive by the first that differ.
///
/// # Safety
/// The bytes are there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    naked_asm!(
        "mov rcx, rdx",
        // Without a byte to compare they are equal.
        "xor eax, eax",
        "cmp eax, eax",
        "repe cmpsb",
        "je 2f",
        "movzx eax, byte ptr [rdi - 1]",
        "movzx ecx, byte ptr [rsi - 1]",
        "sub eax, ecx",
        "2:",
        "ret",
    )
}

/// Compares `rdx` bytes at `rdi` and `rsi`: 0 if they are equal.
///
/// # Safety
/// The bytes are there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    naked_asm!("jmp {}", sym memcmp)
}

/// Where a broken invariant ends: the run is given up, and the program goes on.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    super::entry::dprobes_give_up()
}
