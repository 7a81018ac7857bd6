//! Claiming a context.
//!
//! A processor's own context is claimed without a locked instruction, which would wait for the last
//! record to be written out: only threads on that processor claim it, each in a restartable
//! sequence, and context switches separate them. If it is taken (its thread was preempted in a
//! handler), or the thread has no restartable sequences, a shared context is claimed by an
//! exchange.
//!
//! ```text
//!             mov   %context, %rdx ; test %rdx, %rdx ; je shared      what counting has found, if it has
//!             cmpl  $mark, %fs:28(%rdx) ; jne shared
//!             lea   descriptor(%rip), %rax ; mov %rax, %fs:8(%rdx)
//!     start:  mov   %fs:4(%rdx), %eax
//!             cmp   $own, %eax ; jae clear
//!             shl   $18, %eax ; lea contexts(%rax), %context
//!             cmpl  $FREE, (%context) ; jne clear
//!             movl  $TAKEN, (%context)
//!     end:    movq  $0, %fs:8(%rdx)
//!     mine:
//!
//!     clear:  movq  $0, %fs:8(%rdx) ; jmp shared
//!             .long 0x53053053
//!     shared: context = a shared one
//!     again:  cmpl  $FREE, (%context) ; jb miss ; jne next
//!             mov   $TAKEN, %eax ; xchg %eax, (%context) ; cmp $FREE, %eax ; je mine
//!     next:   pause ; the next shared one ; 2^20 times: jmp again
//!     miss:   counted
//! ```
//!
//! In a forked child that has no rings yet all contexts are UNUSABLE, which is less than FREE: its
//! hits are missed.
//!
//! In lossless mode a thread waits for a context as for room in a ring; tries are limited only
//! after the reader has ended. It does not sleep, which would need a system call, but sets
//! [`Identity::no_free_context`]. While the tracer itself waits for a thread of the process, no
//! thread waits.

use crate::emit::{Label, Stream};
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm, Shift};
use crate::output::Output;
use crate::owner::of_context;
use core::mem::offset_of;
use layout::{
    ABANDONED, CONTEXT_SIZE, Context, Identity, PROCESSOR_MASK, RSEQ_SECTION, RSEQ_SIGNATURE,
    claim::{FREE, TAKEN},
};

/// How often to try shared contexts before a hit is missed. A context is released within
/// microseconds unless its thread is preempted, so this is a long time.
const TRIES: u32 = 1 << 20;

