//! Finds code in which rsp does not point to the stack, as far as the code shows.
//!
//! A handler writes below the stack pointer. Code that reads an array by `pop`, or fills one by
//! `push`, loads the array's address into rsp, and the program's data is below it. Code that
//! switches stacks looks the same and is treated the same; such sites only lose the jump and are
//! trapped.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// The most instructions before a Go function compares the stack pointer with its stack's limit.
const GO_PROLOGUE: usize = 6;

/// The ranges of a 64-bit function in which rsp has a foreign value: from behind the instruction
/// that loads it to the end of the one that loads a stack address again. Instructions are taken in
/// address order.
///
/// A stack address is one copied or computed from rsp or rbp, or loaded from memory that they point
/// to.
pub fn foreign_stack(code: &[u8], address: u64) -> Vec<Range<u64>> {
    if !may_load_pointer(code) {
        return Vec::new();
    }
    let decode = || {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
            .take_while(|instruction| instruction.code() != Code::INVALID)
    };
    let mut of_stack = 1_u16 << 4 | 1 << 5;
    for instruction in decode() {
        let to = instruction.op0_register().full_register();
        if instruction.op0_kind() == OpKind::Register
            && to.is_gpr64()
            && comes_from_stack(&instruction, of_stack)
        {
            of_stack |= 1 << to.number();
        }
    }
    let (mut ranges, mut since) = (Vec::new(), None);
    for instruction in decode() {
        let loads =
            match instruction.mnemonic() {
                Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Xchg | Mnemonic::Pop => {
                    let operands = 0..instruction
                        .op_count()
                        .min(if instruction.mnemonic() == Mnemonic::Xchg { 2 } else { 1 });
                    operands.into_iter().any(|operand| {
                        instruction.op_kind(operand) == OpKind::Register
                            && instruction.op_register(operand).full_register() == Register::RSP
                    })
                }
                Mnemonic::Leave => true,
                _ => false,
            };
        // A value computed from rsp is still a stack address.
        let keeps = instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::RSP;
        if !loads || keeps {
            continue;
        }
        if comes_from_stack(&instruction, of_stack) {
            if let Some(since) = since.take() {
                ranges.push(since..instruction.next_ip());
            }
        } else {
            since.get_or_insert(instruction.next_ip());
        }
    }
    ranges.extend(since.map(|since| since..address + code.len() as u64));
    ranges
}

/// Whether a 64-bit Go function compares rsp with its stack limit before it uses any stack.
/// Functions that do not (`//go:nosplit`, small leaf functions, assembly) may have no more stack
/// left than they use.
pub fn checks_go_stack(code: &[u8], address: u64) -> bool {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    decoder.into_iter().take(GO_PROLOGUE).any(|instruction| {
        // The limit is a field of the goroutine's descriptor, which is in r14, or before Go 1.17 in
        // rcx.
        instruction.mnemonic() == Mnemonic::Cmp
            && matches!(instruction.memory_base(), Register::R14 | Register::RCX)
            && matches!(instruction.memory_displacement64(), 0x10 | 0x18)
    })
}

/// Whether an instruction puts a stack address into its first operand. `of_stack`: registers that
/// ever hold one.
fn comes_from_stack(instruction: &Instruction, of_stack: u16) -> bool {
    let is_of_stack = |register: Register| register.is_gpr64() && of_stack >> register.number() & 1 != 0;
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Leave, _) => true,
        // A popped value may be anything, but code pops rsp itself only to switch stacks.
        (Mnemonic::Pop, _) => instruction.op0_register() != Register::RSP,
        (Mnemonic::Mov, OpKind::Register) => is_of_stack(instruction.op1_register()),
        (Mnemonic::Xchg, OpKind::Register) => {
            is_of_stack(instruction.op0_register()) && is_of_stack(instruction.op1_register())
        }
        (Mnemonic::Mov | Mnemonic::Lea, OpKind::Memory) => is_of_stack(instruction.memory_base()),
        _ => false,
    }
}

