//! Strings in the handler's frame: `text fr`, `read str` and `log text`.
//!
//! They are in the frame of the claimed context, so that the agent finds them there. Their bytes
//! are read eight at a time: as many more than the string has change nothing.
//!
//! ```text
//!             mov   $0, %index ; mov $0x01010101.., %ones
//!     next:   mov   (%address,%index), %rax        guarded
//!             mov   %rax, frame(%context,%index)
//!             mov   %rax, %zeros ; sub %ones, %zeros ; not %rax ; and %rax, %zeros
//!             mov   %ones, %rax ; shl $7, %rax
//!             and   %rax, %zeros ; jne end         the high bit of the first byte that is 0
//!             add   $8, %index ; cmp $most, %index ; jne next
//!     read:   lea   7(%index), %rax ; and $-8, %rax ; mov %rax, text
//!
//!     end:    mov   %zeros, %rax ; neg %rax ; and %zeros, %rax ; sub $1, %rax ; shr $7, %rax
//!             and   %rax, frame(%context,%index)   only what is before it stays
//!             bsf   %zeros, %zeros ; shr $3, %zeros ; add %zeros, %index ; jmp read
//! ```

use layout::{FRAME, HEADER, PAGE, RESUME_TEXTS};
use vm::FRAME_LIMIT;

use crate::emit::{Label, Stream};
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, Reg, Rm, Shift};
use crate::output::Operand;
use crate::run::Run;
use crate::shape::{Location, Log, Text};

/// The low bits of the bytes of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Writes the code that reads a string, or logs one.
pub(crate) struct Texts<'r, 'a> {
    pub(crate) run: &'r mut Run<'a>,
}

/// The registers of a string that is read.
#[derive(Clone, Copy)]
struct Registers {
    address: Reg,
    index: Reg,
    ones: Reg,
    zeros: Reg,
    context: Reg,
    /// The offset of the frame's bytes in the context.
    to: i32,
}

impl Texts<'_, '_> {
    /// Emits `text fr`: pops an offset, then a constant's number. Both are known as a rule: the
    /// constant becomes words of the frame, and its length is known, too. Returns false if it is
    /// not compiled.
    pub(crate) fn constant(self) -> bool {
        let path = &mut self.run.path;
        let (Operand::Number(at), Operand::Number(number)) = (path.operand(0), path.operand(1)) else {
            return false;
        };
        let length = match path.out.environment.constants.get(number) {
            Some(text) if path.set_bytes(at, text) => text.len() as u64,
            Some(_) => return false,
            None => u64::MAX,
        };
        path.pop();
        path.pop();
        path.push(Location::Number(length));
        true
    }

    /// Emits `read str`: pops an offset, an address, then a count. Returns false if it is not
    /// compiled.
    pub(crate) fn read(self) -> bool {
        let run = self.run;
        let (Operand::Number(at), Operand::Number(count)) = (run.path.operand(0), run.path.operand(2)) else {
            return false;
        };
        let room = count.saturating_add(7) & !7;
        // A page's mark covers the page and the next one.
        if count == 0 || room > PAGE || at.saturating_add(room) > FRAME_LIMIT as u64 {
            return false;
        }
        let text = Text { at: at as u16, room: room as u16 };
        let shape = &run.path.shape;
        let overlaps = |other: &Text| text.overlaps(other.at.into(), other.room.into());
        let is_free = !shape.texts.iter().any(overlaps)
            && !shape.words.iter().any(|(offset, _)| text.overlaps((*offset).into(), 8))
            && shape.texts.len() < RESUME_TEXTS;
        if !is_free {
            return false;
        }
        let context = run.hold_context();
        let address = run.path.in_register(1);
        let [index, ones, zeros] = [(); 3].map(|()| run.path.take());
        let (_, leave) = run.memory_at(1, room as usize, Some(index));
        let registers = Registers { address, index, ones, zeros, context, to: FRAME as i32 + at as i32 };
        run.path.out.with_rax();
        copy(run, registers, count as i32, leave);
        let cell = run.path.out.frame.cell(Cell::Text(text.at));
        let emitter = &mut run.path.out.emitter;
        emitter.address(RAX, Rm::At(index, 7));
        emitter.alu_number(Alu::And, RAX, -8);
        emitter.store(cell, RAX);
        (0..3).for_each(|_| run.path.pop());
        run.path.push(Location::Register(index.0));
        let place = run.path.shape.texts.partition_point(|other| other.at < text.at);
        run.path.shape.texts.insert(place, text);
        true
    }
}

