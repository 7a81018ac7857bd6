//! Emits instructions that work on a context: its fields and the RPN stack.
//!
//! Everywhere but in the prologue `R6` is the context, `R7` the kernel's registers of the thread
//! that hit the probe. `R0` to `R5` hold values within one bytecode instruction, `R8` and `R9`
//! those that a helper's call must keep. Nothing is in a register from one bytecode instruction to
//! the next, so that the verifier sees the same state wherever paths meet and follows each path
//! once.

use bpf::{Alu, Assembler, Cond, Helper, Insn, Label, Operand, Reg, Size, Width};
use vm::Word;

use crate::layout::{Field, Map, SLOT_MASK, STACK};
use crate::routine::{Micro, Uses};

/// The context.
pub(crate) const CONTEXT: Reg = Reg::R6;
/// The registers of the thread.
pub(crate) const REGISTERS: Reg = Reg::R7;
/// The register that addresses are computed in.
pub(crate) const ADDRESS: Reg = Reg::R5;

/// What is known of the top of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// Its slot. The context's field may be old.
    Known(u16),
    /// It is this far above the slot in the context's field.
    Above(i32),
}

/// An exception to be raised, behind the code that raises it seldom.
struct Raise {
    at: Label,
    top: Top,
    code: u16,
    parm1: Operand,
    parm2: Operand,
}

/// What emits.
pub(crate) struct Emit {
    pub(crate) asm: Assembler,
    pub(crate) word: Word,
    pub(crate) top: Top,
    /// The routines that the code uses.
    pub(crate) uses: Uses,
    /// Whether the code reads memory of the process.
    pub(crate) reads: bool,
    raises: Vec<Raise>,
}

impl Emit {
    pub(crate) fn new(word: Word) -> Emit {
        Emit {
            asm: Assembler::new(),
            word,
            top: Top::Above(0),
            uses: Uses::default(),
            reads: false,
            raises: Vec::new(),
        }
    }

