//! Logging: writes data directly behind the record's header in the ring.
//!
//! Leaves compiled code before an instruction whose data does not fit or cannot be read.

use crate::compiler::Compiler;
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, Reg, Rm, shifted};
use crate::registers::Operand;
use crate::shape::Log;
use layout::{HEADER, PAGE};
use vm::{Instruction, LOG_LIMIT, Op};

/// The length of a prefix: a token and a u16.
const PREFIX: usize = 3;

/// The most words or pieces of memory that are logged without a loop.
const UNROLLED: usize = 16;

/// The tokens of prefixes.
mod token {
    pub(super) const MEMORY: u32 = 0;
    pub(super) const STRING: u32 = 1;
    pub(super) const LOCALS: u32 = 5;
    pub(super) const GLOBALS: u32 = 6;
    pub(super) const ELEMENTS: u32 = 7;
}

impl Compiler<'_> {
    /// The most bytes that a run may log.
    fn logmax(&self) -> usize {
        self.handler.logmax.min(LOG_LIMIT)
    }

    /// Emits a logging instruction. Returns false if it is not compiled.
    pub(crate) fn log(&mut self, instruction: Instruction) -> bool {
        if self.handler.logmax == 0 {
            return false;
        }
        match instruction.op {
            Op::LogImm => self.log_elements(None, instruction.operand as usize, 0),
            Op::Log => match self.operand(0) {
                Operand::Number(count) if count <= 64 => {
                    self.log_elements(Some(token::ELEMENTS), count as usize, 1)
                }
                _ => false,
            },
            Op::LogStr => self.log_string(),
            Op::LogMrf => self.log_memory(),
            Op::LogLv => {
                let (address, count) = (self.environment.locals, self.handler.locals);
                self.log_variables(token::LOCALS, address, count)
            }
            _ => {
                let (address, count) = (self.environment.globals, self.handler.globals);
                self.log_variables(token::GLOBALS, address, count)
            }
        }
    }

    /// The address of the next `size` bytes of the log, if they certainly fit; otherwise the run
    /// leaves compiled code. The caller calls [`Compiler::logged`] after writing. If the log's
    /// length is not known, the address is in a register of its own.
    fn log_place(&mut self, size: usize) -> Option<Rm> {
        let limit = self.logmax().checked_sub(size)?;
        match self.shape.log {
            Log::Known { length, .. } if length > limit => None,
            Log::Known { length, .. } => {
                self.begin_record();
                Some(Rm::At(self.record, (HEADER + length) as i32))
            }
            Log::Cells => {
                self.begin_record();
                let place = self.take();
                let leave = self.leave_here();
                let cell = self.frame.cell(Cell::Logged);
                self.emitter.load(place, cell);
                self.emitter.alu_number(Alu::Cmp, place, limit as i32);
                self.emitter.jump_if(Condition::Above, leave);
                self.emitter.alu(Alu::Add, place, self.record);
                Some(Rm::At(place, HEADER as i32))
            }
        }
    }

    /// Notes that a logging instruction has completed with `size` bytes.
    fn logged(&mut self, size: usize) {
        match self.shape.log {
            Log::Known { length, .. } => {
                let length = length + size;
                self.shape.log = Log::Known { length, complete: length };
            }
            Log::Cells => {
                let (logged, complete) = (self.frame.cell(Cell::Logged), self.frame.cell(Cell::Complete));
                self.with_rax().load(RAX, logged);
                self.emitter.alu_number(Alu::Add, RAX, size as i32);
                self.emitter.store(logged, RAX);
                self.emitter.store(complete, RAX);
            }
        }
    }

    /// Writes a prefix with a known count as 4 bytes; the data then overwrites the last one.
    fn prefix(&mut self, place: Rm, token: u32, count: usize) {
        self.emitter.store32_number(place, token | (count as u32) << 8);
    }

    /// Logs `count` elements below the first `first` ones, and pops all of them.
    fn log_elements(&mut self, token: Option<u32>, count: usize, first: usize) -> bool {
        let prefix = if token.is_some() { PREFIX } else { 0 };
        if count > 64 {
            return false;
        }
        let Some(mut place) = self.log_place(prefix + 8 * count) else { return false };
        if let Some(token) = token {
            self.prefix(place, token, count);
            place = shifted(place, PREFIX as i32);
        }
        self.frame.change(RAX);
        for element in 0..count {
            let operand = self.operand(first + element);
            self.store(shifted(place, 8 * element as i32), operand);
        }
        self.logged(prefix + 8 * count);
        (0..first + count).for_each(|_| self.pop());
        true
    }

    /// Logs variables with known indexes.
    fn log_variables(&mut self, token: u32, address: u32, there: u16) -> bool {
        let (Operand::Number(count), Operand::Number(first)) = (self.operand(0), self.operand(1)) else {
            return false;
        };
        let fits =
            count <= UNROLLED as u64 && first.checked_add(count).is_some_and(|end| end <= there.into());
        if !fits {
            return false;
        }
        let Some(place) = self.log_place(PREFIX + 8 * count as usize) else { return false };
        self.prefix(place, token, count as usize);
        for number in 0..count {
            let variable = Rm::Absolute(address + 8 * (first + number) as u32);
            self.with_rax().load(RAX, variable);
            self.emitter.store(shifted(place, PREFIX as i32 + 8 * number as i32), RAX);
        }
        self.logged(PREFIX + 8 * count as usize);
        self.pop();
        self.pop();
        true
    }

    /// `log mrf`: pops an address, then a count, and logs memory.
    fn log_memory(&mut self) -> bool {
        let Operand::Number(size) = self.operand(1) else { return false };
        // The interpreter reads longer memory in one piece.
        if size > (8 * UNROLLED) as u64 {
            return false;
        }
        let size = size as usize;
        let Some(place) = self.log_place(PREFIX + size) else { return false };
        let (memory, leave) = self.memory_at(0, size, None);
        self.prefix(place, token::MEMORY, size);
        let mut done = 0;
        while done < size {
            let piece = [8, 4, 2, 1].into_iter().find(|piece| done + piece <= size).unwrap_or(1);
            self.guard(leave);
            self.with_rax().load_sized(piece, RAX, shifted(memory, done as i32));
            self.emitter.store_sized(piece, shifted(place, (PREFIX + done) as i32), RAX);
            done += piece;
        }
        self.logged(PREFIX + size);
        self.pop();
        self.pop();
        true
    }

    /// `log str`: pops an address, then a count, and logs the bytes before the first NUL, at most
    /// that many.
    ///
    /// ```text
    ///             mov   $0, %index
    ///     next:   movzbl (%address,%index), %eax        guarded
    ///             test  %eax, %eax ; jz end
    ///             mov   %al, (%place,%index)
    ///             add   $1, %index ; cmp $most, %index ; jne next
    ///     end:    prefix, length
    /// ```
    fn log_string(&mut self) -> bool {
        let Operand::Number(size) = self.operand(1) else { return false };
        let logged = match self.shape.log {
            Log::Known { length, .. } => length,
            // The free space is unknown, so the whole string must fit.
            Log::Cells => 0,
        };
        let Some(room) = self.logmax().checked_sub(logged + PREFIX) else { return false };
        let most = match self.shape.log {
            Log::Known { .. } => size.min(room as u64) as usize,
            Log::Cells if size <= room as u64 => size as usize,
            Log::Cells => return false,
        };
        // A page's mark covers the page and the next one.
        let most = if self.environment.hidden == 0 { most } else { most.min(PAGE as usize) };
        // If the length is known, the prefix and `most` certainly fit.
        let Some(place) = self.log_place(PREFIX + most) else { return false };
        let address = self.in_register(0);
        let index = self.take();
        let (_, leave) = self.memory_at(0, most, Some(index));
        self.frame.change(RAX);
        let (next, end) = (self.emitter.label(), self.emitter.label());
        self.emitter.number(index, 0);
        if most > 0 {
            self.emitter.bind(next);
            self.guard(leave);
            self.emitter.load_sized(1, RAX, Rm::Indexed(address, index, 0, 0));
            self.emitter.test32(RAX);
            self.emitter.jump_if(Condition::Equal, end);
            let to = indexed(shifted(place, PREFIX as i32), index);
            self.emitter.store_sized(1, to, RAX);
            self.emitter.alu_number(Alu::Add, index, 1);
            self.emitter.alu32_number(Alu::Cmp, index, most as i32);
            self.emitter.jump_if(Condition::NotEqual, next);
        }
        if size > most as u64 {
            // It fits only if it ends here: the interpreter checks.
            self.emitter.jump(leave);
        }
        self.emitter.bind(end);
        self.string_logged(place, index);
        self.pop();
        self.pop();
        true
    }

    /// Writes a string's prefix. From here on the log's length is in cells.
    fn string_logged(&mut self, place: Rm, length: Reg) {
        // The byte above the count is the string's first, so store token and count separately.
        self.emitter.number(RAX, token::STRING.into());
        self.emitter.store_sized(1, place, RAX);
        self.emitter.store_sized(2, shifted(place, 1), length);
        let (logged, complete) = (self.frame.cell(Cell::Logged), self.frame.cell(Cell::Complete));
        match self.shape.log {
            Log::Known { length: before, .. } => {
                self.emitter.address(RAX, Rm::At(length, (before + PREFIX) as i32));
            }
            Log::Cells => {
                self.emitter.load(RAX, logged);
                self.emitter.alu(Alu::Add, RAX, length);
                self.emitter.alu_number(Alu::Add, RAX, PREFIX as i32);
            }
        }
        self.emitter.store(logged, RAX);
        self.emitter.store(complete, RAX);
        self.shape.log = Log::Cells;
    }
}

/// The same memory, indexed by a register.
fn indexed(memory: Rm, index: Reg) -> Rm {
    match memory {
        Rm::At(base, displacement) => Rm::Indexed(base, index, 0, displacement),
        other => other,
    }
}
