//! Counts hits, and variables that handlers only increment or decrement.
//!
//! Emits one restartable sequence per counter, one after another:
//!
//! ```text
//!             mov   rseq_offset, %t
//!             test  %t, %t ; jz none
//!             cmpl  $mark, %fs:28(%t) ; jne none   not a thread of the libc, or fs is not what it was
//!             cmpq  $0, %fs:8(%t) ; jne none       nobody's section: what is written there is as before in the end
//!             rdpid %rax ; and $0xfff, %eax
//!             cmp   %fs:4(%t), %eax ; jne none     an unregistered thread has a negative cpu_id
//!     set:    lea   descriptor(%rip), %rax ; mov %rax, %fs:8(%t)
//!     start:  mov   %fs:4(%t), %eax
//!             shl   $shift, %eax
//!             incq  address(%rax)
//!     end:    ...                                  the next counter's `set`
//!             movq  $0, %fs:8(%t)
//!     done:
//!
//!     cold:   .long 0x53053053
//!     abort:  lock incq spill ; jmp end            once for each counter
//!     none:   lock incq spill ... ; jmp done       all of them
//! ```
//!
//! A program may set fs to anything at any time, or unregister its `struct rseq` and reuse that
//! memory. So every access through fs may fault (and then continues at `none`), and nothing is
//! written through it unless everything that a registered thread has is there: the tracer's mark,
//! no active section, and the processor's number.

use crate::emit::{Label, Stream};
use crate::environment::{Environment, Handler, Limits, Variable};
use crate::operands::{Alu, Condition, RAX, Reg, Rm, Shift};
use crate::output::Output;
use core::mem::offset_of;
use layout::{Identity, PROCESSOR_MASK, PerProcessor, RSEQ_CPU, RSEQ_SECTION, RSEQ_SIGNATURE};
use vm::{Instruction, Op};

/// A counter, and whether it counts down.
pub(crate) type Counted = (PerProcessor, bool);

/// The counter of an instruction that only counts on a per-processor word.
pub(crate) fn counted(
    handler: &Handler<'_>,
    environment: &Environment<'_>,
    instruction: &Instruction,
) -> Option<Counted> {
    let index = instruction.operand as u16;
    let (variable, there, down) = match instruction.op {
        Op::IncLvImm => (Variable::Local(index), handler.locals, false),
        Op::DecLvImm => (Variable::Local(index), handler.locals, true),
        Op::IncGvImm => (Variable::Global(index), handler.globals, false),
        Op::DecGvImm => (Variable::Global(index), handler.globals, true),
        _ => return None,
    };
    let counter = environment.counted.iter().find(|(counted, _)| *counted == variable)?;
    (index < there).then_some((counter.1, down))
}

