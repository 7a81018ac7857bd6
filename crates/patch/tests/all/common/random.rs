//! Random states from a seed, so that failures can be reproduced.

use dprobes_patch::{Mode, Registers};

use super::native::{Arena, DATA, DATA_LENGTH, OPERAND, STACK, Start, extended_image};

/// A number generator (xorshift64*, Vigna 2016); it only has to be reproducible.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A typical number: small, negative, at a limit, or anything.
    pub fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => self.below(16),
            1 => self.below(16).wrapping_neg(),
            2 => 1_u64.rotate_left(self.below(64) as u32).wrapping_sub(self.below(2)),
            _ => self.next(),
        }
    }
}

/// The arithmetic flags and the direction flag.
pub const FLAGS: u64 = 0x8d5 | 0x400;

/// A random state in which pointers used by encodings point into the data.
pub fn start(arena: &Arena, random: &mut Random) -> Start {
    let mut gpr = [0; 16];
    for register in &mut gpr {
        *register = random.number();
    }
    gpr[1] = random.below(9);
    gpr[3] = OPERAND;
    gpr[4] = STACK;
    gpr[5] = STACK + 0x100;
    gpr[6] = DATA + 0x800 + 8 * random.below(16);
    gpr[7] = DATA + 0x1c00 + 8 * random.below(16);
    gpr[13] = OPERAND.wrapping_sub(0x1000).wrapping_sub(gpr[6].wrapping_mul(2));
    if arena.mode == Mode::Bits32 {
        gpr.iter_mut().for_each(|value| *value &= 0xffff_ffff);
    }
    let mut data = vec![0; DATA_LENGTH];
    for chunk in data.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.number().to_le_bytes());
    }
    let mut extended = extended_image();
    // Registers only: the x87 stack, xmm, the upper halves of ymm, the masks, and the rest of zmm.
    for range in [160..416, 576..832, 1088..1152, 1152..2688] {
        for chunk in extended[range].chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.number().to_le_bytes());
        }
    }
    for (number, register) in extended[32..160].chunks_exact_mut(16).enumerate() {
        register[..8].copy_from_slice(&(random.next() | 1 << 63).to_le_bytes());
        register[8..10].copy_from_slice(&(0x3ff0_u16 + number as u16).to_le_bytes());
    }
    // The index of gathers, register 1: small in each 32- or 64-bit element.
    for range in [176..192, 592..608, 1184..1216] {
        for chunk in extended[range].chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.below(0x400).to_le_bytes());
        }
    }
    let rflags = 0x202 | random.next() & FLAGS;
    Start {
        registers: Registers { gpr, rip: 0, rflags, fs_base: arena.fs_base, gs_base: arena.gs_base },
        extended,
        data,
    }
}

/// Puts 8 bytes at an address of the data.
pub fn poke(start: &mut Start, address: u64, value: u64) {
    let offset = (address - DATA) as usize;
    start.data[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
