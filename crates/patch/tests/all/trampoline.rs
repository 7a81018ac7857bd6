//! Static predictions for instructions in a trampoline: whether they can fault there, where they
//! go, and what is dead before them.

use std::ops::RangeInclusive;

use dprobes_patch::{Displaced, Mode, dead_registers, displace, flags_are_dead};

const SITE: u64 = 0x40_1000;
/// The address of `[rip+0x2000]` in an instruction of seven bytes.
const DATA: u64 = SITE + 0x2007;

fn displaced(bytes: &[u8]) -> Displaced {
    displace(bytes, SITE).expect("it can be displaced")
}

fn may_fault(bytes: &[u8]) -> bool {
    // The page of the data is readable; the one after it is also writable.
    let accessible = |range: RangeInclusive<u64>, write: bool| {
        let (start, end) = (range.start() & !0xfff, range.end() & !0xfff);
        start == end && (start == DATA & !0xfff && !write || start == (DATA & !0xfff) + 0x1000)
    };
    displaced(bytes).may_fault_in_trampoline(accessible)
}

#[test]
fn what_can_fault_after_a_handler() {
    for harmless in [
        &[0x55][..],                        // push rbp
        &[0x6a, 0x01],                      // push 1
        &[0x9c],                            // pushfq
        &[0x5d],                            // pop rbp
        &[0xc9],                            // leave
        &[0xc3],                            // ret
        &[0xe8, 0, 0, 0, 0],                // call
        &[0xff, 0xd0],                      // call rax
        &[0xff, 0xe0],                      // jmp rax
        &[0x48, 0x89, 0xe5],                // mov rbp, rsp
        &[0x48, 0x8b, 0x05, 0, 0x20, 0, 0], // mov rax, [rip+0x2000]
        &[0x48, 0x3b, 0x05, 0, 0x20, 0, 0], // cmp rax, [rip+0x2000]
        &[0x48, 0x89, 0x05, 0, 0x30, 0, 0], // mov [rip+0x3000], rax
        &[0xff, 0x15, 1, 0x20, 0, 0],       // call [rip+0x2001]
        &[0xff, 0x25, 1, 0x20, 0, 0],       // jmp [rip+0x2001]
        &[0xff, 0x35, 1, 0x20, 0, 0],       // push [rip+0x2001]
        &[0x0f, 0x28, 0x05, 9, 0x20, 0, 0], // movaps xmm0, [rip+0x2009], aligned
    ] {
        assert!(!may_fault(harmless), "{}", displaced(harmless).text());
    }
    for faulting in [
        &[0x48, 0x8b, 0x07][..],                  // mov rax, [rdi]
        &[0x48, 0x8b, 0x04, 0x24],                // mov rax, [rsp]
        &[0x8f, 0x07],                            // pop [rdi]
        &[0xff, 0x37],                            // push [rdi]
        &[0xff, 0x17],                            // call [rdi]
        &[0xff, 0x27],                            // jmp [rdi]
        &[0x0f, 0xa1],                            // pop fs
        &[0x48, 0xf7, 0xf9],                      // idiv rcx
        &[0x0f, 0x0b],                            // ud2
        &[0x48, 0x89, 0x05, 0, 0x20, 0, 0],       // mov [rip+0x2000], rax: not to be written
        &[0x48, 0x8b, 0x05, 0, 0x10, 0, 0],       // mov rax, [rip+0x1000]: not the module's
        &[0x48, 0x8b, 0x05, 0xf5, 0x2f, 0, 0],    // mov rax, [rip+0x2ff5]: over the edge
        &[0x0f, 0x28, 0x05, 8, 0x20, 0, 0],       // movaps xmm0, [rip+0x2008], not aligned
        &[0x64, 0x48, 0x8b, 0x05, 0, 0x20, 0, 0], // mov rax, fs:[rip+0x2000]
        &[0xc5, 0xf8, 0x28, 0x05, 0, 0x20, 0, 0], // vmovaps: the processor may not have it
    ] {
        assert!(may_fault(faulting), "{}", displaced(faulting).text());
    }
}

