//! Begins a run's record in the ring of the claimed context, and commits it.
//!
//! ```text
//!             tid -> holder, %edx ; site
//!             shl   $32, %processor ; or %rdx, %processor     the two words of the header in one
//!     room:   rdtsc ; shl $32, %rdx ; or %rax, %rdx
//!             mov   head(%context), %record ; mov %record, %rax ; sub seen_tail(%context), %rax
//!             cmp   $(size - most), %rax ; ja full
//!             and   $(size - 1), %record ; cmp $(size - most), %record ; ja wrap
//!             add   ring(%context), %record                   a record that is lost goes to the scratch record
//!     begin:  %processor, %rdx, rsp, number -> record
//!     ...
//!     end:    lea   SCRATCH(%context), %rax ; cmp %rax, %record ; je dropped
//!             codes -> behind the log              where the handler may have set one
//!             movl  $COMMITTED + flags + length, (%record)
//!             mov   head(%context), %rax ; add $size, %rax ; mov %rax, head(%context)
//!             mov   control(%context), %record ; mov %rax, HEAD(%record) ; movl $FREE, (%context)
//! ```
//!
//! `rdtsc` waits for earlier instructions, so the time is read before room is looked for. After a
//! wait for room it is read again, since the reader orders rings by the time when room was found.

use crate::compiler::Compiler;
use crate::emit::{Label, Stream};
use crate::frame::{Cell, registers};
use crate::operands::{Alu, Condition, RAX, RDI, RDX, RSI, Reg, Rm, Shift, shifted};
use crate::owner::of_context;
use crate::shape::{Code, Log};
use core::mem::offset_of;
use layout::{
    Context, Control, ExtraHeader, HEADER, Header, Identity, LOG_SHIFT, LOST_MARK, SCRATCH, UNSET, claim,
    flag, record_size, state, status,
};

/// How far ahead to prefetch the ring; it outgrows the near caches, and the reader used it last.
const PREFETCH: usize = 1536;

/// Bytes of the program's stack that a call of the agent uses: return address, flags, 6 registers.
pub(crate) const AGENT: i32 = 8 * 8;

/// A field of the control line whose address is in `register`.
fn of_control(register: Reg, offset: usize) -> Rm {
    Rm::At(register, offset as i32)
}

