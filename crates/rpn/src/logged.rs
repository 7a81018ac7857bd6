//! What a handler logs, by its instructions: the bytes of a record do not say what they are.
//!
//! Each way through a handler logs a sequence of things; ways that log the same are one sequence.
//! They are computed for each instruction as the sequences that may follow it, until nothing is
//! added. So the work is bounded by [`MAX_FORMS`] and [`MAX_PIECES`], not by the number of ways.

use std::collections::{BTreeSet, HashMap};

use vm::{ControlFlow, Effects, Instruction, Op};

use crate::object::{Object, Probe};

/// Most sequences of a handler, and of each instruction in it.
const MAX_FORMS: usize = 16;
/// Most things in a sequence.
const MAX_PIECES: usize = 64;

/// What an instruction logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Logged {
    /// So many words, without a prefix.
    Words(u16),
    /// Data after a prefix, which says what it is and how long.
    Prefixed,
}

/// What may be logged from an instruction on, and whether the handler then ends (otherwise the
/// procedure returns).
type Sequence = (Vec<Logged>, bool);

impl Object {
    /// The sequences that a run of a probe's handler may log if it ends without an exception, each
    /// once; `None` if they are not known: there are too many (a loop that logs), or an instruction
    /// may log anything or moves the log pointer, or exceptions are handled.
    pub fn logged(&self, probe: &Probe) -> Option<Vec<Vec<Logged>>> {
        let reached = self.reached(probe.entry)?;
        let mut known: HashMap<usize, BTreeSet<Sequence>> = HashMap::new();
        loop {
            let mut changed = false;
            // Backwards: most instructions are followed by later ones.
            for instruction in reached.iter().rev() {
                let sequences = self.from(instruction, &known);
                if sequences.len() > MAX_FORMS
                    || sequences.iter().any(|(pieces, _)| pieces.len() > MAX_PIECES)
                {
                    return None;
                }
                if known.get(&instruction.offset) != Some(&sequences) {
                    known.insert(instruction.offset, sequences);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        let sequences = known.remove(&probe.entry)?;
        let pieces: BTreeSet<Vec<Logged>> = sequences.into_iter().map(|(pieces, _)| pieces).collect();
        Some(pieces.into_iter().collect())
    }

    /// The instructions that may be executed from an offset on, by their offsets; `None` if what
    /// one of them logs, or where it continues, is not known.
    fn reached(&self, entry: usize) -> Option<Vec<Instruction>> {
        let mut reached: HashMap<usize, Instruction> = HashMap::new();
        let mut left = vec![entry];
        while let Some(offset) = left.pop() {
            if reached.contains_key(&offset) {
                continue;
            }
            let instruction = Instruction::at(&self.code, offset, self.word())?;
            let unknown = Effects::CUTS_LOG.and(Effects::CALLS_PLUGINS).and(Effects::USES_FRAME);
            let flow = instruction.row().transfer;
            let has_parts = matches!(instruction.op, Op::LogB | Op::LogW | Op::LogD);
            if has_parts || instruction.effects().intersects(unknown) || flow == ControlFlow::Handler {
                return None;
            }
            reached.insert(offset, instruction);
            left.extend(flow.falls_through().then_some(instruction.next));
            if matches!(flow, ControlFlow::Jump | ControlFlow::Branch | ControlFlow::Call) {
                left.push(instruction.target(&self.code)?);
            }
        }
        let mut reached: Vec<Instruction> = reached.into_values().collect();
        reached.sort_unstable_by_key(|instruction| instruction.offset);
        Some(reached)
    }

    /// The sequences from an instruction on, as far as those of the others are known.
    fn from(
        &self,
        instruction: &Instruction,
        known: &HashMap<usize, BTreeSet<Sequence>>,
    ) -> BTreeSet<Sequence> {
        let none = BTreeSet::new();
        let next = known.get(&instruction.next).unwrap_or(&none);
        let target = instruction.target(&self.code).and_then(|target| known.get(&target)).unwrap_or(&none);
        match instruction.row().transfer {
            // What was logged is dropped.
            ControlFlow::End if instruction.op == Op::Abort => none,
            ControlFlow::End => BTreeSet::from([(Vec::new(), true)]),
            ControlFlow::Return => BTreeSet::from([(Vec::new(), false)]),
            ControlFlow::Jump => target.clone(),
            ControlFlow::Branch => next.union(target).cloned().collect(),
            ControlFlow::Call => {
                let returned = target.iter().flat_map(|(pieces, ends)| match ends {
                    true => vec![(pieces.clone(), true)],
                    false => {
                        next.iter().map(|(after, ends)| ([&pieces[..], after].concat(), *ends)).collect()
                    }
                });
                returned.take(MAX_FORMS * MAX_FORMS).collect()
            }
            ControlFlow::None | ControlFlow::Handler => match logs(instruction) {
                None => next.clone(),
                Some(piece) => {
                    next.iter().map(|(after, ends)| ([&[piece], &after[..]].concat(), *ends)).collect()
                }
            },
        }
    }
}

/// What an instruction logs, if it logs.
fn logs(instruction: &Instruction) -> Option<Logged> {
    match instruction.op {
        Op::LogImm => Some(Logged::Words(instruction.operand as u16)),
        _ => instruction.effects().intersects(Effects::LOGS).then_some(Logged::Prefixed),
    }
}

#[cfg(test)]
mod tests {
    use super::Logged::{Prefixed, Words};
    use super::*;
    use crate::{Options, compile_text};

    fn logged(handler: &str) -> Option<Vec<Vec<Logged>>> {
        let text = format!(
            "name = app vars = 2\nproc twice log 1 push 1 log 1 ret endproc\nproc last push 9 log 1 exit endproc\n\
             offset = f\n{handler}"
        );
        let compiled = compile_text("p.rpn", &text, &Options::default());
        let object = compiled.unwrap_or_else(|failure| panic!("{}", failure.render(false))).object;
        object.logged(&object.probes[0])
    }

    #[test]
    fn each_way_that_logs_differently_is_a_sequence() {
        assert_eq!(logged("inc lv, 0"), Some(vec![vec![]]));
        assert_eq!(logged("push 1 log 1 abort"), Some(vec![]));
        assert_eq!(
            logged("push r, rdi push 2 log 2 push 9 push r, rsi log str exit"),
            Some(vec![vec![Words(2), Prefixed]])
        );
        let branch = "push r, rdi jz none log 1 exit none: push 4 push 5 log mrf push 0 push 2 log lv";
        assert_eq!(logged(branch), Some(vec![vec![Words(1)], vec![Prefixed, Prefixed]]));
        assert_eq!(logged("push 3 call twice log 1"), Some(vec![vec![Words(1), Words(1), Words(1)]]));
        assert_eq!(logged("push 3 call last push 2 log 2"), Some(vec![vec![Words(1)]]));
    }

    #[test]
    fn a_loop_that_logs_has_no_end_and_one_that_does_not_no_effect() {
        assert_eq!(logged("push 3 again: inc lv, 0 loop again push 1 log 1"), Some(vec![vec![Words(1)]]));
        assert_eq!(logged("push 3 again: push 1 log 1 loop again"), None);
    }

    #[test]
    fn what_cannot_be_foreseen_is_not_known() {
        for handler in
            ["push 1 log 1 push 0 pop lp", "callk push 1 log 1", "sx other log 1 exit other: log 2"]
        {
            assert_eq!(logged(handler), None, "{handler}");
        }
    }
}
