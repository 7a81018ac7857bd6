//! Finds room for a record in the ring of the claimed context, and begins the record there.
//!
//! In: the registers of a claimed context (`Claimed`). Out: code after which `record` has the
//! address of a record whose header is begun, in the ring or, if it is lost, in the scratch memory.
//!
//! ```text
//!             shl   $32, %processor ; or %rdx, %processor     the two words of the header in one
//!     room:   rdtsc ; shl $32, %rdx ; or %rax, %rdx
//!             mov   head(%context), %record ; mov %record, %rax ; sub seen_tail(%context), %rax
//!             cmp   $(size - most), %rax ; ja full
//!             and   $(size - 1), %record ; cmp $(size - most), %record ; ja wrap
//!             add   ring(%context), %record                   a record that is lost goes to the scratch record
//!     begin:  %processor, %rdx, rsp, number -> record
//! ```
//!
//! `rdtsc` waits for earlier instructions, so the time is read before room is looked for. After a
//! wait for room it is read again, since the reader orders rings by the time when room was found.

use core::mem::offset_of;

use layout::{Context, Control, Header, LOST_MARK, SCRATCH, record_size, state};

use crate::emit::Label;
use crate::emit::Stream;
use crate::frame::registers;
use crate::operands::{Alu, Condition, RAX, RDI, RDX, RSI, Reg, Rm, Shift};
use crate::output::Output;
use crate::owner::of_context;

/// How far ahead to prefetch the ring; it outgrows the near caches, and the reader used it last.
const PREFETCH: usize = 1536;

/// Bytes of the program's stack that a call of the agent uses: return address, flags, 6 registers.
pub(crate) const AGENT: i32 = 8 * 8;

/// A field of the control line whose address is in `register`.
pub(crate) fn of_control(register: Reg, offset: usize) -> Rm {
    Rm::At(register, offset as i32)
}

/// The registers for a claimed context and its record, and the record's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) context: Reg,
    /// Before the claim it holds the processor's number.
    pub(crate) record: Reg,
    /// The most bytes of the record, including bytes that may be written behind it.
    most: i32,
}

impl Claimed {
    /// For a handler that logs at most `logmax` bytes.
    pub(crate) fn new(context: Reg, record: Reg, logmax: usize) -> Claimed {
        Claimed { context, record, most: record_size(logmax.min(vm::LOG_LIMIT) + 8, Some(0)) as i32 }
    }
}

/// Writes the code that begins a record.
pub(crate) struct RecordBeginner<'o, 'a> {
    pub(crate) out: &'o mut Output<'a>,
    pub(crate) claimed: Claimed,
}

impl RecordBeginner<'_, '_> {
    /// Begins the record in the claimed ring; rdx: the thread id. Changes rax, rdx and `processor`.
    pub(crate) fn begin(mut self, processor: Reg) {
        const _: () = assert!(offset_of!(Header, processor) == offset_of!(Header, tid) + 4);
        self.out.emitter.shift(Shift::Left, processor, 32);
        self.out.emitter.alu(Alu::Or, processor, RDX);
        self.find_room();
        self.fill_header(processor);
    }

    /// Reads the time to rdx; finds room for a record, else uses the scratch record. Changes rax.
    fn find_room(&mut self) {
        let (context, record) = (self.claimed.context, self.claimed.record);
        let head = of_context(context, offset_of!(Context, head));
        let seen = of_context(context, offset_of!(Context, seen_tail));
        let ring = of_context(context, offset_of!(Context, ring));
        let limit = self.out.environment.ring_size as i32 - self.claimed.most;
        let room = self.out.emitter.here_label();
        let [look, wrap, scratch, begin] = [(); 4].map(|()| self.out.emitter.label());
        self.out.time_in_one();
        self.out.emitter.load(record, head);
        self.out.emitter.load(RAX, record);
        self.out.emitter.alu(Alu::Sub, RAX, seen);
        self.out.emitter.alu_number(Alu::Cmp, RAX, limit);
        self.out.emitter.jump_if(Condition::Above, look);
        self.out.emitter.alu32_number(Alu::And, record, self.out.environment.ring_size as i32 - 1);
        self.out.emitter.alu32_number(Alu::Cmp, record, limit);
        self.out.emitter.jump_if(Condition::Above, wrap);
        self.out.emitter.alu(Alu::Add, record, ring);
        self.out.emitter.bind(begin);
        let stream = self.out.emitter.aside(Stream::Cold);
        let again = self.look_again(look, room, scratch);
        self.wrap(wrap, again, room, scratch);
        self.out.emitter.bind(scratch);
        self.out.emitter.address(record, Rm::At(context, SCRATCH as i32));
        self.out.time_in_one();
        self.out.emitter.jump(begin);
        self.out.emitter.end_detour(stream);
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
        let full = self.out.emitter.label();
        let limit = self.out.environment.ring_size as i32 - self.claimed.most;
        let again = self.out.emitter.here_label();
        self.out
            .emitter
            .load(self.claimed.record, of_context(self.claimed.context, offset_of!(Context, head)));
        self.out.emitter.bind(look);
        self.out.emitter.load(RAX, of_context(self.claimed.context, offset_of!(Context, control)));
        self.out.emitter.load(RAX, of_control(RAX, offset_of!(Control, tail)));
        self.out.emitter.store(of_context(self.claimed.context, offset_of!(Context, seen_tail)), RAX);
        self.out.emitter.load(RDX, self.claimed.record);
        self.out.emitter.alu(Alu::Sub, RDX, RAX);
        self.out.emitter.alu_number(Alu::Cmp, RDX, limit);
        self.out.emitter.jump_if(Condition::Above, full);
        let marked = of_context(self.claimed.context, offset_of!(Context, marked));
        self.out.emitter.load(RAX, of_context(self.claimed.context, offset_of!(Context, control)));
        self.out.emitter.load(RAX, of_control(RAX, offset_of!(Control, lost)));
        self.out.emitter.alu(Alu::Sub, RAX, marked);
        self.out.emitter.jump_if(Condition::Equal, room);
        self.out.emitter.load(RDX, self.claimed.record);
        self.out.emitter.alu32_number(Alu::And, RDX, self.out.environment.ring_size as i32 - 1);
        self.out.emitter.alu(Alu::Add, RDX, of_context(self.claimed.context, offset_of!(Context, ring)));
        self.out.emitter.store32_number(Rm::At(RDX, 0), state::LOST);
        self.out.emitter.store32(Rm::At(RDX, 4), RAX);
        self.out.emitter.alu_store(Alu::Add, marked, RAX);
        self.out.emitter.alu_number(
            Alu::Add,
            of_context(self.claimed.context, offset_of!(Context, head)),
            LOST_MARK as i32,
        );
        self.out.emitter.jump(room);
        self.out.emitter.bind(full);
        self.out.emitter.number(RAX, self.claimed.most as u64);
        self.no_room(again, scratch);
        again
    }

