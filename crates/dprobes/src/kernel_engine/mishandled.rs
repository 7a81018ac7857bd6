//! Instructions that the kernel's uprobes take, and do not execute as the processor would. They are
//! not probed: the program would be killed, or compute something else.
//!
//! The kernel executes a copy of the probed instruction as a single step, or emulates it
//! (arch/x86/kernel/uprobes.c). Seen with Linux 6.18:
//!
//! | instruction | what becomes of it |
//! |---|---|
//! | `syscall`, `sysenter` | the step ends one instruction too late: the thread executes what lies behind the copy |
//! | `pushf` | the program finds the trap flag of the step in the flags; `popf` brings it back, and SIGTRAP |
//! | VEX, EVEX and XOP instructions whose opcode is that of a jump, call or `nop` | they are emulated as these: `vmovdqu %ymm0, (%rdi)` (opcode 0x7f, as `jg`) stores nothing |
//! | those whose opcode is that of a return, far jump, indirect jump or `popf` | what is mended after the step is that of these: behind `vcmpps` (0xc2, as `ret`) the thread executes what lies behind the copy |

/// Why an instruction must not be probed by the kernel, if it must not.
pub(super) fn mishandled(instruction: &[u8], is_64_bit: bool) -> Option<&'static str> {
    let is_rex = |byte: u8| is_64_bit && matches!(byte, 0x40..=0x4f);
    let is_prefix = |byte: u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let start = instruction.iter().position(|&byte| !is_prefix(byte) && !is_rex(byte))?;
    let code = &instruction[start..];
    match code {
        [0x0f, 0x05 | 0x34, ..] => return Some(CALLS_KERNEL),
        [0x9c, ..] => return Some(STORES_FLAGS),
        _ => {}
    }
    let opcode = match *code {
        // In 32-bit code these are others if the next byte does not begin with two ones.
        [0xc4 | 0xc5 | 0x62, next, ..] if !is_64_bit && next & 0xc0 != 0xc0 => None,
        [0xc5, _, opcode, ..] | [0xc4, _, _, opcode, ..] | [0x62, _, _, _, opcode, ..] => Some(opcode),
        [0x8f, next, _, opcode, ..] if next & 0x1f >= 8 => Some(opcode),
        _ => None,
    };
    opcode.filter(|opcode| is_of_a_jump(*opcode)).map(|_| TAKEN_FOR_A_JUMP)
}

/// Whether the kernel does something of its own for instructions with this opcode, as if it were
/// that of one without VEX: jumps on conditions, `nop`, far calls, `popf`, returns, calls and
/// jumps, far ones and indirect ones.
fn is_of_a_jump(opcode: u8) -> bool {
    matches!(
        opcode,
        0x70..=0x7f | 0x90 | 0x9a | 0x9d | 0xc2 | 0xc3 | 0xca | 0xcb | 0xe8 | 0xe9 | 0xea | 0xeb | 0xff
    )
}

const CALLS_KERNEL: &str = "it calls the kernel, and the kernel's uprobes would lose its thread there; with -p PID, the other engines probe it";
const STORES_FLAGS: &str = "it stores the flags, and the kernel's uprobes would add the trap flag to them, which kills the program; with -p \
     PID, the other engines probe it";
const TAKEN_FOR_A_JUMP: &str = "the kernel's uprobes take this vector instruction for a jump, and would execute it wrongly or not at all; with \
     -p PID, the other engines probe it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_mishandles_is_known_by_its_bytes() {
        let cases: [(&[u8], Option<&str>); 27] = [
            (&[0x0f, 0x05], Some(CALLS_KERNEL)),
            (&[0x48, 0x0f, 0x05], Some(CALLS_KERNEL)),
            (&[0x66, 0x0f, 0x34, 0x90], Some(CALLS_KERNEL)),
            (&[0x9c], Some(STORES_FLAGS)),
            (&[0x66, 0x9c], Some(STORES_FLAGS)),
            (&[0x9d], None),
            (&[0xc5, 0xfe, 0x7f, 0x07], Some(TAKEN_FOR_A_JUMP)), // vmovdqu %ymm0, (%rdi)
            (&[0xc5, 0xf9, 0x70, 0xc0, 0x1b], Some(TAKEN_FOR_A_JUMP)), // vpshufd
            (&[0xc5, 0xf8, 0x77], Some(TAKEN_FOR_A_JUMP)),       // vzeroupper
            (&[0xc5, 0xf1, 0xeb, 0xc2], Some(TAKEN_FOR_A_JUMP)), // vpor
            (&[0xc5, 0xf8, 0x90, 0x15, 0, 0, 0, 0], Some(TAKEN_FOR_A_JUMP)), // kmovw 0(%rip), %k2
            (&[0xc4, 0xe2, 0x7d, 0x78, 0xc0], Some(TAKEN_FOR_A_JUMP)), // vpbroadcastb
            (&[0x62, 0x61, 0xfe, 0x48, 0x7f, 0x07], Some(TAKEN_FOR_A_JUMP)), // vmovdqu64 %zmm24, (%rdi)
            (&[0x8f, 0xe9, 0x78, 0x90, 0xc0], Some(TAKEN_FOR_A_JUMP)), // vprotb, XOP
            (&[0xc5, 0xfc, 0xc2, 0xc1, 0x0e], Some(TAKEN_FOR_A_JUMP)), // vcmpgtps
            (&[0xc4, 0xe2, 0x75, 0x9d, 0xc2], Some(TAKEN_FOR_A_JUMP)), // vfnmadd132ss
            (&[0x0f, 0xc2, 0xc1, 0x0e], None),                   // cmpnleps
            (&[0xc5, 0xfe, 0x6f, 0x07], None),                   // vmovdqu (%rdi), %ymm0
            (&[0xc5, 0xf8, 0x57, 0xc0], None),                   // vxorps
            (&[0x62, 0xe1, 0xfe, 0x48, 0x6f, 0x07], None),
            (&[0x8f, 0x00], None),             // pop (%rax)
            (&[0x66, 0x0f, 0x7f, 0x07], None), // movdqa %xmm0, (%rdi)
            (&[0x7f, 0x10], None),             // jg
            (&[0xe8, 0, 0, 0, 0], None),
            (&[0x0f, 0x1f, 0x05], None),
            (&[0x48], None),
            (&[], None),
        ];
        for (code, expected) in cases {
            assert_eq!(mishandled(code, true), expected, "{code:02x?}");
        }
        // lds, and a VEX instruction, in 32-bit code; `inc` is no prefix there.
        assert_eq!(mishandled(&[0xc5, 0x7f, 0x7f], false), None);
        assert_eq!(mishandled(&[0xc5, 0xfe, 0x7f, 0x07], false), Some(TAKEN_FOR_A_JUMP));
        assert_eq!(mishandled(&[0x40, 0x9c], false), None);
    }
}
