//! Exits to a core dump (`exit 3`): a handler asks this process for one, and at a uprobe the thread
//! waits, before it executes the probed instruction, until its process has been asked to stop.
//!
//! ```text
//!     if (!state[probe].dumps) { mark the record; return }   the probe has written as many as it may
//!     if (cmpxchg(dumps.asked, 0, now) != 0) { dumps.refused++; return }
//!     a request into the ring of requests: who, the registers; it wakes the reader
//!     context.busy = 0
//!     wait while dumps.asked == now, for HOLD at most; then cmpxchg(dumps.asked, now, 0)
//! ```
//!
//! The reader answers by [`crate::DumpRequests::take`]: from then on the thread goes on, and stops
//! as soon as it would be in its program again. If nobody answers, it goes on after [`HOLD`]. So a
//! reader that has died costs each probe one such wait for each dump that it may write, and no
//! more.
//!
//! The wait reads a byte of the process again and again, by a helper that lets other threads have
//! the processor, since kernels that preempt no thread in the kernel would not.

use std::time::Duration;

use bpf::{Alu, Atomic, Cond, Helper, Insn, Label, Reg, Size};

use crate::compiler::Compiler;
use crate::dump_requests::{WORDS, request, word};
use crate::emit::{CONTEXT, REGISTERS};
use crate::handler::AttachKind;
use crate::layout::{Map, RECORD, STACK, state};
use crate::{record, registers};

/// How long a thread waits for an answer, at most.
pub(crate) const HOLD: Duration = Duration::from_millis(500);
/// Rounds of the wait: the most that the kernel allows.
const ROUNDS: i32 = 1 << 23;

/// Flag of `bpf_ringbuf_output`.
const FORCE_WAKEUP: i32 = 2;

/// Where the program's frame holds what the wait needs, from its top down.
pub(crate) struct Frame {
    /// Eight bytes that are read into.
    pub(crate) byte: i16,
    /// The address that is read.
    pub(crate) address: i16,
    /// When the wait ends.
    pub(crate) deadline: i16,
    /// When the handler has asked; 0 if it has not.
    pub(crate) asked: i16,
}

impl Frame {
    /// The frame below a place.
    pub(crate) const fn below(place: i16) -> Frame {
        Frame { asked: place - 8, deadline: place - 16, address: place - 24, byte: place - 32 }
    }
}

/// Asks for a dump if the run has ended so. `R8` says how it ended, which stays. `cookie` and
/// `state` are places of the program's frame.
pub(crate) fn ask(c: &mut Compiler<'_>, frame: &Frame, cookie: i16, state: i16) {
    let (done, over) = (c.e.asm.label(), c.e.asm.label());
    let (busy, failed) = (c.e.asm.label(), c.e.asm.label());
    c.e.store_imm(Size::Double, Reg::R10, frame.asked, 0);
    c.e.jump_if(Cond::Ne, Reg::R8, record::end::EXIT_TO, done);
    c.e.load(Size::Word, Reg::R1, CONTEXT, RECORD + record::FACILITY);
    c.e.jump_if(Cond::Ne, Reg::R1, record::CORE_DUMP as i32, done);
    c.e.load(Size::Double, Reg::R1, Reg::R10, state);
    c.e.load(Size::Double, Reg::R1, Reg::R1, state::DUMPS as i16);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, over);
    c.e.call(Helper::KTIME_GET_BOOT_NS);
    c.e.mov(Reg::R9, Reg::R0);
    c.e.map_value(Reg::R1, Map::Dumps, 0);
    c.e.mov(Reg::R0, 0);
    let asked = word::ASKED as i16;
    c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R1, asked, Reg::R9));
    c.e.jump_if(Cond::Ne, Reg::R0, 0, busy);
    // The run is over, so its stack is free.
    c.e.store(Size::Double, CONTEXT, STACK + request::TIME, Reg::R9);
    c.e.load(Size::Double, Reg::R1, Reg::R10, cookie);
    c.e.store(Size::Double, CONTEXT, STACK + request::COOKIE, Reg::R1);
    c.e.call(Helper::GET_CURRENT_PID_TGID);
    c.e.store(Size::Double, CONTEXT, STACK + request::PID_TGID, Reg::R0);
    c.e.load(Size::Double, Reg::R1, CONTEXT, RECORD + record::MAJOR);
    c.e.store(Size::Double, CONTEXT, STACK + request::CODES, Reg::R1);
    for word in 0..WORDS as i16 {
        c.e.load(Size::Double, Reg::R1, REGISTERS, 8 * word);
        c.e.store(Size::Double, CONTEXT, STACK + request::REGISTERS + 8 * word, Reg::R1);
    }
    c.e.asm.load_map(Reg::R1, Map::Requests as u32);
    c.e.part(Reg::R2, i32::from(STACK));
    c.e.mov(Reg::R3, request::SIZE);
    c.e.mov(Reg::R4, FORCE_WAKEUP);
    c.e.call(Helper::RINGBUF_OUTPUT);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, failed);
    c.e.store(Size::Double, Reg::R10, frame.asked, Reg::R9);
    c.e.asm.jump(done);
    c.e.asm.bind(over);
    let facility = record::CORE_DUMP | record::OVER_LIMIT;
    c.e.store_imm(Size::Word, CONTEXT, RECORD + record::FACILITY, facility as i32);
    c.e.asm.jump(done);
    c.e.asm.bind(failed);
    c.e.map_value(Reg::R1, Map::Dumps, 0);
    c.e.store_imm(Size::Double, Reg::R1, asked, 0);
    c.e.asm.bind(busy);
    c.e.map_value(Reg::R1, Map::Dumps, 0);
    c.e.mov(Reg::R2, 1);
    let refused = word::REFUSED as i16;
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R1, refused, Reg::R2));
    c.e.asm.bind(done);
}

