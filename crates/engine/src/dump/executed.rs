//! What the probed instruction has changed, when a thread stops behind it.
//!
//! In: the instruction, and the thread's registers before it. Out: the memory that it writes, so
//! that it can be read before and shown; or that more changes than is known.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};
use iced_x86::{CpuidFeature, Mnemonic, OpAccess, Register, UsedMemory};
use process::Memory;

use crate::change::{Change, LONGEST};
use crate::reason::NotKept;

/// What of a thread's registers the memory operands of an instruction depend on. The bases of fs
/// and gs are not known while a thread is in the kernel.
#[derive(Debug)]
pub(super) struct Operands {
    /// In the processor's encoding order.
    general: [u64; 16],
    rip: u64,
    is_32_bit: bool,
}

/// The code segment in which Linux runs 32-bit code.
const CODE_32: u64 = 0x23;

impl Operands {
    /// From the words of the kernel's `struct pt_regs`.
    pub(super) fn of(words: &[u64; 21]) -> Operands {
        let [r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, ..] = *words;
        let [.., rip, cs, _, rsp, _] = *words;
        let general = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
        Operands { general, rip, is_32_bit: cs == CODE_32 }
    }

    /// The instruction pointer.
    pub(super) fn rip(&self) -> u64 {
        self.rip
    }
}

/// Memory that an instruction is about to write, and what it has now.
#[derive(Debug)]
pub(super) struct Before(Vec<(u64, Vec<u8>)>);

impl Before {
    /// Reads what the instruction at the instruction pointer will overwrite. `code` are its bytes,
    /// without a breakpoint.
    ///
    /// # Errors
    /// More changes than general registers, flags and memory of a known length.
    pub(super) fn read(memory: &Memory, code: &[u8], registers: &Operands) -> Result<Before, NotKept> {
        let read = |range: Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            // What cannot be read cannot be written either: the instruction will fault.
            memory.peek(range.start, &mut bytes).ok().map(|()| (range.start, bytes))
        };
        Ok(Before(writes(code, registers)?.into_iter().filter_map(read).collect()))
    }

    /// The differences between then and now.
    pub(super) fn changes(self, memory: &Memory) -> Vec<Change> {
        let mut changes = Vec::new();
        for (start, before) in self.0 {
            let mut now = vec![0; before.len()];
            if memory.peek(start, &mut now).is_err() {
                continue;
            }
            let pieces = before.chunks(LONGEST).zip(now.chunks(LONGEST)).enumerate();
            changes.extend(
                pieces.map(|(number, (before, now))| {
                    Change::new(start + (number * LONGEST) as u64, before, now)
                }),
            );
        }
        changes
    }
}

/// The memory that an instruction writes, given the registers before it.
fn writes(code: &[u8], registers: &Operands) -> Result<Vec<Range<u64>>, NotKept> {
    let bits = if registers.is_32_bit { 32 } else { 64 };
    let mut decoder = Decoder::with_ip(bits, code, registers.rip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return Err(NotKept::Unknown);
    }
    if is_call_of_kernel(&instruction) {
        return Err(NotKept::Call);
    }
    if instruction.is_string_instruction() && has_repeat(&instruction) {
        return Err(NotKept::Memory);
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let changes_others = info.used_registers().iter().any(|used| {
        let register = used.register();
        changes(used.access()) && !(register.is_gpr() || register.is_ip())
    });
    if changes_others || changes_state(&instruction) {
        return Err(NotKept::Registers);
    }
    let written = info.used_memory().iter().filter(|used| changes(used.access()));
    written.map(|used| range(used, registers)).collect()
}

/// Whether an access changes what is accessed.
fn changes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead)
}

fn has_repeat(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repne_prefix()
}

/// Whether it enters the kernel.
fn is_call_of_kernel(instruction: &Instruction) -> bool {
    let enters = matches!(instruction.code(), Code::Syscall | Code::Sysenter);
    enters || instruction.flow_control() == FlowControl::Interrupt
}

/// Whether it changes registers that are not named: those of the x87 unit, of MMX, control words,
/// the bases of segments, keys of memory.
fn changes_state(instruction: &Instruction) -> bool {
    let old = [
        CpuidFeature::FPU,
        CpuidFeature::FPU287,
        CpuidFeature::FPU287XL_ONLY,
        CpuidFeature::FPU387,
        CpuidFeature::FPU387SL_ONLY,
        CpuidFeature::MMX,
        CpuidFeature::D3NOW,
        CpuidFeature::D3NOWEXT,
    ];
    instruction.cpuid_features().iter().any(|feature| old.contains(feature))
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Ldmxcsr
                | Mnemonic::Vldmxcsr
                | Mnemonic::Fxrstor
                | Mnemonic::Fxrstor64
                | Mnemonic::Xrstor
                | Mnemonic::Xrstor64
                | Mnemonic::Wrfsbase
                | Mnemonic::Wrgsbase
                | Mnemonic::Wrpkru
        )
}

