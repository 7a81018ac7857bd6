//! The beginning of a handler: counts the hit and the handler's leading counters.

use vm::{Effects, Instruction, Op};

use crate::compiler::Compiler;
use crate::count::{Counted, counted};
use crate::operands::{Alu, Condition, RDX, Rm};
use crate::run::Mode;
use crate::scan::instruction_at;

impl Compiler<'_> {
    /// Counts the hit and the handler's leading counters. Returns the offset of the next
    /// instruction.
    pub(crate) fn count_hit(&mut self) -> usize {
        let mut counters = Vec::with_capacity(4);
        let environment = self.run.path.out.environment;
        let scratch = self.run.path.pool[0];
        let out = &mut self.run.path.out;
        if self.run.facts.removes || environment.limits.is_some() || environment.removable {
            out.emitter.alu32_number(Alu::Cmp, Rm::Absolute(environment.over), 0);
            out.emitter.jump_if(Condition::NotEqual, out.discard);
        }
        match environment.limits {
            Some(limits) => out.count_limited(limits, scratch),
            None => counters.push((environment.hits, false)),
        }
        let mut offset = self.run.handler.entry;
        if self.run.mode != Mode::Interpreted {
            while let Some(instruction) = instruction_at(self.run.handler.code, offset)
                && !self.run.facts.targets.contains(&offset)
            {
                match counted(self.run.handler, environment, &instruction) {
                    Some(counter) => counters.push(counter),
                    None if instruction.op == Op::Nop => {}
                    None => break,
                }
                offset = instruction.next;
            }
        }
        if let Some((last, first)) = counters.split_last()
            && self.records
            && self.surely_records(offset)
        {
            self.count_and_begin(first, *last);
        } else if self.claims {
            // Until the record is begun, its register holds the processor's number, and the
            // context's holds the thread's rseq offset.
            let (context, record) = (self.run.claimed.context, self.run.claimed.record);
            let out = &mut self.run.path.out;
            out.frame.change(record);
            out.processor(record);
            self.run.keeps_registered = !counters.is_empty();
            out.count(&counters, context, Some(record));
        } else {
            self.run.path.out.count(&counters, scratch, None);
        }
        offset
    }

    /// Counts all counters, on `last` while claiming a context, and begins the record.
    fn count_and_begin(&mut self, first: &[Counted], last: Counted) {
        self.run.path.shape.claimed = true;
        self.run.claims = true;
        self.run.path.take_register(RDX);
        let processor = self.run.path.take();
        self.run.record_beginner().count_and_begin(first, last, processor);
        self.run.path.unlock(processor);
        self.run.path.unlock(RDX);
    }

    /// Whether a run at this offset goes straight to an instruction that logs or ends with a
    /// record, over instructions that only fetch and compute.
    fn surely_records(&self, offset: usize) -> bool {
        let at = |offset: usize| instruction_at(self.run.handler.code, offset);
        let first = |instruction: &Instruction| !is_plain(instruction.op);
        let mut instructions = std::iter::successors(at(offset), |instruction| at(instruction.next));
        instructions
            .find(first)
            .is_some_and(|end| end.op == Op::Exit || end.effects().contains(Effects::LOGS))
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
            | Op::PushTid
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