    /// `dst = dst OP src` in 64 bits.
    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.asm.push(Insn::alu64(op, dst, src));
    }

    /// `dst = dst OP src` in the program's word.
    pub(crate) fn word_alu(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.asm.push(Insn::alu(self.width(), op, dst, src));
    }

    /// The program's word, as a width.
    pub(crate) fn width(&self) -> Width {
        match self.word {
            Word::W4 => Width::W32,
            Word::W8 => Width::W64,
        }
    }

    /// `dst = src`
    pub(crate) fn mov(&mut self, dst: Reg, src: impl Into<Operand>) {
        self.asm.push(Insn::mov(dst, src));
    }

    /// Cuts a value to the program's word.
    pub(crate) fn truncate(&mut self, reg: Reg) {
        if self.word == Word::W4 {
            self.asm.push(Insn::mov32(reg, reg));
        }
    }

    /// Jumps if `reg COND operand`, in 64 bits.
    pub(crate) fn jump_if(&mut self, cond: Cond, reg: Reg, operand: impl Into<Operand>, to: Label) {
        self.asm.jump_if64(cond, reg, operand, to);
    }

    /// `dst = *(base + offset)`
    pub(crate) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.asm.push(Insn::load(size, dst, base, offset));
    }

    /// `*(base + offset) = src`
    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Reg) {
        self.asm.push(Insn::store(size, base, offset, src));
    }

    /// `*(base + offset) = number`
    pub(crate) fn store_imm(&mut self, size: Size, base: Reg, offset: i16, number: i32) {
        self.asm.push(Insn::store_imm(size, base, offset, number));
    }

    /// Loads a field.
    pub(crate) fn get(&mut self, dst: Reg, field: Field) {
        self.load(Size::Double, dst, CONTEXT, field.at());
    }

    /// Sets a field.
    pub(crate) fn set(&mut self, field: Field, value: impl Into<Operand>) {
        match value.into() {
            Operand::Reg(reg) => self.store(Size::Double, CONTEXT, field.at(), reg),
            Operand::Imm(number) => self.store_imm(Size::Double, CONTEXT, field.at(), number),
        }
    }

    /// Calls a helper.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.asm.call(helper);
    }

    /// `dst` = the address of a part of the context, `place` bytes from its start.
    pub(crate) fn part(&mut self, dst: Reg, place: i32) {
        self.mov(dst, CONTEXT);
        self.alu(Alu::Add, dst, place);
    }

    /// Writes the thread's name and zeros, sixteen bytes in all, to `R1`; changes `R1` to `R5`.
    /// Some kernels, 6.1 among them, leave the bytes behind the name's end as they are.
    pub(crate) fn thread_name(&mut self) {
        self.store_imm(Size::Double, Reg::R1, 0, 0);
        self.store_imm(Size::Double, Reg::R1, 8, 0);
        self.mov(Reg::R2, 16);
        self.call(Helper::GET_CURRENT_COMM);
    }

    /// The address of the element `below` the top: a register and an offset. May use [`ADDRESS`].
    pub(crate) fn element(&mut self, below: i32) -> (Reg, i16) {
        match self.top {
            Top::Known(slot) => {
                let slot = (i32::from(slot) + below) & SLOT_MASK;
                (CONTEXT, STACK + 8 * slot as i16)
            }
            Top::Above(distance) => {
                self.get(ADDRESS, Field::Top);
                if distance + below != 0 {
                    self.alu(Alu::Add, ADDRESS, distance + below);
                }
                self.slot_address(ADDRESS)
            }
        }
    }

    /// The address of the element whose slot, not yet masked, is in a register: that register,
    /// changed, and an offset.
    pub(crate) fn slot_address(&mut self, slot: Reg) -> (Reg, i16) {
        self.alu(Alu::And, slot, SLOT_MASK);
        self.alu(Alu::Lsh, slot, 3);
        self.alu(Alu::Add, slot, CONTEXT);
        (slot, STACK)
    }

    /// `dst` = the element `below` the top.
    pub(crate) fn peek(&mut self, dst: Reg, below: i32) {
        let (base, offset) = self.element(below);
        self.load(Size::Double, dst, base, offset);
    }

    /// Replaces the element `below` the top.
    pub(crate) fn poke(&mut self, below: i32, value: impl Into<Operand>) {
        let (base, offset) = self.element(below);
        match value.into() {
            Operand::Reg(reg) => self.store(Size::Double, base, offset, reg),
            Operand::Imm(number) => self.store_imm(Size::Double, base, offset, number),
        }
    }

    /// Moves the top up by a number of elements, or down.
    pub(crate) fn discard(&mut self, count: i32) {
        self.top = match self.top {
            Top::Known(slot) => Top::Known(((i32::from(slot) + count) & SLOT_MASK) as u16),
            Top::Above(distance) => Top::Above(distance + count),
        };
    }

    /// Pops an element.
    pub(crate) fn pop(&mut self, dst: Reg) {
        self.peek(dst, 0);
        self.discard(1);
    }

    /// Pushes a word.
    pub(crate) fn push(&mut self, value: impl Into<Operand>) {
        self.discard(-1);
        self.poke(0, value);
    }

    /// Writes the top into the context's field. Uses [`ADDRESS`].
    pub(crate) fn flush(&mut self) {
        self.flush_of(self.top);
        if let Top::Above(_) = self.top {
            self.top = Top::Above(0);
        }
    }

    fn flush_of(&mut self, top: Top) {
        match top {
            Top::Known(slot) => self.set(Field::Top, i32::from(slot)),
            Top::Above(0) => {}
            Top::Above(distance) => {
                self.get(ADDRESS, Field::Top);
                self.alu(Alu::Add, ADDRESS, distance);
                self.alu(Alu::And, ADDRESS, SLOT_MASK);
                self.set(Field::Top, ADDRESS);
            }
        }
    }

    /// Loads a number of 64 bits.
    pub(crate) fn number(&mut self, dst: Reg, number: u64) {
        self.asm.load_imm(dst, number);
    }

    /// `dst` = the address of a byte of a map's only value.
    pub(crate) fn map_value(&mut self, dst: Reg, map: Map, offset: u32) {
        self.asm.load_map_value(dst, map as u32, offset);
    }

    /// Ends the step; the next one runs what the field says.
    pub(crate) fn end_step(&mut self) {
        self.mov(Reg::R0, 0);
        self.asm.exit();
    }

    /// Ends the step; the next one runs a routine.
    pub(crate) fn go(&mut self, micro: Micro) {
        self.uses.add(micro);
        self.set(Field::Next, micro.number());
        self.end_step();
    }

    /// The label of code that raises an exception, with the top as it is now. The parameters are
    /// numbers, or registers other than [`ADDRESS`] as they are at the jump.
    pub(crate) fn raise(&mut self, code: u16, parm1: impl Into<Operand>, parm2: impl Into<Operand>) -> Label {
        let at = self.asm.label();
        self.raises.push(Raise { at, top: self.top, code, parm1: parm1.into(), parm2: parm2.into() });
        at
    }

    /// Emits what raises the exceptions. The code before must not run into it.
    pub(crate) fn emit_raises(&mut self) {
        for Raise { at, top, code, parm1, parm2 } in std::mem::take(&mut self.raises) {
            self.asm.bind(at);
            self.set(Field::Parm1, parm1);
            self.set(Field::Parm2, parm2);
            self.set(Field::Code, i32::from(code));
            self.flush_of(top);
            self.go(Micro::Raise);
        }
    }
}
