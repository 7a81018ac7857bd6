//! The time in nanoseconds, as [`layout::ClockWords`] computes it from the time stamp counter.
//!
//! ```text
//!             rdtsc ; shl $32, %rdx ; or %rdx, %rax
//!             mov   version, %to ; test $1, %to ; jne leave
//!             sub   counter, %rax ; jb early
//!     later:  mulq  rate ; shrd $32, %rdx, %rax ; add monotonic, %rax
//!             cmp   version, %to ; jne leave
//!
//!     early:  mov   $0, %eax ; jmp later
//! ```
//!
//! While the tracer sets the clock, the interpreter computes the time.

use core::mem::{offset_of, size_of};

use layout::Clock;

use crate::emit::{Label, Stream};
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm, Shift};
use crate::output::Output;

impl Output<'_> {
    /// Whether there is a clock.
    pub(crate) fn has_clock(&self) -> bool {
        self.environment.tables as usize >= size_of::<Clock>()
    }

    /// Sets a register to the time by a clock, or goes to `leave`. Changes rax and rdx.
    pub(crate) fn nanoseconds(&mut self, clock: vm::Clock, to: Reg, leave: Label) {
        // It is right before the words of the maps.
        let start = self.environment.tables - size_of::<Clock>() as u32;
        let word = |offset: usize| Rm::Absolute(start + offset as u32);
        let version = word(offset_of!(Clock, version));
        let [early, later] = [(); 2].map(|()| self.emitter.label());
        self.with_rax();
        self.time();
        self.emitter.shift(Shift::Left, RDX, 32);
        self.emitter.alu(Alu::Or, RAX, RDX);
        self.emitter.load(to, version);
        self.emitter.test32_number(to, 1);
        self.emitter.jump_if(Condition::NotEqual, leave);
        self.emitter.alu(Alu::Sub, RAX, word(offset_of!(Clock, counter)));
        self.emitter.jump_if(Condition::Below, early);
        self.emitter.bind(later);
        self.emitter.multiply_wide(word(offset_of!(Clock, rate)));
        self.emitter.shift_in(RAX, RDX, 32);
        self.emitter.alu(Alu::Add, RAX, word(offset_of!(Clock, monotonic)));
        self.emitter.alu(Alu::Cmp, to, version);
        self.emitter.jump_if(Condition::NotEqual, leave);
        let stream = self.emitter.aside(Stream::Cold);
        self.emitter.bind(early);
        self.emitter.number(RAX, 0);
        self.emitter.jump(later);
        self.emitter.end_detour(stream);
        match clock {
            vm::Clock::Monotonic => {}
            vm::Clock::Elapsed => {
                let counted = self.emitter.label();
                self.emitter.alu(Alu::Sub, RAX, word(offset_of!(Clock, start)));
                self.emitter.jump_if(Condition::AboveOrEqual, counted);
                self.emitter.number(RAX, 0);
                self.emitter.bind(counted);
            }
            vm::Clock::Boot => self.emitter.alu(Alu::Add, RAX, word(offset_of!(Clock, boot))),
            vm::Clock::Real => self.emitter.alu(Alu::Add, RAX, word(offset_of!(Clock, real))),
        }
        self.emitter.load(to, RAX);
    }
}
