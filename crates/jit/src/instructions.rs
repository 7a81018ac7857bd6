//! The machine instructions, one function each: operands come in, bytes go to the [`Emitter`].

use crate::emit::{Emitter, Label, SiteField, Target};
use crate::operands::{Alu, Condition, Reg, Rm, Shift, shifted};

impl Emitter {
    /// Loads an operand into a register: `mov r64, r/m64`.
    pub(crate) fn load(&mut self, to: Reg, from: impl Into<Rm>) {
        let from = from.into();
        if from != Rm::Reg(to) {
            self.modrm(true, false, &[0x8b], to.0, from);
        }
    }

    /// `mov r32, r/m32`; clears the upper half.
    pub(crate) fn load32(&mut self, to: Reg, from: impl Into<Rm>) {
        self.modrm(false, false, &[0x8b], to.0, from.into());
    }

    /// Loads `size` bytes (1, 2, 4 or 8), zero-extended, in one instruction.
    pub(crate) fn load_sized(&mut self, size: usize, to: Reg, from: Rm) {
        match size {
            1 => self.modrm(false, false, &[0x0f, 0xb6], to.0, from),
            2 => self.modrm(false, false, &[0x0f, 0xb7], to.0, from),
            4 => self.modrm(false, false, &[0x8b], to.0, from),
            _ => self.modrm(true, false, &[0x8b], to.0, from),
        }
    }

    /// Stores a register: `mov r/m64, r64`.
    pub(crate) fn store(&mut self, to: Rm, from: Reg) {
        self.modrm(true, false, &[0x89], from.0, to);
    }

    /// `mov r/m32, r32`.
    pub(crate) fn store32(&mut self, to: Rm, from: Reg) {
        self.modrm(false, false, &[0x89], from.0, to);
    }

    /// Stores the low `size` bytes (1, 2, 4 or 8) of a register in one instruction.
    pub(crate) fn store_sized(&mut self, size: usize, to: Rm, from: Reg) {
        match size {
            1 => self.modrm(false, true, &[0x88], from.0, to),
            2 => {
                self.byte(0x66);
                self.modrm(false, false, &[0x89], from.0, to);
            }
            4 => self.store32(to, from),
            _ => self.store(to, from),
        }
    }

    /// Stores a number of 8 bits: `mov r/m8, imm8`.
    pub(crate) fn store8_number(&mut self, to: Rm, number: u8) {
        self.modrm(false, false, &[0xc6], 0, to);
        self.byte(number);
    }

    /// Stores a number of 32 bits: `mov r/m32, imm32`.
    pub(crate) fn store32_number(&mut self, to: Rm, number: u32) {
        self.modrm(false, false, &[0xc7], 0, to);
        self.bytes(&number.to_le_bytes());
    }

    /// Stores a 64-bit number: in one instruction if it fits in 32 bits sign-extended, else in two
    /// halves.
    pub(crate) fn store_number(&mut self, to: Rm, number: u64) {
        if let Ok(short) = i32::try_from(number as i64) {
            self.modrm(true, false, &[0xc7], 0, to);
            self.bytes(&short.to_le_bytes());
            return;
        }
        self.store32_number(to, number as u32);
        self.store32_number(shifted(to, 4), (number >> 32) as u32);
    }

    /// Stores the site's address so that it can be changed later.
    pub(crate) fn store_site(&mut self, to: Rm, site: u64) {
        if i32::try_from(site as i64).is_ok() {
            self.is_fixed = true;
            return self.store_number(to, site);
        }
        self.store32_number(to, site as u32);
        let low = self.here() - 4;
        self.store32_number(shifted(to, 4), (site >> 32) as u32);
        let high = self.here() - 4;
        self.note_site(SiteField::Halves(low as u32, high as u32));
    }

