//! Probes that handlers have ended: by `remove`, or by their last run.

use std::sync::atomic::Ordering;

use vm::Op;

use super::compile::has_limits;
use crate::program::{Counted, Program, State, TURNS};
use crate::site::Use;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Takes the probes out that handlers in the processes have ended.
    pub(crate) fn look_for_over(&mut self) {
        let programs = &self.programs;
        let over = |&(program, probe): &(usize, usize)| {
            let counted = programs[program].probes[probe].counted.as_ref();
            counted.is_some_and(Counted::is_over)
        };
        let ended: Vec<(usize, usize)> = self.mortal.extract_if(.., |probe| over(probe)).collect();
        ended.iter().for_each(|&(program, probe)| self.note_over(program, probe));
        self.retire(&ended.into_iter().map(|(program, probe)| Use::Probe { program, probe }).collect());
    }

    /// Notes why a probe is over.
    fn note_over(&mut self, program: usize, probe: usize) {
        let program = &mut self.programs[program];
        let definition = &program.versions.main().probes[probe];
        let last = definition.ignore.saturating_add(definition.maxhits);
        let probe = &mut program.probes[probe];
        if probe.state.is_over() {
            return;
        }
        let turns = probe.counted.as_ref().map_or(0, |counted| counted.words[TURNS].load(Ordering::Relaxed));
        if probe.counted.as_ref().is_some_and(Counted::is_removed_by_handler) {
            probe.state = State::Removed;
        } else if has_limits(definition) && turns >= last {
            probe.state = State::Disabled;
        }
    }
}

/// Whether a probe's handler can end it.
pub(crate) fn is_mortal(program: &Program, probe: usize) -> bool {
    has_limits(&program.versions.main().probes[probe]) || program.removes
}

/// Whether a program's code has one of these instructions, as far as it can be read.
pub(crate) fn has(code: &[u8], word: usize, wanted: &[Op]) -> bool {
    let mut rest = code;
    while let Some((&opcode, operands)) = rest.split_first() {
        let Some(op) = Op::from_byte(opcode) else { return true };
        let size = op.row().operand.size(word);
        match operands.get(size..) {
            Some(next) if !wanted.contains(&op) => rest = next,
            _ => return true,
        }
    }
    false
}