impl Texts<'_, '_> {
    /// Emits `log text`: pops an offset, then a length, and logs the length as 8 bytes, the string,
    /// and zeros up to a multiple of 8. Returns false if it is not compiled.
    ///
    /// ```text
    ///             lea   7(%length), %index ; and $-8, %index
    ///             cmp   text, %index ; jne leave
    ///             cmp   %length, %index ; je whole ; jb leave
    ///             cmpb  $0, frame(%context,%length) ; jne leave     not all of it
    ///     whole:  lea   before(%index), %rax ; cmp $logmax, %rax ; ja leave
    ///             mov   %length, (%place)
    ///     next:   sub   $8, %index ; jb done
    ///             mov   frame(%context,%index), %rax ; mov %rax, 8(%place,%index) ; jmp next
    /// ```
    pub(crate) fn log(self) -> bool {
        let run = self.run;
        let Operand::Number(at) = run.path.operand(0) else { return false };
        if matches!(run.path.operand(1), Operand::Number(_)) {
            return run.log_words();
        }
        if run.handler.logmax == 0 {
            return false;
        }
        let Some(text) = run.path.shape.texts.iter().find(|text| u64::from(text.at) == at).copied() else {
            return false;
        };
        run.begin_record();
        let (context, record) = (run.claimed.context, run.claimed.record);
        let length = run.path.in_register(1);
        let [index, place] = [(); 2].map(|()| run.path.take());
        let leave = run.side_exit();
        let most = run.handler.logmax.min(vm::LOG_LIMIT) as i32;
        let out = &mut run.path.out;
        let [whole, done] = [(); 2].map(|()| out.emitter.label());
        let (cell, logged, complete) = (
            out.frame.cell(Cell::Text(text.at)),
            out.frame.cell(Cell::Logged),
            out.frame.cell(Cell::Complete),
        );
        let byte = |index: Reg, base: Reg, offset: usize| Rm::Indexed(base, index, 0, offset as i32);
        let from = FRAME as usize + usize::from(text.at);
        out.with_rax();
        let emitter = &mut out.emitter;
        emitter.address(index, Rm::At(length, 7));
        emitter.alu_number(Alu::And, index, -8);
        emitter.alu(Alu::Cmp, index, cell);
        emitter.jump_if(Condition::NotEqual, leave);
        emitter.alu(Alu::Cmp, index, length);
        emitter.jump_if(Condition::Equal, whole);
        emitter.jump_if(Condition::Below, leave);
        emitter.compare_byte(byte(length, context, from), 0);
        emitter.jump_if(Condition::NotEqual, leave);
        emitter.bind(whole);
        match run.path.shape.log {
            Log::Known { length, .. } => emitter.number(place, length as u64),
            Log::Cells => emitter.load(place, logged),
        }
        emitter.address(RAX, Rm::Indexed(place, index, 0, 8));
        emitter.alu_number(Alu::Cmp, RAX, most);
        emitter.jump_if(Condition::Above, leave);
        emitter.store(logged, RAX);
        emitter.store(complete, RAX);
        emitter.alu(Alu::Add, place, record);
        emitter.store(Rm::At(place, HEADER as i32), length);
        let next = emitter.here_label();
        emitter.alu_number(Alu::Sub, index, 8);
        emitter.jump_if(Condition::Below, done);
        emitter.load(RAX, byte(index, context, from));
        emitter.store(byte(index, place, HEADER + 8), RAX);
        emitter.jump(next);
        emitter.bind(done);
        run.path.shape.log = Log::Cells;
        run.path.pop();
        run.path.pop();
        true
    }
}

/// Copies the string; afterwards the index is its length.
fn copy(run: &mut Run<'_>, registers: Registers, count: i32, leave: Label) {
    let Registers { index, ones, zeros, context, to, .. } = registers;
    let out = &mut run.path.out;
    let [end, read] = [(); 2].map(|()| out.emitter.label());
    out.emitter.number(index, 0);
    out.emitter.number(ones, ONES);
    let (whole, rest) = (count & !7, count & 7);
    if whole > 0 {
        let next = out.emitter.here_label();
        word(run, registers, 0, [leave, end]);
        let emitter = &mut run.path.out.emitter;
        emitter.alu_number(Alu::Add, index, 8);
        emitter.alu32_number(Alu::Cmp, index, whole);
        emitter.jump_if(Condition::NotEqual, next);
    }
    if rest > 0 {
        word(run, registers, rest, [leave, end]);
        // It has a byte that is 0.
    }
    let emitter = &mut run.path.out.emitter;
    emitter.bind(read);
    let stream = emitter.aside(Stream::Cold);
    emitter.bind(end);
    emitter.load(RAX, zeros);
    emitter.negate(RAX);
    emitter.alu(Alu::And, RAX, zeros);
    emitter.alu_number(Alu::Sub, RAX, 1);
    emitter.shift(Shift::Right, RAX, 7);
    emitter.alu_store(Alu::And, Rm::Indexed(context, index, 0, to), RAX);
    emitter.lowest_bit(zeros, zeros);
    emitter.shift(Shift::Right, zeros, 3);
    emitter.alu(Alu::Add, index, zeros);
    emitter.jump(read);
    emitter.end_detour(stream);
}

/// Copies a word, or only its first bytes and zeros behind them; goes to `end` if it has a byte
/// that is 0.
fn word(run: &mut Run<'_>, registers: Registers, bytes: i32, [leave, end]: [Label; 2]) {
    let Registers { address, index, ones, zeros, context, to } = registers;
    let out = &mut run.path.out;
    out.guard(leave);
    out.emitter.load(RAX, Rm::Indexed(address, index, 0, 0));
    let emitter = &mut out.emitter;
    if bytes > 0 {
        emitter.number(zeros, (1 << (8 * bytes)) - 1);
        emitter.alu(Alu::And, RAX, zeros);
    }
    emitter.store(Rm::Indexed(context, index, 0, to), RAX);
    emitter.load(zeros, RAX);
    emitter.alu(Alu::Sub, zeros, ones);
    emitter.not(RAX);
    emitter.alu(Alu::And, zeros, RAX);
    emitter.load(RAX, ones);
    emitter.shift(Shift::Left, RAX, 7);
    emitter.alu(Alu::And, zeros, RAX);
    match bytes {
        0 => emitter.jump_if(Condition::NotEqual, end),
        _ => emitter.jump(end),
    }
}
