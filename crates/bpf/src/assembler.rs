//! Puts instructions together: labels, functions, references to maps.

use crate::code::Code;
use crate::helper::Helper;
use crate::insn::{Cond, Insn, Operand, Reg, Width};
use crate::islands::Islands;
use crate::item::{Item, Items};
use crate::label::{AssembleError, Label};
use crate::opcode::{class, jump, pseudo};
use crate::reach;

/// Collects the instructions of a program.
///
/// The first function is the program; [`function`](Self::function) begins another. What cannot be
/// reached is left out, since the verifier refuses it. A conditional or unconditional jump reaches
/// 32767 instructions; where a target is farther, [`finish`](Self::finish) puts *islands* between
/// the two, jumps that lead on, which the code around them jumps over.
#[derive(Debug, Default)]
pub struct Assembler {
    items: Items,
    /// The first label that was bound twice.
    bound_twice: Option<Label>,
}

impl Assembler {
    /// A program without instructions.
    pub fn new() -> Self {
        Self::default()
    }

    /// A label that is not bound yet.
    pub fn label(&mut self) -> Label {
        self.items.labels.push(None);
        Label(self.items.labels.len() as u32 - 1)
    }

    /// Makes a label name the next instruction.
    pub fn bind(&mut self, label: Label) {
        let place = self.items.list.len();
        let bound = &mut self.items.labels[label.0 as usize];
        if bound.is_some() {
            self.bound_twice.get_or_insert(label);
        }
        *bound = Some(place);
    }

    /// Binds a label and begins a function there, to be called or passed to a helper.
    pub fn function(&mut self, label: Label) {
        self.bind(label);
        if self.items.functions.last() != Some(&self.items.list.len()) {
            self.items.functions.push(self.items.list.len());
        }
        self.source(None);
    }

    /// Says from which place in its source the code comes that follows, up to the next call of this
    /// or the next function: [`Code::source`] tells it.
    pub fn source(&mut self, place: Option<u32>) {
        self.items.sources.push((self.items.list.len(), place));
    }

    /// How many items were pushed. A 64-bit load counts as one.
    pub fn len(&self) -> usize {
        self.items.list.len()
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.items.list.is_empty()
    }

    /// Adds an instruction.
    pub fn push(&mut self, insn: Insn) {
        self.items.list.push(Item::Plain(insn));
    }

    /// `R0 = helper(R1, ...)`
    pub fn call(&mut self, helper: Helper) {
        self.push(Insn::call(helper));
    }

    /// Ends the function.
    pub fn exit(&mut self) {
        self.push(Insn::exit());
    }

    /// Jumps to a label.
    pub fn jump(&mut self, to: Label) {
        self.items.list.push(Item::Jump(Insn::raw(class::JMP | jump::JA, 0, 0, 0, 0), to));
    }

    /// Jumps to a label if `dst COND src`, in 32 or 64 bits.
    pub fn jump_if(&mut self, width: Width, cond: Cond, dst: Reg, src: impl Into<Operand>, to: Label) {
        let class = match width {
            Width::W32 => class::JMP32,
            Width::W64 => class::JMP,
        };
        self.items.list.push(Item::Jump(Insn::with(class | cond as u8, dst, src.into()), to));
    }

    /// Jumps to a label if `dst COND src`, in 64 bits.
    pub fn jump_if64(&mut self, cond: Cond, dst: Reg, src: impl Into<Operand>, to: Label) {
        self.jump_if(Width::W64, cond, dst, src, to);
    }

    /// Jumps to a label if `dst COND src`, in 32 bits.
    pub fn jump_if32(&mut self, cond: Cond, dst: Reg, src: impl Into<Operand>, to: Label) {
        self.jump_if(Width::W32, cond, dst, src, to);
    }

    /// `R0 = function(R1, ...)`
    pub fn call_function(&mut self, function: Label) {
        let insn = Insn::raw(class::JMP | jump::CALL, 0, pseudo::CALL, 0, 0);
        self.items.list.push(Item::Call(insn, function));
    }

    /// Loads the address of a function, for a helper that calls it.
    pub fn load_function(&mut self, dst: Reg, function: Label) {
        let halves = Insn::load64(dst, pseudo::FUNCTION, 0, 0);
        self.items.list.push(Item::Address(halves, function));
    }

    /// Loads a number of 64 bits, by one instruction if it fits into 32 with its sign.
    pub fn load_imm(&mut self, dst: Reg, number: u64) {
        match i32::try_from(number as i64) {
            Ok(small) => self.push(Insn::mov(dst, small)),
            Err(_) => {
                let (low, high) = (number as i32, (number >> 32) as i32);
                self.items.list.push(Item::Wide(Insn::load64(dst, 0, low, high)));
            }
        }
    }

    /// Loads a map, to be passed to a helper: the one with this index in the list of maps that is
    /// given when the program is loaded.
    pub fn load_map(&mut self, dst: Reg, index: u32) {
        self.items.list.push(Item::Wide(Insn::load64(dst, pseudo::MAP_INDEX, index as i32, 0)));
    }

    /// Loads the address of a byte of the only value of an array map of one element.
    pub fn load_map_value(&mut self, dst: Reg, index: u32, offset: u32) {
        let halves = Insn::load64(dst, pseudo::MAP_INDEX_VALUE, index as i32, offset as i32);
        self.items.list.push(Item::Wide(halves));
    }

    /// The finished program.
    ///
    /// # Errors
    /// If labels are misused, a function does not end, or a jump cannot reach its target.
    pub fn finish(self) -> Result<Code, AssembleError> {
        self.finish_within(i32::from(i16::MAX))
    }

    /// As [`finish`](Self::finish), with jumps that reach less far: for tests.
    pub(crate) fn finish_within(mut self, limit: i32) -> Result<Code, AssembleError> {
        if let Some(label) = self.bound_twice {
            return Err(AssembleError::BoundTwice(label));
        }
        self.items.check()?;
        self.items = reach::without_dead_code(&self.items)?;
        Islands::new(&self.items, limit).with_islands()?.encode()
    }
}