#[test]
fn where_control_goes_and_what_the_stack_does() {
    let cases: [(&[u8], bool, bool, Option<i64>); 20] = [
        (&[0x90], false, true, Some(0)),
        (&[0x55], false, true, Some(-8)),
        (&[0x66, 0x50], false, true, Some(-2)),
        (&[0x5c], false, true, None),                // pop rsp
        (&[0x54], false, true, Some(-8)),            // push rsp
        (&[0x8f, 0x04, 0x24], false, true, Some(8)), // pop [rsp]
        (&[0x48, 0x83, 0xec, 0x18], false, true, Some(-0x18)),
        (&[0x48, 0x81, 0xc4, 0, 1, 0, 0], false, true, Some(0x100)),
        (&[0x83, 0xec, 0x18], false, true, None), // sub esp, 0x18
        (&[0x48, 0x83, 0xe4, 0xf0], false, true, None), // and rsp, -16
        (&[0x48, 0x8d, 0x64, 0x24, 0x80], false, true, Some(-128)), // lea rsp, [rsp-128]
        (&[0x48, 0x8d, 0x64, 0x2c, 0x80], false, true, None), // lea rsp, [rsp+rbp-128]
        (&[0xc9], false, true, None),
        (&[0xc3], true, false, None),
        (&[0xe8, 0, 0, 0, 0], true, false, None),
        (&[0xeb, 0x10], true, false, None),
        (&[0x74, 0x10], true, true, Some(0)),
        (&[0xe2, 0x10], true, true, Some(0)),
        (&[0x0f, 0x0b], false, false, None),
        (&[0x0f, 0x05], false, true, Some(0)),
    ];
    for (bytes, transfers, falls, delta) in cases {
        let displaced = displaced(bytes);
        let said = (displaced.transfers_control(), displaced.falls_through(), displaced.stack_delta());
        assert_eq!(said, (transfers, falls, delta), "{}", displaced.text());
        assert_eq!(displaced.enters_kernel(), bytes == [0x0f, 0x05]);
    }
    assert!(displaced(&[0x9d]).can_set_trap_flag() && !displaced(&[0x9c]).can_set_trap_flag());
}

