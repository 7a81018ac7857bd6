//! Counts a hit and claims its context in one restartable sequence, for handlers that always make a
//! record.
//!
//! The claim stores the context's state and holder at once; the count ends the sequence. If it is
//! interrupted between the two, the context belongs to the thread if the sequence had found it free
//! and it names the thread: thread ids are unique, and a signal handler that runs meanwhile returns
//! what it claims.
//!
//! ```text
//!             %t, %processor as in `count` ; otherwise none
//!             mov   tid_offset, %rdx ; test %rdx, %rdx ; je none
//!             mov   %fs:(%rdx), %edx ; bts $33, %rdx               the thread, and TAKEN
//!             xor   %context, %context
//!             lea   descriptor(%rip), %rax ; mov %rax, %fs:8(%t)
//!     start:  mov   %fs:4(%t), %eax ; cmp $own, %eax ; jae busy
//!             mov   %eax, %processor
//!             shl   $18, %eax ; cmpl $FREE, contexts+4(%rax) ; jne busy
//!             lea   contexts(%rax), %context
//!             mov   %rdx, (%context)
//!             mov   %processor, %eax ; shl $shift, %eax ; incq counter(%rax)
//!     end:    movq  $0, %fs:8(%t)
//!     signed: site, then the record
//!
//!     cold:   .long 0x53053053
//!     abort:  test  %context, %context ; je lost
//!             cmp   %rdx, (%context) ; jne lost
//!             lock incq spill ; jmp end
//!     busy:   movq  $0, %fs:8(%t)
//!     lost:   lock incq spill ; jmp shared
//!     none:   lock incq spill ...
//!     shared: as in `claim` ; jmp signed
//! ```

use core::mem::offset_of;

use layout::{CONTEXT_SIZE, Context, Identity, RSEQ_SECTION, RSEQ_SIGNATURE, claim};
use vm::{Effects, Instruction, Op};

use crate::compiler::Compiler;
use crate::count::Counted;
use crate::emit::Stream;
use crate::operands::{Alu, Condition, RAX, RDX, Rm, Shift, shifted};
use crate::owner::of_context;
use crate::scan::instruction_at;

/// The bit that means TAKEN in the word of a context's holder and claim.
const TAKEN: u8 = 33;
const _: () = assert!(offset_of!(Context, holder) == 0 && offset_of!(Context, claim) == 4);
const _: () = assert!((claim::TAKEN as u64) << 32 == 1 << TAKEN);

impl Compiler<'_> {
    /// Whether a run at this offset goes straight to an instruction that logs or ends with a
    /// record, over instructions that only fetch and compute.
    pub(crate) fn surely_records(&self, offset: usize) -> bool {
        let at = |offset: usize| instruction_at(self.handler.code, offset);
        let first = |instruction: &Instruction| !is_plain(instruction.op);
        let mut instructions = std::iter::successors(at(offset), |instruction| at(instruction.next));
        instructions
            .find(first)
            .is_some_and(|end| end.op == Op::Exit || end.effects().contains(Effects::LOGS))
    }

    /// Counts all counters, on `last` while claiming a context, and begins the record.
    pub(crate) fn count_and_begin(&mut self, first: &[Counted], last: Counted) {
        self.shape.claimed = true;
        self.claims = true;
        self.take_register(RDX);
        let processor = self.take();
        let (context, registered) = (self.context, self.record);
        [context, registered, RAX].into_iter().for_each(|register| self.frame.change(register));
        let (counter, down) = last;
        let section = Rm::Thread(registered, RSEQ_SECTION);
        let [none, busy, signed, shared, other] = [(); 5].map(|()| self.emitter.label());
        let [start, end, abort] = [(); 3].map(|()| self.emitter.label());
        self.processor(processor);
        self.registered(registered, none);
        self.runs_there(registered, Some(processor), none);
        let tid = Rm::Absolute(self.environment.identity + offset_of!(Identity, tid_offset) as u32);
        self.emitter.load(RDX, tid);
        self.emitter.test(RDX);
        self.emitter.jump_if(Condition::Equal, none);
        self.guard(none);
        self.emitter.load32(RDX, Rm::Thread(RDX, 0));
        self.emitter.set_bit(RDX, TAKEN);
        self.count_each(first, registered);
        self.emitter.number(context, 0);
        self.enter_sequence(registered, [start, end, abort]);
        self.emitter.alu32_number(Alu::Cmp, RAX, self.environment.own_contexts as i32);
        self.emitter.jump_if(Condition::AboveOrEqual, busy);
        self.emitter.load32(processor, RAX);
        self.emitter.shift32(Shift::Left, RAX, CONTEXT_SIZE.trailing_zeros() as u8);
        let own = Rm::At(RAX, self.environment.contexts as i32);
        let state = shifted(own, offset_of!(Context, claim) as i32);
        self.emitter.alu32_number(Alu::Cmp, state, claim::FREE as i32);
        self.emitter.jump_if(Condition::NotEqual, busy);
        self.emitter.address(context, own);
        self.emitter.store(of_context(context, offset_of!(Context, holder)), RDX);
        self.emitter.load32(RAX, processor);
        self.emitter.shift32(Shift::Left, RAX, counter.shift);
        self.emitter.step(false, down, Rm::At(RAX, counter.address as i32));
        self.emitter.bind(end);
        self.guard(signed);
        self.emitter.store_number(section, 0);
        let aside = self.emitter.aside(Stream::Cold);
        let (lost, over) = (self.emitter.label(), self.emitter.label());
        self.emitter.bytes(&RSEQ_SIGNATURE.to_le_bytes());
        self.emitter.bind(abort);
        self.emitter.test(context);
        self.emitter.jump_if(Condition::Equal, lost);
        self.emitter.alu(Alu::Cmp, RDX, of_context(context, offset_of!(Context, holder)));
        self.emitter.jump_if(Condition::NotEqual, lost);
        self.emitter.step(true, down, Rm::Absolute(counter.spill));
        self.emitter.jump(end);
        self.emitter.bind(busy);
        self.guard(over);
        self.emitter.store_number(section, 0);
        self.emitter.bind(over);
        self.emitter.bind(lost);
        self.emitter.step(true, down, Rm::Absolute(counter.spill));
        self.emitter.jump(shared);
        self.emitter.bind(none);
        for (counter, down) in first.iter().chain([&last]) {
            self.emitter.step(true, *down, Rm::Absolute(counter.spill));
        }
        self.emitter.bind(shared);
        self.claim_shared(processor, context, other);
        let discard = self.discard;
        self.emitter.jump(discard);
        self.emitter.bind(other);
        self.set_holder(context, None);
        self.emitter.jump(signed);
        self.emitter.back(aside);
        self.emitter.bind(signed);
        self.set_site(context);
        // Clears TAKEN: only the thread id remains.
        self.emitter.load32(RDX, RDX);
        self.begin_in_ring(processor);
        self.unlock(processor);
        self.unlock(RDX);
    }
}

/// Whether an instruction is always compiled, and neither ends a run nor branches.
fn is_plain(op: Op) -> bool {
    matches!(
        op,
        Op::Nop
            | Op::Push
            | Op::PushR
            | Op::PushLvImm
            | Op::PushGvImm
            | Op::PushPid
            | Op::PushProcid
            | Op::PushMem8
            | Op::PushMem16
            | Op::PushMem32
            | Op::PushMem64
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::Neg
            | Op::ShlImm
            | Op::ShrImm
            | Op::Xchg
            | Op::SetMajImm
            | Op::SetMinImm
    )
}