impl Output<'_> {
    /// Claims the context of the processor in `processor`, or a shared one and goes to `other`.
    /// Changes rax and rdx. If there is none, the hit is missed. `keeps_registered`: whether
    /// `context` holds the result of counting the hit.
    pub(crate) fn claim_own(&mut self, processor: Reg, context: Reg, keeps_registered: bool, other: Label) {
        let (mine, shared, clear) = (self.emitter.label(), self.emitter.label(), self.emitter.label());
        let claim = of_context(context, offset_of!(Context, claim));
        let section = Rm::Thread(RDX, RSEQ_SECTION);
        if keeps_registered {
            // It was in no section when it counted; any signal handler's section since then has
            // ended.
            self.emitter.load(RDX, context);
            self.emitter.test(RDX);
            self.emitter.jump_if(Condition::Equal, shared);
            self.marked(RDX, shared);
        } else {
            self.registered(RDX, shared);
            self.runs_there(RDX, Some(processor), shared);
        }
        let (start, end) = (self.emitter.label(), self.emitter.label());
        self.enter_sequence(RDX, [start, end, shared]);
        self.emitter.alu32_number(Alu::Cmp, RAX, self.environment.own_contexts as i32);
        self.emitter.jump_if(Condition::AboveOrEqual, clear);
        self.emitter.shift32(Shift::Left, RAX, CONTEXT_SIZE.trailing_zeros() as u8);
        self.emitter.address(context, Rm::At(RAX, self.environment.contexts as i32));
        self.emitter.alu32_number(Alu::Cmp, claim, FREE as i32);
        self.emitter.jump_if(Condition::NotEqual, clear);
        self.emitter.store32_number(claim, TAKEN);
        self.emitter.bind(end);
        self.guard(mine);
        self.emitter.store_number(section, 0);
        self.emitter.bind(mine);
        let aside = self.emitter.aside(Stream::Cold);
        let over = self.emitter.label();
        self.emitter.bind(clear);
        self.guard(over);
        self.emitter.store_number(section, 0);
        self.emitter.jump(over);
        self.emitter.bytes(&RSEQ_SIGNATURE.to_le_bytes());
        self.emitter.bind(shared);
        self.emitter.bind(over);
        self.claim_shared(processor, context, other);
        let discard = self.discard;
        self.emitter.jump(discard);
        self.emitter.end_detour(aside);
    }

    /// Claims a shared context and goes to `mine`; after many tries counts the hit as missed and
    /// falls through. Changes rax and rdx; `processor` may be rdx.
    pub(crate) fn claim_shared(&mut self, processor: Reg, context: Reg, mine: Label) {
        let environment = self.environment;
        let first = u64::from(environment.contexts) + CONTEXT_SIZE * u64::from(environment.own_contexts);
        let end = first + CONTEXT_SIZE * u64::from(environment.shared_contexts);
        let claim = of_context(context, offset_of!(Context, claim));
        let last = environment.shared_contexts.saturating_sub(1) & PROCESSOR_MASK;
        self.emitter.load32(RAX, processor);
        self.emitter.alu32_number(Alu::And, RAX, last as i32);
        self.emitter.shift32(Shift::Left, RAX, CONTEXT_SIZE.trailing_zeros() as u8);
        self.emitter.address(context, Rm::At(RAX, first as i32));
        self.emitter.number(RDX, TRIES.into());
        let again = self.emitter.here_label();
        let (next, inside, miss) = (self.emitter.label(), self.emitter.label(), self.emitter.label());
        self.emitter.alu32_number(Alu::Cmp, claim, FREE as i32);
        self.emitter.jump_if(Condition::Below, miss);
        self.emitter.jump_if(Condition::NotEqual, next);
        self.emitter.number(RAX, TAKEN.into());
        self.emitter.exchange32(RAX, claim);
        self.emitter.alu32_number(Alu::Cmp, RAX, FREE as i32);
        self.emitter.jump_if(Condition::Equal, mine);
        self.emitter.bind(next);
        self.emitter.pause();
        self.emitter.alu_number(Alu::Add, context, CONTEXT_SIZE as i32);
        self.emitter.number(RAX, end);
        self.emitter.alu(Alu::Cmp, context, RAX);
        self.emitter.jump_if(Condition::Below, inside);
        self.emitter.number(context, first);
        if let Some(waiting) = environment.lossless {
            let gives_up = environment.identity + offset_of!(Identity, must_not_wait) as u32;
            self.emitter.alu32_number(Alu::Cmp, Rm::Absolute(gives_up), 0);
            self.emitter.jump_if(Condition::NotEqual, miss);
            self.emitter.number(RAX, ABANDONED);
            // If the program has unmapped the reader's sign of life, it must not wait for it.
            self.guard(miss);
            self.emitter.alu(Alu::Cmp, RAX, Rm::Absolute(waiting.reader));
            self.emitter.jump_if(Condition::Equal, inside);
            self.emitter.number(RDX, TRIES.into());
            let crowded = Rm::Absolute(environment.identity + offset_of!(Identity, no_free_context) as u32);
            self.emitter.alu32_number(Alu::Cmp, crowded, 0);
            self.emitter.jump_if(Condition::NotEqual, inside);
            self.emitter.store32_number(crowded, 1);
        }
        self.emitter.bind(inside);
        self.emitter.alu32_number(Alu::Sub, RDX, 1);
        self.emitter.jump_if(Condition::NotEqual, again);
        self.emitter.bind(miss);
        let missed = Rm::Absolute(environment.missed);
        self.emitter.step(true, false, missed);
    }
}