#[test]
fn flags() {
    let dead = |code: &[u8]| flags_are_dead(Mode::Bits64, code, SITE, false);
    for code in [
        &[0x48, 0x85, 0xc0][..],                                 // test rax, rax
        &[0x48, 0x83, 0xec, 0x18],                               // sub rsp, 0x18
        &[0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0],                   // push; mov; xor eax, eax
        &[0xff, 0xc0, 0xf8],                                     // inc eax; clc
        &[0xc1, 0xe0, 0x02, 0x48, 0x01, 0xd8],                   // shl eax, 2; add rax, rbx
        &[0x48, 0x8b, 0x44, 0x24, 0x08, 0x85, 0xc0],             // mov rax, [rsp+8]; test
        &[0x89, 0x7c, 0x24, 0xec, 0x85, 0xc0],                   // mov [rsp-20], edi; test
        &[0x55, 0x48, 0x89, 0xe5, 0x89, 0x7d, 0xec, 0x85, 0xc0], // push rbp; mov rbp, rsp; mov [rbp-20], edi; test
        &[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x85, 0xc0],             // mov rax, [rip+256]; test
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0x85, 0xc0],             // endbr64; nop; test
    ] {
        assert!(dead(code), "{code:02x?}");
    }
    // An instruction that can fault exposes the flags, even if it changes them.
    for code in [
        &[0x48, 0x8b, 0x07, 0x85, 0xc0][..],               // mov rax, [rdi]; test
        &[0x48, 0x03, 0x07],                               // add rax, [rdi]
        &[0x89, 0x7d, 0xec, 0x85, 0xc0],                   // mov [rbp-20], edi, whatever rbp is
        &[0x48, 0x8b, 0x84, 0x24, 0, 0, 1, 0, 0x85, 0xc0], // mov rax, [rsp+65536]
        &[0x48, 0x8b, 0x04, 0xfc, 0x85, 0xc0],             // mov rax, [rsp+rdi*8]
        &[0x64, 0x48, 0x8b, 0x04, 0x24, 0x85, 0xc0],       // mov rax, fs:[rsp]
        &[0x0f, 0x28, 0x04, 0x24, 0x85, 0xc0],             // movaps xmm0, [rsp]
        &[0xf7, 0xf1, 0x85, 0xc0],                         // div ecx
        &[0x66, 0x0f, 0x2e, 0xc1],                         // ucomisd, which may be set to raise exceptions
        &[0xff, 0x37, 0x85, 0xc0],                         // push [rdi]
        &[0xcc, 0x85, 0xc0],                               // int3
    ] {
        assert!(!dead(code), "{code:02x?}");
    }
    for code in [
        &[0x74, 0x10][..],                     // je
        &[0x0f, 0x94, 0xc0, 0x85, 0xc0],       // sete al; test
        &[0x48, 0x0f, 0x44, 0xc3, 0x85, 0xc0], // cmove; test
        &[0x48, 0x11, 0xd8],                   // adc
        &[0xff, 0xc0, 0x72, 0x10],             // inc eax; jb
        &[0xff, 0xc0],                         // inc eax, and then the code ends
        &[0xd3, 0xe0, 0x90],                   // shl eax, cl: by zero it changes nothing
        &[0xc1, 0xe0, 0x00, 0x90],             // shl eax, 0
        &[0x9c],                               // pushfq
        &[0xc3],                               // ret
        &[0xe8, 0, 0, 0, 0, 0x85, 0xc0],       // call
        &[0x90, 0x90, 0x90],
        &[],
    ] {
        assert!(!dead(code), "{code:02x?}");
    }
    let dead = |code: &[u8]| flags_are_dead(Mode::Bits64, code, SITE, true);
    assert!(dead(&[0xc3]) && dead(&[0xe8, 0, 0, 0, 0]) && dead(&[0x48, 0x89, 0xe5, 0xff, 0xe0]));
    assert!(!dead(&[0x74, 0x10]) && !dead(&[0x48, 0x11, 0xd8]) && !dead(&[0x0f, 0x05]) && !dead(&[0x90]));
}

#[test]
fn registers() {
    let dead = |code: &[u8]| dead_registers(Mode::Bits64, code, SITE);
    assert_eq!(dead(&[0x31, 0xc0]), 1, "xor eax, eax reads nothing");
    assert_eq!(dead(&[0x48, 0x89, 0xc8]), 1, "mov rax, rcx");
    assert_eq!(dead(&[0x48, 0x8b, 0x00]), 0, "mov rax, [rax]");
    assert_eq!(dead(&[0xb0, 0x01]), 0, "mov al, 1 leaves the rest");
    assert_eq!(dead(&[0x66, 0xb8, 1, 0]), 0, "mov ax, 1");
    assert_eq!(dead(&[0x0f, 0x44, 0xc1]), 0, "cmove eax, ecx");
    assert_eq!(dead(&[0x5f, 0x5e, 0xc3, 0xb8, 0, 0, 0, 0]), 1 << 7 | 1 << 6, "pop rdi; pop rsi; ret");
    assert_eq!(dead(&[0x89, 0xc8, 0x89, 0xd1]), 1, "mov eax, ecx; mov ecx, edx: ecx is read before");
    assert_eq!(dead(&[0x74, 0x00, 0x31, 0xc0]), 0, "behind a branch nothing is known");
    assert_eq!(dead(&[0x48, 0x89, 0xec]), 0, "the stack pointer never is");
}