impl Compiler<'_> {
    /// The most bytes of a record, including bytes that may be written behind it.
    fn most(&self) -> i32 {
        record_size(self.handler.logmax.min(vm::LOG_LIMIT) + 8, Some(0)) as i32
    }

    /// Claims a context and begins a record, unless this path already has.
    pub(crate) fn begin_record(&mut self) {
        if self.shape.claimed {
            return;
        }
        self.shape.claimed = true;
        self.claims = true;
        self.take_register(RDX);
        let processor = self.take();
        let (context, record) = (self.context, self.record);
        self.frame.change(context);
        self.frame.change(record);
        self.frame.change(RAX);
        self.emitter.load(processor, record);
        let other = self.emitter.label();
        self.claim_own(processor, context, other);
        self.set_owner(context, Some(other));
        self.begin_in_ring(processor);
        self.unlock(processor);
        self.unlock(RDX);
    }

    /// Begins the record in the claimed ring; rdx: the thread id. Changes rax, rdx and `processor`.
    pub(crate) fn begin_in_ring(&mut self, processor: Reg) {
        const _: () = assert!(offset_of!(Header, processor) == offset_of!(Header, tid) + 4);
        self.emitter.shift(Shift::Left, processor, 32);
        self.emitter.alu(Alu::Or, processor, RDX);
        self.find_room();
        self.fill_header(processor);
    }

    pub(crate) fn unlock(&mut self, register: Reg) {
        self.locked &= !(1 << register.0);
    }

    /// Sets edx:eax to the time stamp counter, or to its substitute.
    pub(crate) fn time(&mut self) {
        let (coarse, done) = (self.emitter.label(), self.emitter.label());
        let clockless = self.identity(offset_of!(Identity, no_rdtsc));
        let time = self.identity(offset_of!(Identity, time));
        self.emitter.alu32_number(Alu::Cmp, clockless, 0);
        self.emitter.jump_if(Condition::NotEqual, coarse);
        self.emitter.time();
        self.emitter.bind(done);
        let stream = self.emitter.aside(Stream::Cold);
        self.emitter.bind(coarse);
        self.emitter.load(RAX, time);
        self.emitter.load(RDX, RAX);
        self.emitter.shift(Shift::Right, RDX, 32);
        self.emitter.jump(done);
        self.emitter.back(stream);
    }

    /// Sets rdx to the time stamp counter or its substitute. Changes rax.
    fn time_in_one(&mut self) {
        self.time();
        self.emitter.shift(Shift::Left, RDX, 32);
        self.emitter.alu(Alu::Or, RDX, RAX);
    }

    /// Reads the time to rdx; finds room for a record, else uses the scratch record. Changes rax.
    fn find_room(&mut self) {
        let (context, record) = (self.context, self.record);
        let head = of_context(context, offset_of!(Context, head));
        let seen = of_context(context, offset_of!(Context, seen_tail));
        let ring = of_context(context, offset_of!(Context, ring));
        let limit = self.environment.ring_size as i32 - self.most();
        let room = self.emitter.here_label();
        let [look, wrap, scratch, begin] = [(); 4].map(|()| self.emitter.label());
        self.time_in_one();
        self.emitter.load(record, head);
        self.emitter.load(RAX, record);
        self.emitter.alu(Alu::Sub, RAX, seen);
        self.emitter.alu_number(Alu::Cmp, RAX, limit);
        self.emitter.jump_if(Condition::Above, look);
        self.emitter.alu32_number(Alu::And, record, self.environment.ring_size as i32 - 1);
        self.emitter.alu32_number(Alu::Cmp, record, limit);
        self.emitter.jump_if(Condition::Above, wrap);
        self.emitter.alu(Alu::Add, record, ring);
        self.emitter.bind(begin);
        let stream = self.emitter.aside(Stream::Cold);
        let again = self.look_again(look, room, scratch);
        self.wrap(wrap, again, room, scratch);
        self.emitter.bind(scratch);
        self.emitter.address(record, Rm::At(context, SCRATCH as i32));
        self.time_in_one();
        self.emitter.jump(begin);
        self.emitter.back(stream);
    }

    /// Rereads the reader's position if there is no room. At `look` the record's register holds the
    /// head; the returned label loads it first. Writes a mark if records were lost before.
    ///
    /// ```text
    ///     again: mov   head(%context), %record
    ///     look:  control->tail -> seen_tail ; if head - tail > limit, go to full
    ///            mov   control(%context), %rax ; mov LOST(%rax), %rax
    ///            sub   marked(%context), %rax ; je room
    ///            mov   %record, %rdx ; and $(size - 1), %edx ; add ring(%context), %rdx
    ///            movl  $LOST, (%rdx) ; mov %eax, 4(%rdx)
    ///            add   %rax, marked(%context) ; addq $8, head(%context) ; jmp room
    /// ```
    fn look_again(&mut self, look: Label, room: Label, scratch: Label) -> Label {
        let full = self.emitter.label();
        let limit = self.environment.ring_size as i32 - self.most();
        let again = self.emitter.here_label();
        self.emitter.load(self.record, of_context(self.context, offset_of!(Context, head)));
        self.emitter.bind(look);
        self.emitter.load(RAX, of_context(self.context, offset_of!(Context, control)));
        self.emitter.load(RAX, of_control(RAX, offset_of!(Control, tail)));
        self.emitter.store(of_context(self.context, offset_of!(Context, seen_tail)), RAX);
        self.emitter.load(RDX, self.record);
        self.emitter.alu(Alu::Sub, RDX, RAX);
        self.emitter.alu_number(Alu::Cmp, RDX, limit);
        self.emitter.jump_if(Condition::Above, full);
        let marked = of_context(self.context, offset_of!(Context, marked));
        self.emitter.load(RAX, of_context(self.context, offset_of!(Context, control)));
        self.emitter.load(RAX, of_control(RAX, offset_of!(Control, lost)));
        self.emitter.alu(Alu::Sub, RAX, marked);
        self.emitter.jump_if(Condition::Equal, room);
        self.emitter.load(RDX, self.record);
        self.emitter.alu32_number(Alu::And, RDX, self.environment.ring_size as i32 - 1);
        self.emitter.alu(Alu::Add, RDX, of_context(self.context, offset_of!(Context, ring)));
        self.emitter.store32_number(Rm::At(RDX, 0), state::LOST);
        self.emitter.store32(Rm::At(RDX, 4), RAX);
        self.emitter.alu_store(Alu::Add, marked, RAX);
        self.emitter.alu_number(
            Alu::Add,
            of_context(self.context, offset_of!(Context, head)),
            LOST_MARK as i32,
        );
        self.emitter.jump(room);
        self.emitter.bind(full);
        self.emitter.number(RAX, self.most() as u64);
        self.no_room(again, scratch);
        again
    }

    /// Skips the end of the ring if it is too small for a record. The record's register holds the
    /// offset in the ring. Both the rest and the record must be free.
    fn wrap(&mut self, wrap: Label, again: Label, room: Label, scratch: Label) {
        let (context, record) = (self.context, self.record);
        let head = of_context(context, offset_of!(Context, head));
        let ring = of_context(context, offset_of!(Context, ring));
        let limit = self.environment.ring_size as i32 - self.most();
        let full = self.emitter.label();
        self.emitter.bind(wrap);
        self.emitter.number(RAX, self.environment.ring_size.into());
        self.emitter.alu32(Alu::Sub, RAX, record);
        let seen = of_context(context, offset_of!(Context, seen_tail));
        self.emitter.load(RDX, of_context(context, offset_of!(Context, control)));
        self.emitter.load(RDX, of_control(RDX, offset_of!(Control, tail)));
        self.emitter.store(seen, RDX);
        self.emitter.load(RDX, head);
        self.emitter.alu(Alu::Add, RDX, RAX);
        self.emitter.alu(Alu::Sub, RDX, seen);
        self.emitter.alu_number(Alu::Cmp, RDX, limit);
        self.emitter.jump_if(Condition::Above, full);
        self.emitter.alu(Alu::Add, record, ring);
        self.emitter.store32_number(Rm::At(record, offset_of!(Header, status) as i32), state::SKIP);
        self.emitter.alu_store(Alu::Add, head, RAX);
        self.emitter.jump(room);
        self.emitter.bind(full);
        self.emitter.address(RAX, Rm::At(RAX, self.most()));
        self.no_room(again, scratch);
    }

    /// Handles a ring without the free bytes in rax: waits and retries, or makes the ring look full
    /// to later hits and writes the record to the scratch area, where it is dropped.
    fn no_room(&mut self, again: Label, scratch: Label) {
        if self.environment.lossless.is_some() {
            self.wait_for_room(again);
        }
        self.emitter.load(RAX, of_context(self.context, offset_of!(Context, head)));
        self.emitter.alu_number(Alu::Sub, RAX, self.environment.ring_size as i32);
        self.emitter.store(of_context(self.context, offset_of!(Context, seen_tail)), RAX);
        self.emitter.jump(scratch);
    }

    /// Calls the agent to wait for the bytes in rax.
    fn wait_for_room(&mut self, again: Label) {
        // The registers that a function may change.
        let kept: Vec<Reg> = registers(0b0000_1111_1100_0110).collect();
        kept.iter().for_each(|register| self.emitter.push(*register));
        self.pushes(8 * kept.len() as i32 + AGENT);
        // The context's register may be rsi; its value is on the stack.
        self.emitter.push(self.context);
        self.emitter.load(RSI, RAX);
        self.emitter.pop(RDI);
        self.emitter.number(RAX, self.environment.agent.wait.into());
        self.emitter.call(RAX);
        kept.iter().rev().for_each(|register| self.emitter.pop(*register));
        self.emitter.test32(RAX);
        self.emitter.jump_if(Condition::NotEqual, again);
    }

    /// Fills in the known header fields; `who`: thread and processor, rdx: the time. Changes rax.
    fn fill_header(&mut self, who: Reg) {
        let record = self.record;
        let field = |offset: usize| Rm::At(record, offset as i32);
        self.emitter.prefetch(field(PREFETCH));
        // Reading an unmapped page of the ring also maps its neighbours, if the reader has provided
        // them; writing does not. So read first, at the record's greatest possible end.
        self.emitter.load32(RAX, field(self.most() as usize - 8));
        self.emitter.store(field(offset_of!(Header, tid)), who);
        self.emitter.store(field(offset_of!(Header, time)), RDX);
        self.site_rsp(RAX);
        self.emitter.store(field(offset_of!(Header, rsp)), RAX);
        self.emitter.store32_number(field(offset_of!(Header, number)), self.environment.number);
    }

    /// Ends a run whose record is kept.
    pub(crate) fn end_with_record(&mut self) {
        self.begin_record();
        let (context, record) = (self.context, self.record);
        let state = if self.environment.tentative { state::TENTATIVE } else { state::COMMITTED };
        let has_more = (self.shape.major, self.shape.minor) != (Code::Unset, Code::Unset);
        let flags = if has_more { flag::MORE } else { 0 };
        let traces = has_more.then_some(0);
        // Compare the address with the scratch record before rax becomes the size.
        let dropped = self.emitter.label();
        self.emitter.address(RAX, Rm::At(context, SCRATCH as i32));
        self.emitter.alu(Alu::Cmp, RAX, record);
        self.emitter.jump_if(Condition::Equal, dropped);
        let head = of_context(context, offset_of!(Context, head));
        let to_status = Rm::At(record, offset_of!(Header, status) as i32);
        match self.shape.log {
            Log::Known { length, .. } => {
                if has_more {
                    self.set_codes(Rm::At(record, record_size(length, None) as i32));
                }
                self.emitter.store32_number(to_status, status(state, flags, length));
                self.emitter.load(RAX, head);
                self.emitter.alu_number(Alu::Add, RAX, record_size(length, traces) as i32);
            }
            Log::Cells => {
                let cell = self.frame.cell(Cell::Logged);
                if has_more {
                    let behind = self.take();
                    self.emitter.load(behind, cell);
                    self.emitter.alu_number(Alu::Add, behind, 7);
                    self.emitter.alu_number(Alu::And, behind, -8);
                    self.emitter.alu(Alu::Add, behind, record);
                    self.set_codes(Rm::At(behind, HEADER as i32));
                }
                self.emitter.load32(RAX, cell);
                self.emitter.shift32(Shift::Left, RAX, LOG_SHIFT as u8);
                self.emitter.alu32_number(Alu::Or, RAX, status(state, flags, 0) as i32);
                self.emitter.store32(to_status, RAX);
                self.emitter.load32(RAX, cell);
                self.emitter.alu32_number(Alu::Add, RAX, record_size(0, traces) as i32 + 7);
                self.emitter.alu32_number(Alu::And, RAX, -8);
                self.emitter.alu(Alu::Add, RAX, head);
            }
        }
        self.emitter.store(head, RAX);
        if self.environment.tentative {
            let cell = self.frame.commit_cell();
            self.emitter.store(cell, record);
        }
        self.emitter.load(record, of_context(context, offset_of!(Context, control)));
        self.emitter.store(of_control(record, offset_of!(Control, head)), RAX);
        self.emitter.store32_number(of_context(context, offset_of!(Context, claim)), claim::FREE);
        let stream = self.emitter.aside(Stream::Cold);
        self.emitter.bind(dropped);
        self.emitter.step(true, false, Rm::Absolute(self.environment.dropped));
        self.emitter.load(RAX, of_context(context, offset_of!(Context, control)));
        self.emitter.step(false, false, of_control(RAX, offset_of!(Control, lost)));
        self.end_without_record();
        self.emitter.back(stream);
        // Emitted last, so that it can be dropped if the epilogue follows.
        let epilogue = self.epilogue;
        self.emitter.jump(epilogue);
    }

    /// Writes a [`ExtraHeader`] with the record's codes. Changes rax.
    fn set_codes(&mut self, more: Rm) {
        let field = |offset: usize| shifted(more, offset as i32);
        self.set_code(
            self.shape.major,
            Cell::Major,
            self.handler.major,
            field(offset_of!(ExtraHeader, major)),
        );
        self.set_code(
            self.shape.minor,
            Cell::Minor,
            self.handler.minor,
            field(offset_of!(ExtraHeader, minor)),
        );
        self.emitter.store_number(field(offset_of!(ExtraHeader, traces)), 0);
    }

    /// Sets a code of the record.
    fn set_code(&mut self, code: Code, cell: Cell, default: u32, field: Rm) {
        match code {
            Code::Unset => self.emitter.store32_number(field, default),
            Code::Number(number) => self.emitter.store32_number(field, number.into()),
            Code::Cell => {
                let cell = self.frame.cell(cell);
                let set = self.emitter.label();
                self.emitter.load32(RAX, cell);
                self.emitter.alu32_number(Alu::Cmp, RAX, UNSET as i32);
                self.emitter.jump_if(Condition::NotEqual, set);
                self.emitter.number(RAX, default.into());
                self.emitter.bind(set);
                self.emitter.store32(field, RAX);
            }
        }
    }

    /// Ends a run that makes no record, or whose record is discarded.
    pub(crate) fn end_without_record(&mut self) {
        if self.shape.claimed {
            let claim = of_context(self.context, offset_of!(Context, claim));
            self.emitter.store32_number(claim, claim::FREE);
        }
        self.forget_record();
        let epilogue = self.epilogue;
        self.emitter.jump(epilogue);
    }

    /// If records are tentative, notes that there is none: commit code then writes to a dummy word.
    pub(crate) fn forget_record(&mut self) {
        if self.environment.tentative {
            let nothing = self.environment.identity + offset_of!(Identity, dummy_state) as u32;
            let cell = self.frame.commit_cell();
            self.emitter.store_number(cell, nothing.into());
        }
    }
}
