//! The functions that the compiler expects from libc. They are in assembly because the compiler may
//! replace a Rust loop by a call of the function itself.

use core::arch::naked_asm;

/// Copies at most 32 bytes from `rsi` to `rdi` (`rdx`: length), with all loads before the first
/// store; for more, jumps to `5`. Starting `rep movsb` takes longer than this.
macro_rules! copy_few {
    ($more:literal) => {
        concat!(
            "mov rax, rdi\n",
            "cmp rdx, 32\n",
            "ja 5f\n",
            "cmp rdx, 16\n",
            "ja 4f\n",
            "cmp rdx, 8\n",
            "jae 3f\n",
            "cmp rdx, 4\n",
            "jae 2f\n",
            "test rdx, rdx\n",
            "jz 6f\n",
            // 1 to 3: the first, the middle, the last.
            "mov rcx, rdx\n",
            "shr rcx\n",
            "movzx r8d, byte ptr [rsi]\n",
            "movzx r9d, byte ptr [rsi + rcx]\n",
            "movzx r10d, byte ptr [rsi + rdx - 1]\n",
            "mov [rdi], r8b\n",
            "mov [rdi + rcx], r9b\n",
            "mov [rdi + rdx - 1], r10b\n",
            "6: ret\n",
            "2: mov r8d, [rsi]\n",
            "mov r9d, [rsi + rdx - 4]\n",
            "mov [rdi], r8d\n",
            "mov [rdi + rdx - 4], r9d\n",
            "ret\n",
            "3: mov r8, [rsi]\n",
            "mov r9, [rsi + rdx - 8]\n",
            "mov [rdi], r8\n",
            "mov [rdi + rdx - 8], r9\n",
            "ret\n",
            "4: movups xmm0, [rsi]\n",
            "movups xmm1, [rsi + rdx - 16]\n",
            "movups [rdi], xmm0\n",
            "movups [rdi + rdx - 16], xmm1\n",
            "ret\n",
            "5:\n",
            $more
        )
    };
}

/// Copies `rdx` bytes from `rsi` to `rdi`, which do not overlap; returns the old `rdi`.
///
/// # Safety
/// Both ranges are mapped.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    naked_asm!(copy_few!("mov rcx, rdx\nrep movsb\nret"))
}

/// Copies `rdx` bytes from `rsi` to `rdi`, which may overlap; returns the old `rdi`.
///
/// # Safety
/// Both ranges are mapped.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    naked_asm!(
        copy_few!("mov rcx, rdx"),
        "mov rdx, rdi",
        "sub rdx, rsi",
        // The destination begins inside the source: copy downwards.
        "cmp rdx, rcx",
        "jb 7f",
        "rep movsb",
        "ret",
        "7:",
        "lea rsi, [rsi + rcx - 1]",
        "lea rdi, [rdi + rcx - 1]",
        "std",
        "rep movsb",
        "cld",
        "ret",
    )
}

/// Sets `rdx` bytes at `rdi` to the low byte of `esi`; returns the old `rdi`.
///
/// # Safety
/// The range is mapped.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    naked_asm!("mov r8, rdi", "mov rcx, rdx", "mov eax, esi", "rep stosb", "mov rax, r8", "ret")
}

/// Compares `rdx` bytes at `rdi` and `rsi`: negative, 0 or positive by the first difference.
///
/// # Safety
/// Both ranges are mapped.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    naked_asm!(
        "mov rcx, rdx",
        // With length 0 they are equal.
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
/// Both ranges are mapped.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    naked_asm!("jmp {}", sym memcmp)
}

/// The end of a broken invariant: abandons the run, and the program continues.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    super::entry::dprobes_give_up()
}
