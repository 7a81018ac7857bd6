//! Logging: writes data directly behind the record's header in the ring.
//!
//! Leaves compiled code before an instruction whose data does not fit or cannot be read.

use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, Reg, Rm, shifted};
use crate::output::Operand;
use crate::run::Run;
use crate::shape::Log;
use crate::words::Known;
use layout::{HEADER, PAGE};
use vm::{FRAME_LIMIT, Instruction, LOG_LIMIT, Op};

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

impl Run<'_> {
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
            Op::Log => match self.path.operand(0) {
                Operand::Number(count) if count <= 64 => {
                    self.log_elements(Some(token::ELEMENTS), count as usize, 1)
                }
                _ => false,
            },
            Op::LogStr => self.log_string(),
            Op::LogMrf => self.log_memory(),
            Op::LogLv => {
                let (address, count) = (self.path.out.environment.locals, self.handler.locals);
                self.log_variables(token::LOCALS, address, count)
            }
            _ => {
                let (address, count) = (self.path.out.environment.globals, self.handler.globals);
                self.log_variables(token::GLOBALS, address, count)
            }
        }
    }

    /// The address of the next `size` bytes of the log, if they certainly fit; otherwise the run
    /// leaves compiled code. The caller calls [`Run::logged`] after writing. If the log's
    /// length is not known, the address is in a register of its own.
    fn log_place(&mut self, size: usize) -> Option<Rm> {
        let limit = self.logmax().checked_sub(size)?;
        match self.path.shape.log {
            Log::Known { length, .. } if length > limit => None,
            Log::Known { length, .. } => {
                self.begin_record();
                Some(Rm::At(self.claimed.record, (HEADER + length) as i32))
            }
            Log::Cells => {
                self.begin_record();
                let place = self.path.take();
                let leave = self.side_exit();
                let out = &mut self.path.out;
                let cell = out.frame.cell(Cell::Logged);
                out.emitter.load(place, cell);
                out.emitter.alu_number(Alu::Cmp, place, limit as i32);
                out.emitter.jump_if(Condition::Above, leave);
                self.path.out.emitter.alu(Alu::Add, place, self.claimed.record);
                Some(Rm::At(place, HEADER as i32))
            }
        }
    }

    /// Notes that a logging instruction has completed with `size` bytes.
    fn logged(&mut self, size: usize) {
        match self.path.shape.log {
            Log::Known { length, .. } => {
                let length = length + size;
                self.path.shape.log = Log::Known { length, complete: length };
            }
            Log::Cells => {
                let out = &mut self.path.out;
                let (logged, complete) = (out.frame.cell(Cell::Logged), out.frame.cell(Cell::Complete));
                out.with_rax().load(RAX, logged);
                out.emitter.alu_number(Alu::Add, RAX, size as i32);
                out.emitter.store(logged, RAX);
                out.emitter.store(complete, RAX);
            }
        }
    }

    /// Writes a prefix with a known count as 4 bytes; the data then overwrites the last one.
    fn prefix(&mut self, place: Rm, token: u32, count: usize) {
        self.path.out.emitter.store32_number(place, token | (count as u32) << 8);
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
        self.path.out.frame.change(RAX);
        for element in 0..count {
            let operand = self.path.operand(first + element);
            self.path.out.store(shifted(place, 8 * element as i32), operand);
        }
        self.logged(prefix + 8 * count);
        (0..first + count).for_each(|_| self.path.pop());
        true
    }

    /// `log text` of words of the handler's frame: pops an offset, then a length, both known, and
    /// logs the length, the words, and zeros up to a multiple of 8.
    pub(crate) fn log_words(&mut self) -> bool {
        let (Operand::Number(at), Operand::Number(length)) = (self.path.operand(0), self.path.operand(1))
        else {
            return false;
        };
        if self.handler.logmax == 0 || length > 8 * UNROLLED as u64 || at > FRAME_LIMIT as u64 {
            return false;
        }
        let whole = length.next_multiple_of(8);
        if at + whole > FRAME_LIMIT as u64 {
            return false;
        }
        let words = || (at as u16..(at + whole) as u16).step_by(8);
        if words().any(|offset| matches!(self.path.known(offset), Known::Partly)) {
            return false;
        }
        // What is behind the length in the last word is not logged.
        let (last, rest) = ((at + (length & !7)) as u16, length & 7);
        let mask = if rest == 0 { u64::MAX } else { (1 << (8 * rest)) - 1 };
        let cut = match (rest, self.path.known(last)) {
            (1.., Known::At(index)) => match self.path.word_operand(index) {
                Operand::Number(number) => Some(number & mask),
                _ => return false,
            },
            _ => None,
        };
        let Some(place) = self.log_place(8 + whole as usize) else { return false };
        self.path.out.frame.change(RAX);
        self.path.out.store(place, Operand::Number(length));
        for (offset, behind) in words().zip((8..).step_by(8)) {
            let operand = match (cut, self.path.known(offset)) {
                (Some(number), _) if offset == last => Operand::Number(number),
                (_, Known::At(index)) => self.path.word_operand(index),
                _ => Operand::Number(0),
            };
            self.path.out.store(shifted(place, behind), operand);
        }
        self.logged(8 + whole as usize);
        self.path.pop();
        self.path.pop();
        true
    }

    /// Logs variables with known indexes.
    fn log_variables(&mut self, token: u32, address: u32, there: u16) -> bool {
        let (Operand::Number(count), Operand::Number(first)) = (self.path.operand(0), self.path.operand(1))
        else {
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
            self.path.out.with_rax().load(RAX, variable);
            self.path.out.emitter.store(shifted(place, PREFIX as i32 + 8 * number as i32), RAX);
        }
        self.logged(PREFIX + 8 * count as usize);
        self.path.pop();
        self.path.pop();
        true
    }

    /// `log mrf`: pops an address, then a count, and logs memory.
    fn log_memory(&mut self) -> bool {
        let Operand::Number(size) = self.path.operand(1) else { return false };
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
            self.path.out.guard(leave);
            self.path.out.with_rax().load_sized(piece, RAX, shifted(memory, done as i32));
            self.path.out.emitter.store_sized(piece, shifted(place, (PREFIX + done) as i32), RAX);
            done += piece;
        }
        self.logged(PREFIX + size);
        self.path.pop();
        self.path.pop();
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
        let Operand::Number(size) = self.path.operand(1) else { return false };
        let logged = match self.path.shape.log {
            Log::Known { length, .. } => length,
            // The free space is unknown, so the whole string must fit.
            Log::Cells => 0,
        };
        let Some(room) = self.logmax().checked_sub(logged + PREFIX) else { return false };
        let most = match self.path.shape.log {
            Log::Known { .. } => size.min(room as u64) as usize,
            Log::Cells if size <= room as u64 => size as usize,
            Log::Cells => return false,
        };
        // A page's mark covers the page and the next one.
        let most = if self.path.out.environment.hidden == 0 { most } else { most.min(PAGE as usize) };
        // If the length is known, the prefix and `most` certainly fit.
        let Some(place) = self.log_place(PREFIX + most) else { return false };
        let address = self.path.in_register(0);
        let index = self.path.take();
        let (_, leave) = self.memory_at(0, most, Some(index));
        let out = &mut self.path.out;
        out.frame.change(RAX);
        let (next, end) = (out.emitter.label(), out.emitter.label());
        out.emitter.number(index, 0);
        if most > 0 {
            out.emitter.bind(next);
            out.guard(leave);
            out.emitter.load_sized(1, RAX, Rm::Indexed(address, index, 0, 0));
            out.emitter.test32(RAX);
            out.emitter.jump_if(Condition::Equal, end);
            let to = indexed(shifted(place, PREFIX as i32), index);
            out.emitter.store_sized(1, to, RAX);
            out.emitter.alu_number(Alu::Add, index, 1);
            out.emitter.alu32_number(Alu::Cmp, index, most as i32);
            out.emitter.jump_if(Condition::NotEqual, next);
        }
        if size > most as u64 {
            // It fits only if it ends here: the interpreter checks.
            out.emitter.jump(leave);
        }
        out.emitter.bind(end);
        self.string_logged(place, index);
        self.path.pop();
        self.path.pop();
        true
    }

    /// Writes a string's prefix. From here on the log's length is in cells.
    fn string_logged(&mut self, place: Rm, length: Reg) {
        // The byte above the count is the string's first, so store token and count separately.
        let out = &mut self.path.out;
        out.emitter.number(RAX, token::STRING.into());
        out.emitter.store_sized(1, place, RAX);
        out.emitter.store_sized(2, shifted(place, 1), length);
        let (logged, complete) = (out.frame.cell(Cell::Logged), out.frame.cell(Cell::Complete));
        match self.path.shape.log {
            Log::Known { length: before, .. } => {
                self.path.out.emitter.address(RAX, Rm::At(length, (before + PREFIX) as i32));
            }
            Log::Cells => {
                let out = &mut self.path.out;
                out.emitter.load(RAX, logged);
                out.emitter.alu(Alu::Add, RAX, length);
                out.emitter.alu_number(Alu::Add, RAX, PREFIX as i32);
            }
        }
        self.path.out.emitter.store(logged, RAX);
        self.path.out.emitter.store(complete, RAX);
        self.path.shape.log = Log::Cells;
    }
}

/// The same memory, indexed by a register.
fn indexed(memory: Rm, index: Reg) -> Rm {
    match memory {
        Rm::At(base, displacement) => Rm::Indexed(base, index, 0, displacement),
        other => other,
    }
}
