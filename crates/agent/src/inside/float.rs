//! The program's floating-point registers, as `fxsave64` stores them.
//!
//! The agent does not use x87 registers, so they still hold the program's values. It does use SSE
//! registers; the program's are saved by the entry code.

use core::arch::asm;

/// The 512 bytes that `fxsave64` writes.
#[repr(C, align(16))]
pub(super) struct FloatRegisters {
    control: u16,
    status: u16,
    /// One bit for each physical register: set if it is not empty.
    used: u8,
    reserved: u8,
    opcode: u16,
    instruction: u64,
    operand: u64,
    mxcsr: u32,
    mxcsr_mask: u32,
    /// From the top of the FPU's stack.
    stack: [u128; 8],
    rest: [u8; 352],
}

const _: () = assert!(size_of::<FloatRegisters>() == 512);

impl FloatRegisters {
    /// The current registers.
    pub(super) fn now() -> FloatRegisters {
        let mut image = core::mem::MaybeUninit::<FloatRegisters>::zeroed();
        // SAFETY: the instruction writes the 512 bytes of `image`, which are aligned to 16, and
        // changes no register; any bytes are a value of the type.
        unsafe {
            asm!("fxsave64 [{image}]", image = in(reg) image.as_mut_ptr(), options(nostack, preserves_flags));
            image.assume_init()
        }
    }

    /// The FPU's control word.
    pub(super) fn control(&self) -> u16 {
        self.control
    }

    /// The FPU's status word.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// The FPU's tag word: two bits for each physical register: 0 valid, 1 zero, 2 special, 3
    /// empty. fxsave keeps only whether a register is empty; the rest follows from its value, as in
    /// the processor.
    pub(super) fn tags(&self) -> u16 {
        let top = usize::from(self.status >> 11) & 7;
        (0..8).fold(0, |tags, physical: usize| {
            let empty = self.used & 1 << physical == 0;
            let tag = if empty { 3 } else { tag(self.stack(physical.wrapping_sub(top))) };
            tags | tag << (2 * physical)
        })
    }

    /// The address of the last FPU instruction.
    pub(super) fn instruction(&self) -> u64 {
        self.instruction
    }

    /// The address of the last FPU instruction's operand.
    pub(super) fn operand(&self) -> u64 {
        self.operand
    }

    /// The control and status register of SSE.
    pub(super) fn mxcsr(&self) -> u32 {
        self.mxcsr
    }

    /// The FPU's register `number` (modulo 8), counted from the top of its stack: 80 bits.
    pub(super) fn stack(&self, number: usize) -> u128 {
        self.stack[number % 8] & ((1 << 80) - 1)
    }
}

/// The tag of a register that is not empty and holds this 80-bit value.
fn tag(value: u128) -> u16 {
    let exponent = (value >> 64) as u16 & 0x7fff;
    let significand = value as u64;
    match (exponent, significand) {
        (0, 0) => 1,
        (0 | 0x7fff, _) => 2,
        // Without its integer bit it is not a valid number.
        _ if significand >> 63 == 0 => 2,
        _ => 0,
    }
}