    /// Loads the site's address into a register so that it can be changed later.
    pub(crate) fn site(&mut self, to: Reg, site: u64) {
        if u32::try_from(site).is_ok() || i32::try_from(site as i64).is_ok() {
            self.is_fixed = true;
            return self.number(to, site);
        }
        self.number(to, site);
        let word = self.here() - 8;
        self.note_site(SiteField::Word(word as u32));
    }

    /// Loads a number into a register without changing flags.
    pub(crate) fn number(&mut self, to: Reg, number: u64) {
        if let Ok(number) = u32::try_from(number) {
            if to.0 >= 8 {
                self.byte(0x41);
            }
            self.byte(0xb8 | to.0 & 7);
            self.bytes(&number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number as i64) {
            self.modrm(true, false, &[0xc7], 0, Rm::Reg(to));
            self.bytes(&number.to_le_bytes());
        } else {
            self.bytes(&[0x48 | to.0 >> 3, 0xb8 | to.0 & 7]);
            self.bytes(&number.to_le_bytes());
        }
    }

    /// `lea`.
    pub(crate) fn address(&mut self, to: Reg, of: Rm) {
        self.modrm(true, false, &[0x8d], to.0, of);
    }

    /// The address of a restartable sequence's descriptor: `lea r64, [rip + distance]`.
    pub(crate) fn descriptor(&mut self, to: Reg, sequence: usize) {
        self.bytes(&[0x48 | (to.0 >> 3) << 2, 0x8d, 0x05 | (to.0 & 7) << 3]);
        self.distance(Target::Descriptor(sequence));
    }

    /// `op r64, r/m64`.
    pub(crate) fn alu(&mut self, op: Alu, to: Reg, from: impl Into<Rm>) {
        self.modrm(true, false, &[(op as u8) << 3 | 3], to.0, from.into());
    }

    /// `op r32, r/m32`.
    pub(crate) fn alu32(&mut self, op: Alu, to: Reg, from: impl Into<Rm>) {
        self.modrm(false, false, &[(op as u8) << 3 | 3], to.0, from.into());
    }

    /// `op r/m64, imm32`, sign-extended.
    pub(crate) fn alu_number(&mut self, op: Alu, to: impl Into<Rm>, number: i32) {
        self.alu_immediate(true, op, to.into(), number);
    }

    /// `op r/m32, imm32`.
    pub(crate) fn alu32_number(&mut self, op: Alu, to: impl Into<Rm>, number: i32) {
        self.alu_immediate(false, op, to.into(), number);
    }

    fn alu_immediate(&mut self, wide: bool, op: Alu, to: Rm, number: i32) {
        match i8::try_from(number) {
            Ok(short) => {
                self.modrm(wide, false, &[0x83], op as u8, to);
                self.byte(short as u8);
            }
            Err(_) => {
                self.modrm(wide, false, &[0x81], op as u8, to);
                self.bytes(&number.to_le_bytes());
            }
        }
    }

    /// `cmp byte, imm8`.
    pub(crate) fn compare_byte(&mut self, memory: Rm, number: u8) {
        self.modrm(false, false, &[0x80], Alu::Cmp as u8, memory);
        self.byte(number);
    }

    /// `op r/m64, r64`.
    pub(crate) fn alu_store(&mut self, op: Alu, to: Rm, from: Reg) {
        self.modrm(true, false, &[(op as u8) << 3 | 1], from.0, to);
    }

    /// `bsr r64, r64`: the place of the highest bit of a register that is not 0.
    pub(crate) fn highest_bit(&mut self, to: Reg, of: Reg) {
        self.modrm(true, false, &[0x0f, 0xbd], to.0, of.into());
    }

    /// `bsf r64, r64`: the place of the lowest bit of a register that is not 0.
    pub(crate) fn lowest_bit(&mut self, to: Reg, of: Reg) {
        self.modrm(true, false, &[0x0f, 0xbc], to.0, of.into());
    }

    /// `imul r64, r/m64, imm32`.
    pub(crate) fn multiply_number(&mut self, to: Reg, from: impl Into<Rm>, number: i32) {
        self.modrm(true, false, &[0x69], to.0, from.into());
        self.bytes(&number.to_le_bytes());
    }

    /// `imul r64, r/m64`.
    pub(crate) fn multiply(&mut self, to: Reg, from: impl Into<Rm>) {
        self.modrm(true, false, &[0x0f, 0xaf], to.0, from.into());
    }

    /// `mul r/m64`: rdx:rax becomes the product of rax and the operand.
    pub(crate) fn multiply_wide(&mut self, by: impl Into<Rm>) {
        self.modrm(true, false, &[0xf7], 4, by.into());
    }

    /// `shrd r64, r64, imm8`: shifts right, with the low bits of `from` coming in.
    pub(crate) fn shift_in(&mut self, to: Reg, from: Reg, count: u8) {
        self.modrm(true, false, &[0x0f, 0xac], from.0, to.into());
        self.byte(count);
    }

    /// `not r64`.
    pub(crate) fn not(&mut self, register: Reg) {
        self.modrm(true, false, &[0xf7], 2, register.into());
    }

    /// `neg r64`.
    pub(crate) fn negate(&mut self, register: Reg) {
        self.modrm(true, false, &[0xf7], 3, register.into());
    }

    /// `div r64` (rdx:rax), or `idiv` if `signed`.
    pub(crate) fn divide(&mut self, signed: bool, divisor: Reg) {
        self.modrm(true, false, &[0xf7], if signed { 7 } else { 6 }, divisor.into());
    }

    /// `cqo`: sign-extends rax to rdx:rax.
    pub(crate) fn sign(&mut self) {
        self.bytes(&[0x48, 0x99]);
    }

    /// Shifts by a number.
    pub(crate) fn shift(&mut self, op: Shift, register: Reg, count: u8) {
        self.modrm(true, false, &[0xc1], op as u8, register.into());
        self.byte(count);
    }

    /// `shl r32, imm8`.
    pub(crate) fn shift32(&mut self, op: Shift, register: Reg, count: u8) {
        self.modrm(false, false, &[0xc1], op as u8, register.into());
        self.byte(count);
    }

    /// `bts r64, imm8`: sets a bit.
    pub(crate) fn set_bit(&mut self, register: Reg, bit: u8) {
        self.modrm(true, false, &[0x0f, 0xba], 5, Rm::Reg(register));
        self.byte(bit);
    }

    /// Shifts by cl.
    pub(crate) fn shift_by_cl(&mut self, op: Shift, register: Reg) {
        self.modrm(true, false, &[0xd3], op as u8, register.into());
    }

    /// `test r64, r64`.
    pub(crate) fn test(&mut self, register: Reg) {
        self.modrm(true, false, &[0x85], register.0, register.into());
    }

    /// `test r32, r32`.
    pub(crate) fn test32(&mut self, register: Reg) {
        self.modrm(false, false, &[0x85], register.0, register.into());
    }

    /// `test r32, imm32`.
    pub(crate) fn test32_number(&mut self, register: Reg, number: i32) {
        self.modrm(false, false, &[0xf7], 0, register.into());
        self.bytes(&number.to_le_bytes());
    }

    /// `bt r64, imm8`: copies the bit to the carry flag.
    pub(crate) fn bit_test(&mut self, register: Reg, bit: u8) {
        self.modrm(true, false, &[0x0f, 0xba], 4, register.into());
        self.byte(bit);
    }

    /// `inc` or `dec` of a word in memory, with a lock prefix if `locked`.
    pub(crate) fn step(&mut self, locked: bool, down: bool, word: Rm) {
        if locked {
            self.byte(0xf0);
        }
        self.modrm(true, false, &[0xff], down.into(), word);
    }

    /// `xchg r32, m32`, which is always locked.
    pub(crate) fn exchange32(&mut self, register: Reg, memory: Rm) {
        self.modrm(false, false, &[0x87], register.0, memory);
    }

    /// `lock add m64, r64`.
    pub(crate) fn add_locked(&mut self, memory: Rm, register: Reg) {
        self.byte(0xf0);
        self.alu_store(Alu::Add, memory, register);
    }

    /// `lock cmpxchg m64, r64`: stores the register and sets ZF if the memory is what rax is.
    pub(crate) fn exchange_if_rax(&mut self, memory: Rm, register: Reg) {
        self.byte(0xf0);
        self.modrm(true, false, &[0x0f, 0xb1], register.0, memory);
    }

    /// `lock xadd m64, r64`.
    pub(crate) fn fetch_add(&mut self, memory: Rm, register: Reg) {
        self.byte(0xf0);
        self.modrm(true, false, &[0x0f, 0xc1], register.0, memory);
    }

    /// `push r64`.
    pub(crate) fn push(&mut self, register: Reg) {
        if register.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x50 | register.0 & 7);
    }