    /// Skips the end of the ring if it is too small for a record. The record's register holds the
    /// offset in the ring. Both the rest and the record must be free.
    fn wrap(&mut self, wrap: Label, again: Label, room: Label, scratch: Label) {
        let (context, record) = (self.claimed.context, self.claimed.record);
        let head = of_context(context, offset_of!(Context, head));
        let ring = of_context(context, offset_of!(Context, ring));
        let limit = self.out.environment.ring_size as i32 - self.claimed.most;
        let full = self.out.emitter.label();
        self.out.emitter.bind(wrap);
        self.out.emitter.number(RAX, self.out.environment.ring_size.into());
        self.out.emitter.alu32(Alu::Sub, RAX, record);
        let seen = of_context(context, offset_of!(Context, seen_tail));
        self.out.emitter.load(RDX, of_context(context, offset_of!(Context, control)));
        self.out.emitter.load(RDX, of_control(RDX, offset_of!(Control, tail)));
        self.out.emitter.store(seen, RDX);
        self.out.emitter.load(RDX, head);
        self.out.emitter.alu(Alu::Add, RDX, RAX);
        self.out.emitter.alu(Alu::Sub, RDX, seen);
        self.out.emitter.alu_number(Alu::Cmp, RDX, limit);
        self.out.emitter.jump_if(Condition::Above, full);
        self.out.emitter.alu(Alu::Add, record, ring);
        self.out.emitter.store32_number(Rm::At(record, offset_of!(Header, status) as i32), state::SKIP);
        self.out.emitter.alu_store(Alu::Add, head, RAX);
        self.out.emitter.jump(room);
        self.out.emitter.bind(full);
        self.out.emitter.address(RAX, Rm::At(RAX, self.claimed.most));
        self.no_room(again, scratch);
    }

    /// Handles a ring without the free bytes in rax: waits and retries, or makes the ring look full
    /// to later hits and writes the record to the scratch area, where it is dropped.
    fn no_room(&mut self, again: Label, scratch: Label) {
        if self.out.environment.lossless.is_some() {
            self.wait_for_room(again);
        }
        self.out.emitter.load(RAX, of_context(self.claimed.context, offset_of!(Context, head)));
        self.out.emitter.alu_number(Alu::Sub, RAX, self.out.environment.ring_size as i32);
        self.out.emitter.store(of_context(self.claimed.context, offset_of!(Context, seen_tail)), RAX);
        self.out.emitter.jump(scratch);
    }

    /// Calls the agent to wait for the bytes in rax.
    fn wait_for_room(&mut self, again: Label) {
        // The registers that a function may change.
        let kept: Vec<Reg> = registers(0b0000_1111_1100_0110).collect();
        kept.iter().for_each(|register| self.out.emitter.push(*register));
        self.out.pushes(8 * kept.len() as i32 + AGENT);
        // The context's register may be rsi; its value is on the stack.
        self.out.emitter.push(self.claimed.context);
        self.out.emitter.load(RSI, RAX);
        self.out.emitter.pop(RDI);
        self.out.emitter.number(RAX, self.out.environment.agent.wait.into());
        self.out.emitter.call(RAX);
        kept.iter().rev().for_each(|register| self.out.emitter.pop(*register));
        self.out.emitter.test32(RAX);
        self.out.emitter.jump_if(Condition::NotEqual, again);
    }

    /// Fills in the known header fields; `who`: thread and processor, rdx: the time. Changes rax.
    fn fill_header(&mut self, who: Reg) {
        let record = self.claimed.record;
        let field = |offset: usize| Rm::At(record, offset as i32);
        self.out.emitter.prefetch(field(PREFETCH));
        // Reading an unmapped page of the ring also maps its neighbours, if the reader has provided
        // them; writing does not. So read first, at the record's greatest possible end.
        self.out.emitter.load32(RAX, field(self.claimed.most as usize - 8));
        self.out.emitter.store(field(offset_of!(Header, tid)), who);
        self.out.emitter.store(field(offset_of!(Header, time)), RDX);
        self.out.site_rsp(RAX);
        self.out.emitter.store(field(offset_of!(Header, rsp)), RAX);
        self.out.emitter.store32_number(field(offset_of!(Header, number)), self.out.environment.number);
    }
}
