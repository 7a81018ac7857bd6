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

use crate::count::Counted;
use crate::emit::Stream;
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm, Shift, shifted};
use crate::owner::of_context;
use crate::ring::RecordBeginner;

/// The bit that means TAKEN in the word of a context's holder and claim.
const TAKEN: u8 = 33;
const _: () = assert!(offset_of!(Context, holder) == 0 && offset_of!(Context, claim) == 4);
const _: () = assert!((claim::TAKEN as u64) << 32 == 1 << TAKEN);

impl RecordBeginner<'_, '_> {
    /// Counts all counters, on `last` while claiming a context, and begins the record. Changes rax,
    /// rdx and `processor`.
    pub(crate) fn count_and_begin(self, first: &[Counted], last: Counted, processor: Reg) {
        let (context, registered) = (self.claimed.context, self.claimed.record);
        [context, registered, RAX].into_iter().for_each(|register| self.out.frame.change(register));
        let (counter, down) = last;
        let section = Rm::Thread(registered, RSEQ_SECTION);
        let [none, busy, signed, shared, other] = [(); 5].map(|()| self.out.emitter.label());
        let [start, end, abort] = [(); 3].map(|()| self.out.emitter.label());
        self.out.processor(processor);
        self.out.registered(registered, none);
        self.out.runs_there(registered, Some(processor), none);
        let tid = Rm::Absolute(self.out.environment.identity + offset_of!(Identity, tid_offset) as u32);
        self.out.emitter.load(RDX, tid);
        self.out.emitter.test(RDX);
        self.out.emitter.jump_if(Condition::Equal, none);
        self.out.guard(none);
        self.out.emitter.load32(RDX, Rm::Thread(RDX, 0));
        self.out.emitter.set_bit(RDX, TAKEN);
        self.out.count_each(first, registered);
        self.out.emitter.number(context, 0);
        self.out.enter_sequence(registered, [start, end, abort]);
        self.out.emitter.alu32_number(Alu::Cmp, RAX, self.out.environment.own_contexts as i32);
        self.out.emitter.jump_if(Condition::AboveOrEqual, busy);
        self.out.emitter.load32(processor, RAX);
        self.out.emitter.shift32(Shift::Left, RAX, CONTEXT_SIZE.trailing_zeros() as u8);
        let own = Rm::At(RAX, self.out.environment.contexts as i32);
        let state = shifted(own, offset_of!(Context, claim) as i32);
        self.out.emitter.alu32_number(Alu::Cmp, state, claim::FREE as i32);
        self.out.emitter.jump_if(Condition::NotEqual, busy);
        self.out.emitter.address(context, own);
        self.out.emitter.store(of_context(context, offset_of!(Context, holder)), RDX);
        self.out.emitter.load32(RAX, processor);
        self.out.emitter.shift32(Shift::Left, RAX, counter.shift);
        self.out.emitter.step(false, down, Rm::At(RAX, counter.address as i32));
        self.out.emitter.bind(end);
        self.out.guard(signed);
        self.out.emitter.store_number(section, 0);
        let aside = self.out.emitter.aside(Stream::Cold);
        let (lost, over) = (self.out.emitter.label(), self.out.emitter.label());
        self.out.emitter.bytes(&RSEQ_SIGNATURE.to_le_bytes());
        self.out.emitter.bind(abort);
        self.out.emitter.test(context);
        self.out.emitter.jump_if(Condition::Equal, lost);
        self.out.emitter.alu(Alu::Cmp, RDX, of_context(context, offset_of!(Context, holder)));
        self.out.emitter.jump_if(Condition::NotEqual, lost);
        self.out.emitter.step(true, down, Rm::Absolute(counter.spill));
        self.out.emitter.jump(end);
        self.out.emitter.bind(busy);
        self.out.guard(over);
        self.out.emitter.store_number(section, 0);
        self.out.emitter.bind(over);
        self.out.emitter.bind(lost);
        self.out.emitter.step(true, down, Rm::Absolute(counter.spill));
        self.out.emitter.jump(shared);
        self.out.emitter.bind(none);
        for (counter, down) in first.iter().chain([&last]) {
            self.out.emitter.step(true, *down, Rm::Absolute(counter.spill));
        }
        self.out.emitter.bind(shared);
        self.out.claim_shared(processor, context, other);
        let discard = self.out.discard;
        self.out.emitter.jump(discard);
        self.out.emitter.bind(other);
        self.out.set_holder(context, None);
        self.out.emitter.jump(signed);
        self.out.emitter.end_detour(aside);
        self.out.emitter.bind(signed);
        self.out.set_site(context);
        // Clears TAKEN: only the thread id remains.
        self.out.emitter.load32(RDX, RDX);
        self.begin(processor);
    }
}