    /// `pop r64`.
    pub(crate) fn pop(&mut self, register: Reg) {
        if register.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x58 | register.0 & 7);
    }

    /// `pushfq`.
    pub(crate) fn push_flags(&mut self) {
        self.byte(0x9c);
    }

    /// Saves the flags that handlers change to ax: `lahf; seto al`.
    pub(crate) fn save_flags(&mut self) {
        self.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
    }

    /// Restores them: `add al, 0x7f; sahf`.
    pub(crate) fn restore_flags(&mut self) {
        self.bytes(&[0x04, 0x7f, 0x9e]);
    }

    /// `rdtsc`: the low half in eax, the high half in edx.
    pub(crate) fn time(&mut self) {
        self.bytes(&[0x0f, 0x31]);
    }

    /// `rdfsbase r64`.
    pub(crate) fn read_fs_base(&mut self, to: Reg) {
        self.byte(0xf3);
        self.modrm(true, false, &[0x0f, 0xae], 0, to.into());
    }

    /// `cmp r64, fs:0`.
    pub(crate) fn compare_with_thread_word(&mut self, register: Reg) {
        self.byte(0x64);
        self.alu(Alu::Cmp, register, Rm::Absolute(0));
    }

    /// `rdpid r64`.
    pub(crate) fn rdpid(&mut self, to: Reg) {
        self.byte(0xf3);
        self.modrm(false, false, &[0x0f, 0xc7], 7, to.into());
    }

    /// `prefetchw`: the line at this address will be written. Never faults.
    pub(crate) fn prefetch(&mut self, memory: Rm) {
        self.modrm(false, false, &[0x0f, 0x0d], 1, memory);
    }

    /// `lar r32, r32`: the access rights of the segment of a selector; sets ZF if it exists.
    pub(crate) fn segment_rights(&mut self, to: Reg, selector: Reg) {
        self.modrm(false, false, &[0x0f, 0x02], to.0, selector.into());
    }

    /// `lsl r32, r32`: the limit of the segment of a selector.
    pub(crate) fn segment_limit(&mut self, to: Reg, selector: Reg) {
        self.modrm(false, false, &[0x0f, 0x03], to.0, selector.into());
    }

    /// `pause`.
    pub(crate) fn pause(&mut self) {
        self.bytes(&[0xf3, 0x90]);
    }

    /// `call r64`.
    pub(crate) fn call(&mut self, register: Reg) {
        self.modrm(false, false, &[0xff], 2, register.into());
    }

    /// `call` of a place in this code.
    pub(crate) fn call_label(&mut self, to: Label) {
        self.byte(0xe8);
        self.distance(Target::Label(to));
    }

    /// `ret`.
    pub(crate) fn ret(&mut self) {
        self.byte(0xc3);
    }

    /// `jmp`.
    pub(crate) fn jump(&mut self, to: Label) {
        self.byte(0xe9);
        self.distance(Target::Label(to));
    }

    /// `jcc`.
    pub(crate) fn jump_if(&mut self, condition: Condition, to: Label) {
        self.bytes(&[0x0f, 0x80 | condition as u8]);
        self.distance(Target::Label(to));
    }
}