/// The addresses of an access to memory.
fn range(used: &UsedMemory, registers: &Operands) -> Result<Range<u64>, NotKept> {
    let size = used.memory_size().size() as u64;
    let start = used.virtual_address(0, |register, _, _| value(register, registers));
    match start {
        Some(start) if size > 0 => {
            let start = if registers.is_32_bit { start & 0xffff_ffff } else { start };
            Ok(start..start.checked_add(size).ok_or(NotKept::Memory)?)
        }
        _ => Err(NotKept::Memory),
    }
}

/// The value of a register that an address is computed from.
fn value(register: Register, registers: &Operands) -> Option<u64> {
    let general = &registers.general;
    match register {
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        _ if register.is_gpr64() => Some(general[register.number()]),
        _ if register.is_gpr32() => Some(general[register.number()] & 0xffff_ffff),
        _ if register.is_gpr16() => Some(general[register.number()] & 0xffff),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit thread at 0x1000, with rcx 2, rsp 0x8000, rdi 0x5000.
    fn operands() -> Operands {
        let mut general = [0; 16];
        (general[1], general[4], general[7]) = (2, 0x8000, 0x5000);
        Operands { general, rip: 0x1000, is_32_bit: false }
    }

    /// The ranges that are written, or why they are not known.
    type Known = Result<&'static [(u64, u64)], NotKept>;

    #[test]
    fn what_is_written_is_known_or_refused() {
        let cases: [(&[u8], Known); 21] = [
            (&[0x55], Ok(&[(0x7ff8, 0x8000)])),                   // push rbp
            (&[0xe8, 0, 0, 0, 0], Ok(&[(0x7ff8, 0x8000)])),       // call
            (&[0x48, 0x83, 0xec, 0x18], Ok(&[])),                 // sub rsp, 24
            (&[0x5b], Ok(&[])),                                   // pop rbx
            (&[0xc3], Ok(&[])),                                   // ret
            (&[0xf3, 0x0f, 0x1e, 0xfa], Ok(&[])),                 // endbr64
            (&[0x89, 0x44, 0x8f, 0x04], Ok(&[(0x500c, 0x5010)])), // mov [rdi+rcx*4+4], eax
            (&[0x88, 0x05, 4, 0, 0, 0], Ok(&[(0x100a, 0x100b)])), // mov [rip+4], al
            (&[0xf0, 0xff, 0x07], Ok(&[(0x5000, 0x5004)])),       // lock inc [rdi]
            (&[0xaa], Ok(&[(0x5000, 0x5001)])),                   // stosb
            (&[0x0f, 0x11, 0x07], Ok(&[(0x5000, 0x5010)])),       // movups [rdi], xmm0
            (&[0x0f, 0x28, 0x07], Err(NotKept::Registers)),       // movaps xmm0, [rdi]
            (&[0x64, 0x89, 0x07], Err(NotKept::Memory)),          // mov fs:[rdi], eax
            (&[0xf3, 0xaa], Err(NotKept::Memory)),                // rep stosb
            (&[0xd9, 0x07], Err(NotKept::Registers)),             // fld [rdi]
            (&[0xc5, 0xf8, 0x77], Err(NotKept::Registers)),       // vzeroupper
            (&[0x0f, 0xae, 0x17], Err(NotKept::Registers)),       // ldmxcsr [rdi]
            (&[0x8e, 0xe0], Err(NotKept::Registers)),             // mov fs, eax
            (&[0x0f, 0x05], Err(NotKept::Call)),                  // syscall
            (&[0xcd, 0x80], Err(NotKept::Call)),                  // int 0x80
            (&[0x06], Err(NotKept::Unknown)),                     // none in 64-bit code
        ];
        for (code, expected) in cases {
            let found = writes(code, &operands());
            let found = found.map(|all| all.into_iter().map(|it| (it.start, it.end)).collect::<Vec<_>>());
            assert_eq!(found, expected.map(<[_]>::to_vec), "{code:02x?}");
        }
        // Memory of an unknown length: fxsave is known, xsave is not.
        assert_eq!(writes(&[0x0f, 0xae, 0x27], &operands()), Err(NotKept::Memory));
    }
}
