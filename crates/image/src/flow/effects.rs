//! Which registers an instruction changes, and whether it stores to memory.
//!
//! A fact about a register holds between two instructions only if no instruction between them
//! changes it in any way: by an implicit operand, conditionally, or in part. A missing opcode in a
//! list of our own would make false proofs, so this uses the disassembler's tables.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

/// What one instruction may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effects {
    /// One bit for each general register, by its number.
    registers: u16,
    /// Whether it may store to memory.
    pub(super) stores: bool,
}

impl Effects {
    /// A function, the kernel or an aborted transaction may have changed anything.
    const ANY: Effects = Effects { registers: u16::MAX, stores: true };

    pub(super) fn of(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Effects {
        match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return => {}
            FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
            | FlowControl::Exception => return Effects::ANY,
        }
        let info = factory.info(instruction);
        let written = info.used_registers().iter().filter(|used| changes(used.access()));
        let written = written.map(|used| used.register().full_register()).filter(|it| it.is_gpr64());
        Effects {
            registers: written.fold(0, |all, register| all | bit(register)),
            stores: info.used_memory().iter().any(|used| changes(used.access())),
        }
    }

    /// Whether it may write a general register or a part of it. Any other register counts as
    /// written.
    pub(super) fn writes(self, register: Register) -> bool {
        let register = register.full_register();
        !register.is_gpr64() || self.registers & bit(register) != 0
    }
}

fn bit(register: Register) -> u16 {
    1 << (register.number() & 15)
}

fn changes(access: OpAccess) -> bool {
    match access {
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => false,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => true,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Register};

    use super::Effects;

    fn effects(bytes: &[u8]) -> Effects {
        let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid() && instruction.len() == bytes.len(), "{bytes:x?}");
        Effects::of(&mut InstructionInfoFactory::new(), &instruction)
    }

    #[test]
    fn registers_that_are_written() {
        use Register::*;
        let cases: &[(&[u8], &[Register])] = &[
            (&[0x83, 0xff, 0x05], &[]),                      // cmp $5,%edi
            (&[0x66, 0x90], &[]),                            // xchg %ax,%ax: nothing
            (&[0x89, 0xf8], &[RAX]),                         // mov %edi,%eax
            (&[0xb0, 0x01], &[RAX]),                         // mov $1,%al: a part
            (&[0xb4, 0x01], &[RAX]),                         // mov $1,%ah: a part
            (&[0x0f, 0x44, 0xc7], &[RAX]),                   // cmove %edi,%eax: on a condition
            (&[0x48, 0x91], &[RAX, RCX]),                    // xchg %rax,%rcx
            (&[0xc4, 0xe2, 0xf3, 0xf6, 0xc2], &[RAX, RCX]),  // mulx %rdx,%rcx,%rax: two that are named
            (&[0xf7, 0xe7], &[RAX, RDX]),                    // mul %edi
            (&[0x99], &[RDX]),                               // cltd
            (&[0xac], &[RAX, RSI]),                          // lodsb
            (&[0xf3, 0xa4], &[RCX, RSI, RDI]),               // rep movsb
            (&[0x0f, 0xa2], &[RAX, RBX, RCX, RDX]),          // cpuid
            (&[0x0f, 0x01, 0xf9], &[RAX, RCX, RDX]),         // rdtscp
            (&[0x0f, 0xc7, 0x0f], &[RAX, RDX]),              // cmpxchg8b (%rdi)
            (&[0xe2, 0xfe], &[RCX]),                         // loop
            (&[0x50], &[RSP]),                               // push %rax
            (&[0xc9], &[RSP, RBP]),                          // leave
            (&[0x66, 0x0f, 0x3a, 0x61, 0xc1, 0x00], &[RCX]), // pcmpestri $0,%xmm1,%xmm0
            (&[0xff, 0xd0], &[RAX, RBX, R12]),               // call *%rax
            (&[0x0f, 0x05], &[RAX, RCX, R11]),               // syscall
        ];
        for (bytes, written) in cases {
            let effects = effects(bytes);
            let missing: Vec<_> = written.iter().filter(|register| !effects.writes(**register)).collect();
            assert!(missing.is_empty(), "{bytes:x?}: {missing:?}");
            if written.is_empty() {
                assert!(
                    ![RAX, RCX, RDX, RSP, RSI, RDI].into_iter().any(|it| effects.writes(it)),
                    "{bytes:x?}"
                );
            }
        }
        assert!(!effects(&[0x89, 0xf8]).writes(RDI));
        assert!(effects(&[0x89, 0xf8]).writes(AX), "a part of what is written");
    }

    #[test]
    fn stores() {
        let cases: &[(&[u8], bool)] = &[
            (&[0x83, 0x3f, 0x05], false),            // cmpl $5,(%rdi)
            (&[0x8b, 0x07], false),                  // mov (%rdi),%eax
            (&[0x48, 0x8d, 0x07], false),            // lea (%rdi),%rax
            (&[0x0f, 0x1f, 0x00], false),            // nopl (%rax)
            (&[0x0f, 0x18, 0x0f], false),            // prefetcht0 (%rdi)
            (&[0x89, 0x07], true),                   // mov %eax,(%rdi)
            (&[0x50], true),                         // push %rax
            (&[0x87, 0x07], true),                   // xchg %eax,(%rdi)
            (&[0x0f, 0xb1, 0x0f], true),             // cmpxchg %ecx,(%rdi)
            (&[0xaa], true),                         // stosb
            (&[0x66, 0x0f, 0xf7, 0xc1], true),       // maskmovdqu %xmm1,%xmm0: an operand that is not named
            (&[0x0f, 0xae, 0x07], true),             // fxsave (%rdi)
            (&[0x66, 0x0f, 0x38, 0xf8, 0x07], true), // movdir64b (%rdi),%rax: not the operand that is memory
            (&[0xe8, 0, 0, 0, 0], true),             // call
        ];
        for (bytes, stores) in cases {
            assert_eq!(effects(bytes).stores, *stores, "{bytes:x?}");
        }
    }
}