/// Waits for the answer, at a uprobe. The context is free already. Returns the label of the
/// function that is called in each round.
pub(crate) fn wait(c: &mut Compiler<'_>, frame: &Frame) -> Option<Label> {
    if c.target.place != AttachKind::Uprobe {
        return None;
    }
    let (done, round) = (c.e.asm.label(), c.e.asm.label());
    c.e.load(Size::Double, Reg::R1, Reg::R10, frame.asked);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, done);
    c.e.asm.load_imm(Reg::R2, HOLD.as_nanos() as u64);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.store(Size::Double, Reg::R10, frame.deadline, Reg::R1);
    c.e.load(Size::Double, Reg::R1, REGISTERS, registers::IP);
    c.e.store(Size::Double, Reg::R10, frame.address, Reg::R1);
    c.e.store_imm(Size::Double, Reg::R10, frame.byte, 0);
    c.e.mov(Reg::R1, ROUNDS);
    c.e.asm.load_function(Reg::R2, round);
    c.e.mov(Reg::R3, Reg::R10);
    c.e.alu(Alu::Add, Reg::R3, i32::from(frame.byte));
    c.e.mov(Reg::R4, 0);
    c.e.call(Helper::LOOP);
    c.e.map_value(Reg::R1, Map::Dumps, 0);
    c.e.load(Size::Double, Reg::R0, Reg::R10, frame.asked);
    c.e.mov(Reg::R2, 0);
    let asked = word::ASKED as i16;
    c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R1, asked, Reg::R2));
    c.e.asm.bind(done);
    // The code reads memory of the process.
    c.e.reads = true;
    Some(round)
}

/// Emits the function of a round: `round(number, frame)`, which returns whether the wait is over.
pub(crate) fn round(c: &mut Compiler<'_>, label: Label, frame: &Frame) {
    let at = |place: i16| place - frame.byte;
    let over = c.e.asm.label();
    c.e.asm.function(label);
    c.e.mov(CONTEXT, Reg::R2);
    c.e.map_value(Reg::R1, Map::Dumps, 0);
    c.e.load(Size::Double, Reg::R1, Reg::R1, word::ASKED as i16);
    c.e.load(Size::Double, Reg::R2, CONTEXT, at(frame.asked));
    c.e.asm.jump_if64(Cond::Ne, Reg::R1, Reg::R2, over);
    c.e.call(Helper::KTIME_GET_BOOT_NS);
    c.e.load(Size::Double, Reg::R1, CONTEXT, at(frame.deadline));
    c.e.asm.jump_if64(Cond::Ge, Reg::R0, Reg::R1, over);
    if c.target.sleepable {
        c.e.call(Helper::GET_CURRENT_TASK_BTF);
        c.e.mov(Reg::R4, Reg::R0);
        c.e.mov(Reg::R1, CONTEXT);
        c.e.mov(Reg::R2, 1);
        c.e.load(Size::Double, Reg::R3, CONTEXT, at(frame.address));
        c.e.mov(Reg::R5, 0);
        c.e.call(Helper::COPY_FROM_USER_TASK);
    }
    c.e.end_step();
    c.e.asm.bind(over);
    c.e.mov(Reg::R0, 1);
    c.e.asm.exit();
}