impl Output<'_> {
    /// Counts a hit of a probe with limits, and continues only within them. May change `scratch`.
    pub(crate) fn count_limited(&mut self, limits: Limits, scratch: Reg) {
        let discard = self.discard;
        let total = limits.ignore.saturating_add(limits.maxhits);
        let emitter = self.with_rax();
        emitter.number(RAX, 1);
        emitter.fetch_add(Rm::Absolute(limits.hits), RAX);
        if limits.maxhits == 0 {
            // No runs at all: hits are only counted.
            emitter.jump(discard);
            return;
        }
        if total < u64::MAX {
            let (last, go_on) = (self.emitter.label(), self.emitter.label());
            self.compare_rax(total - 1, scratch);
            self.emitter.jump_if(Condition::AboveOrEqual, last);
            self.emitter.bind(go_on);
            let before = self.emitter.aside(Stream::Cold);
            self.emitter.bind(last);
            self.emitter.jump_if(Condition::NotEqual, discard);
            self.emitter.store32_number(Rm::Absolute(self.environment.over), 1);
            self.emitter.jump(go_on);
            self.emitter.end_detour(before);
        }
        if limits.ignore > 0 {
            self.compare_rax(limits.ignore, scratch);
            self.emitter.jump_if(Condition::Below, discard);
        }
    }

    /// Compares rax with a number, unsigned.
    fn compare_rax(&mut self, number: u64, scratch: Reg) {
        match i32::try_from(number) {
            Ok(number) => self.emitter.alu_number(Alu::Cmp, RAX, number),
            Err(_) => {
                self.frame.change(scratch);
                self.emitter.number(scratch, number);
                self.emitter.alu(Alu::Cmp, RAX, scratch);
            }
        }
    }

    /// Counts all counters. Changes rax; afterwards `scratch` is the offset of the thread's
    /// `struct rseq` from fs, or 0 if that is unusable. `processor`: the register that holds the
    /// processor's number already.
    pub(crate) fn count(&mut self, counters: &[Counted], scratch: Reg, processor: Option<Reg>) {
        if counters.is_empty() {
            return;
        }
        self.frame.change(scratch);
        let section = Rm::Thread(scratch, RSEQ_SECTION);
        let (none, done) = (self.emitter.label(), self.emitter.label());
        self.with_rax();
        self.registered(scratch, none);
        self.runs_there(scratch, processor, none);
        self.count_each(counters, scratch);
        self.guard(done);
        self.emitter.store_number(section, 0);
        self.emitter.bind(done);
        let before = self.emitter.aside(Stream::Cold);
        self.emitter.bind(none);
        for (counter, down) in counters {
            self.emitter.step(true, *down, Rm::Absolute(counter.spill));
        }
        self.emitter.number(scratch, 0);
        self.emitter.jump(done);
        self.emitter.end_detour(before);
    }

    /// Counts all counters with the `struct rseq` at offset `registered` from fs, and leaves the
    /// last sequence active. Changes rax.
    pub(crate) fn count_each(&mut self, counters: &[Counted], registered: Reg) {
        for (counter, down) in counters {
            let (start, end, abort) = (self.emitter.label(), self.emitter.label(), self.emitter.label());
            self.enter_sequence(registered, [start, end, abort]);
            self.emitter.shift32(Shift::Left, RAX, counter.shift);
            self.emitter.step(false, *down, Rm::At(RAX, counter.address as i32));
            self.emitter.bind(end);
            let before = self.emitter.aside(Stream::Cold);
            self.emitter.bytes(&RSEQ_SIGNATURE.to_le_bytes());
            self.emitter.bind(abort);
            self.emitter.step(true, *down, Rm::Absolute(counter.spill));
            self.emitter.jump(end);
            self.emitter.end_detour(before);
        }
    }

    /// Enters a restartable sequence: start (bound here), end, abort target. Then eax holds the
    /// processor's number.
    pub(crate) fn enter_sequence(&mut self, registered: Reg, places: [Label; 3]) {
        let [start, end, abort] = places;
        let (cpu, section) = (Rm::Thread(registered, RSEQ_CPU), Rm::Thread(registered, RSEQ_SECTION));
        let sequence = self.emitter.sequence(start, end, abort);
        self.emitter.descriptor(RAX, sequence);
        self.guard(abort);
        self.emitter.store(section, RAX);
        self.emitter.bind(start);
        self.guard(abort);
        self.emitter.load32(RAX, cpu);
    }

    /// Goes to `none` unless the `struct rseq` has the current processor's number. Changes rax.
    pub(crate) fn runs_there(&mut self, registered: Reg, processor: Option<Reg>, none: Label) {
        match processor {
            Some(processor) => self.emitter.load32(RAX, processor),
            None => self.processor(RAX),
        }
        self.emitter.alu32_number(Alu::And, RAX, PROCESSOR_MASK as i32);
        self.guard(none);
        self.emitter.alu32(Alu::Cmp, RAX, Rm::Thread(registered, RSEQ_CPU));
        self.emitter.jump_if(Condition::NotEqual, none);
    }

    /// Sets `to` to the offset of the thread's `struct rseq` from fs. Goes to `none` unless that is
    /// marked and in no section. The caller must still check the processor's number.
    pub(crate) fn registered(&mut self, to: Reg, none: Label) {
        let rseq = self.environment.identity + offset_of!(Identity, rseq_offset) as u32;
        self.emitter.load(to, Rm::Absolute(rseq));
        self.emitter.test(to);
        self.emitter.jump_if(Condition::Equal, none);
        self.marked(to, none);
        self.guard(none);
        self.emitter.alu_number(Alu::Cmp, Rm::Thread(to, RSEQ_SECTION), 0);
        self.emitter.jump_if(Condition::NotEqual, none);
    }

    /// Goes to `none` unless the tracer's mark is at `offset` from fs.
    pub(crate) fn marked(&mut self, offset: Reg, none: Label) {
        let mark = self.environment.mark;
        self.guard(none);
        self.emitter.alu32_number(Alu::Cmp, Rm::Thread(offset, mark.at), mark.value.cast_signed());
        self.emitter.jump_if(Condition::NotEqual, none);
    }

    /// Sets a register to the processor's number and node, as `rdpid` returns them.
    pub(crate) fn processor(&mut self, to: Reg) {
        if self.environment.rdpid {
            self.emitter.rdpid(to);
        } else {
            // The selector of the kernel's segment for this purpose (__CPUNODE_SEG).
            self.emitter.number(to, 0x7b);
            self.emitter.segment_limit(to, to);
        }
    }
}
