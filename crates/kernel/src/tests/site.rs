//! The probed instructions: a function sets the registers, executes one of them, and reads the
//! registers again.
//!
//! There are many since the kernel waits long when a probe is detached: so each run has its own,
//! and their probes are detached together.

use std::arch::global_asm;
use std::fs;

use vm::Register;

/// The general registers by their numbers in machine code; that of the stack pointer is not set.
pub(super) type Registers = [u64; 16];

/// The number of instructions that can be probed.
pub(super) const SITES: usize = 128;

global_asm!(
    ".pushsection .text",
    ".globl dprobes_kernel_test_enter",
    ".globl dprobes_kernel_test_site",
    "dprobes_kernel_test_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdi",
    "push rsi",
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
    // To the site: the stack pointer is then the same as here before the push.
    "ret",
    "dprobes_kernel_test_site:",
    ".rept 128",
    "nop",
    ".byte 0xe9",
    ".long 9f - . - 4",
    ".endr",
    "9:",
    "push rdi",
    "mov rdi, [rsp + 8]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], rdx",
    "mov [rdi + 24], rbx",
    "lea rax, [rsp + 8]",
    "mov [rdi + 32], rax",
    "mov [rdi + 40], rbp",
    "mov [rdi + 48], rsi",
    "pop rax",
    "mov [rdi + 56], rax",
    "mov [rdi + 64], r8",
    "mov [rdi + 72], r9",
    "mov [rdi + 80], r10",
    "mov [rdi + 88], r11",
    "mov [rdi + 96], r12",
    "mov [rdi + 104], r13",
    "mov [rdi + 112], r14",
    "mov [rdi + 120], r15",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn dprobes_kernel_test_enter(registers: *mut Registers, site: u64);
    safe static dprobes_kernel_test_site: u8;
}

/// Executes a site with these registers, and leaves in them those after it.
pub(super) fn hit(site: usize, registers: &mut Registers) {
    // SAFETY: the function keeps what a function must keep, and accesses its argument alone; the
    // address is that of a site.
    unsafe { dprobes_kernel_test_enter(registers, address(site)) };
}

/// The address of a site.
pub(super) fn address(site: usize) -> u64 {
    assert!(site < SITES);
    &raw const dprobes_kernel_test_site as u64 + 6 * site as u64
}

/// Its offset in this program's file.
pub(super) fn offset(site: usize) -> u64 {
    let address = address(site);
    let maps = fs::read_to_string("/proc/self/maps").expect("the own maps");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("the kernel writes numbers");
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (start, end) = words.next().and_then(|range| range.split_once('-')).expect("a range");
        let (start, end) = (hex(start), hex(end));
        if (start..end).contains(&address) {
            let offset = words.nth(1).expect("an offset");
            return hex(offset) + (address - start);
        }
    }
    panic!("no mapping has the probed instruction");
}

/// The number in machine code of a register, by any name.
pub(super) fn number(index: u16) -> Option<usize> {
    testing::conformance::number(Register::from_index(index)?)
}