/// Whether the code has bytes that may be an instruction loading rsp: most code has none and need
/// not be decoded.
fn may_load_pointer(code: &[u8]) -> bool {
    code.windows(2).any(|pair| match pair[0] {
        // mov r/m, r
        0x89 => pair[1] & 0xc7 == 0xc4,
        // mov r, r/m; lea r, m
        0x8b | 0x8d => pair[1] & 0x38 == 0x20,
        // xchg
        0x87 => pair[1] & 0x38 == 0x20 || pair[1] & 0xc7 == 0xc4,
        // xchg rax, r; pop r, behind a prefix
        0x40..=0x4f => matches!(pair[1], 0x94 | 0x5c),
        _ => pair[1] == 0x5c,
    }) || code.first() == Some(&0x5c)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "stretches of code are compared, and often there is one")]
mod tests {
    use super::*;

    fn foreign(code: &[u8]) -> Vec<Range<u64>> {
        foreign_stack(code, 0x1000)
    }

    #[test]
    fn an_array_that_is_popped() {
        let code = [
            0x49, 0x89, 0xe3, // mov r11, rsp
            0x48, 0x89, 0xfc, // mov rsp, rdi
            0x31, 0xc0, // xor eax, eax
            0x5a, // pop rdx
            0x4c, 0x89, 0xdc, // mov rsp, r11
            0xc3,
        ];
        assert_eq!(foreign(&code), [0x1006..0x100c]);
        // Or the address comes from memory, an exchange or another stack; and is never replaced.
        assert_eq!(foreign(&[0x48, 0x8b, 0x27, 0x58, 0xc3]), [0x1003..0x1005]);
        assert_eq!(foreign(&[0x48, 0x87, 0xe7, 0x58, 0x48, 0x87, 0xe7]), [0x1003..0x1007]);
        assert_eq!(foreign(&[0x48, 0x94, 0xc3]), [0x1002..0x1003]);
        assert_eq!(foreign(&[0x5c, 0xc3]), [0x1001..0x1002]);
        assert_eq!(foreign(&[0x48, 0x8d, 0x67, 0x08, 0xc3]), [0x1004..0x1005]);
    }

    #[test]
    fn what_compilers_do_with_the_stack_pointer() {
        for code in [
            &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xc9, 0xc3][..], // push rbp; mov rbp, rsp; sub; leave
            &[0x48, 0x89, 0xe3, 0x48, 0x29, 0xc4, 0x48, 0x89, 0xdc], // mov rbx, rsp; sub rsp, rax; mov rsp, rbx
            &[0x4c, 0x8d, 0x54, 0x24, 0x08, 0x49, 0x8d, 0x62, 0xf8], // lea r10, [rsp+8]; lea rsp, [r10-8]
            &[0x48, 0x8d, 0x65, 0xd8],                               // lea rsp, [rbp-40]
            &[0x48, 0x8d, 0x64, 0x24, 0x80],                         // lea rsp, [rsp-128]
            &[0x48, 0x8b, 0x74, 0x24, 0x38, 0x48, 0x89, 0xf4],       // mov rsi, [rsp+56]; mov rsp, rsi
            &[0x41, 0x5c, 0xc3],                                     // pop r12
            &[],
        ] {
            assert!(foreign(code).is_empty(), "{code:02x?}");
        }
    }

    #[test]
    fn go_functions() {
        assert!(checks_go_stack(&[0x49, 0x3b, 0x66, 0x10, 0x76, 0x20], 0x1000), "cmp rsp, [r14+16]");
        let large = [0x4c, 0x8d, 0xa4, 0x24, 0, 0xff, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10];
        assert!(checks_go_stack(&large, 0x1000), "lea r12, [rsp-256]; cmp r12, [r14+16]");
        assert!(!checks_go_stack(&[0x48, 0x8d, 0x04, 0x40, 0xc3], 0x1000), "lea rax, [rax+rax*2]; ret");
    }
}
