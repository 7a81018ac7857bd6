//! The record of a run: claims a context for it and begins it, and commits it at the end.
//!
//! In: a hit, in compiled code. Out: a committed record in the ring; without room, one that counts
//! as dropped.
//!
//! ```text
//!             tid -> holder, %edx ; site
//!             ...                                  room in the ring, and the header: `ring`
//!             ...
//!     end:    lea   SCRATCH(%context), %rax ; cmp %rax, %record ; je dropped
//!             codes -> behind the log              where the handler may have set one
//!             movl  $COMMITTED + flags + length, (%record)
//!             mov   head(%context), %rax ; add $size, %rax ; mov %rax, head(%context)
//!             mov   control(%context), %record ; mov %rax, HEAD(%record) ; movl $FREE, (%context)
//! ```

use crate::emit::Stream;
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm, Shift, shifted};
use crate::owner::of_context;
use crate::ring::of_control;
use crate::run::Run;
use crate::shape::{Code, Log};
use core::mem::offset_of;
use layout::{
    Context, Control, ExtraHeader, HEADER, Header, LOG_SHIFT, SCRATCH, UNSET, claim, flag, record_size,
    state, status,
};

impl Run<'_> {
    /// The register of the claimed context, if one is claimed.
    pub(crate) fn context(&self) -> Option<Reg> {
        let shape = &self.path.shape;
        (shape.claimed || shape.holds).then_some(self.claimed.context)
    }

    /// Claims a context, unless this path already has one; returns its register.
    pub(crate) fn hold_context(&mut self) -> Reg {
        if self.context().is_none() {
            self.path.take_register(RDX);
            let processor = self.path.take();
            self.claim(processor);
            self.path.unlock(processor);
            self.path.unlock(RDX);
            self.path.shape.holds = true;
        }
        self.claimed.context
    }

    /// Claims a context; afterwards `processor` is the processor's number, edx the thread's.
    /// Changes rax.
    fn claim(&mut self, processor: Reg) {
        self.claims = true;
        let keeps_registered = self.keeps_registered;
        let (context, record) = (self.claimed.context, self.claimed.record);
        let out = &mut self.path.out;
        out.frame.change(context);
        out.frame.change(RAX);
        out.emitter.load(processor, record);
        let other = out.emitter.label();
        out.claim_own(processor, context, keeps_registered, other);
        out.set_owner(context, Some(other));
    }

    /// Ends a run that makes no record, or whose record is discarded.
    pub(crate) fn end_without_record(&mut self) {
        let claimed = self.context();
        self.path.out.end_without_record(claimed);
    }

    /// Begins a record, unless this path already has; claims a context first if it has none.
    pub(crate) fn begin_record(&mut self) {
        if self.path.shape.claimed {
            return;
        }
        self.path.take_register(RDX);
        let processor = self.path.take();
        if self.path.shape.holds {
            let holder = of_context(self.claimed.context, offset_of!(Context, holder));
            let out = &mut self.path.out;
            out.frame.change(RAX);
            out.processor(processor);
            out.emitter.load32(RDX, holder);
        } else {
            self.claim(processor);
        }
        self.path.shape.claimed = true;
        self.path.shape.holds = false;
        self.path.out.frame.change(self.claimed.record);
        self.record_beginner().begin(processor);
        self.path.unlock(processor);
        self.path.unlock(RDX);
    }

    /// Ends a run whose record is kept.
    pub(crate) fn end_with_record(&mut self) {
        self.begin_record();
        let (context, record) = (self.claimed.context, self.claimed.record);
        let state = if self.path.out.environment.tentative { state::TENTATIVE } else { state::COMMITTED };
        let has_more = (self.path.shape.major, self.path.shape.minor) != (Code::Unset, Code::Unset);
        let flags = if has_more { flag::MORE } else { 0 };
        let traces = has_more.then_some(0);
        // Compare the address with the scratch record before rax becomes the size.
        let out = &mut self.path.out;
        let dropped = out.emitter.label();
        out.emitter.address(RAX, Rm::At(context, SCRATCH as i32));
        out.emitter.alu(Alu::Cmp, RAX, record);
        out.emitter.jump_if(Condition::Equal, dropped);
        let head = of_context(context, offset_of!(Context, head));
        let to_status = Rm::At(record, offset_of!(Header, status) as i32);
        match self.path.shape.log {
            Log::Known { length, .. } => {
                if has_more {
                    self.set_codes(Rm::At(record, record_size(length, None) as i32));
                }
                let out = &mut self.path.out;
                out.emitter.store32_number(to_status, status(state, flags, length));
                out.emitter.load(RAX, head);
                out.emitter.alu_number(Alu::Add, RAX, record_size(length, traces) as i32);
            }
            Log::Cells => {
                let cell = self.path.out.frame.cell(Cell::Logged);
                if has_more {
                    let behind = self.path.take();
                    let out = &mut self.path.out;
                    out.emitter.load(behind, cell);
                    out.emitter.alu_number(Alu::Add, behind, 7);
                    out.emitter.alu_number(Alu::And, behind, -8);
                    out.emitter.alu(Alu::Add, behind, record);
                    self.set_codes(Rm::At(behind, HEADER as i32));
                }
                let out = &mut self.path.out;
                out.emitter.load32(RAX, cell);
                out.emitter.shift32(Shift::Left, RAX, LOG_SHIFT as u8);
                out.emitter.alu32_number(Alu::Or, RAX, status(state, flags, 0) as i32);
                out.emitter.store32(to_status, RAX);
                out.emitter.load32(RAX, cell);
                out.emitter.alu32_number(Alu::Add, RAX, record_size(0, traces) as i32 + 7);
                out.emitter.alu32_number(Alu::And, RAX, -8);
                out.emitter.alu(Alu::Add, RAX, head);
            }
        }
        let out = &mut self.path.out;
        out.emitter.store(head, RAX);
        if out.environment.tentative {
            let cell = out.frame.commit_cell();
            out.emitter.store(cell, record);
        }
        out.emitter.load(record, of_context(context, offset_of!(Context, control)));
        out.emitter.store(of_control(record, offset_of!(Control, head)), RAX);
        out.emitter.store32_number(of_context(context, offset_of!(Context, claim)), claim::FREE);
        let claimed = self.context();
        let out = &mut self.path.out;
        let stream = out.emitter.aside(Stream::Cold);
        out.emitter.bind(dropped);
        out.emitter.step(true, false, Rm::Absolute(out.environment.dropped));
        out.emitter.load(RAX, of_context(context, offset_of!(Context, control)));
        out.emitter.step(false, false, of_control(RAX, offset_of!(Control, lost)));
        out.end_without_record(claimed);
        out.emitter.end_detour(stream);
        // Emitted last, so that it can be dropped if the epilogue follows.
        let epilogue = out.epilogue;
        out.emitter.jump(epilogue);
    }

    /// Writes a [`ExtraHeader`] with the record's codes. Changes rax.
    fn set_codes(&mut self, more: Rm) {
        let field = |offset: usize| shifted(more, offset as i32);
        self.set_code(
            self.path.shape.major,
            Cell::Major,
            self.handler.major,
            field(offset_of!(ExtraHeader, major)),
        );
        self.set_code(
            self.path.shape.minor,
            Cell::Minor,
            self.handler.minor,
            field(offset_of!(ExtraHeader, minor)),
        );
        self.path.out.emitter.store_number(field(offset_of!(ExtraHeader, traces)), 0);
    }

    /// Sets a code of the record.
    fn set_code(&mut self, code: Code, cell: Cell, default: u32, field: Rm) {
        match code {
            Code::Unset => self.path.out.emitter.store32_number(field, default),
            Code::Number(number) => self.path.out.emitter.store32_number(field, number.into()),
            Code::Cell => {
                let out = &mut self.path.out;
                let cell = out.frame.cell(cell);
                let set = out.emitter.label();
                out.emitter.load32(RAX, cell);
                out.emitter.alu32_number(Alu::Cmp, RAX, UNSET as i32);
                out.emitter.jump_if(Condition::NotEqual, set);
                out.emitter.number(RAX, default.into());
                out.emitter.bind(set);
                out.emitter.store32(field, RAX);
            }
        }
    }
}
