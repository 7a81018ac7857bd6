//! Executions: ways to run a case's program.

use super::TestMachine;
use vm::{Outcome, Program, State, run};

/// A way to run programs. All must produce the same results, bit for bit.
pub trait Execution {
    /// Runs the handler at `entry` in the program's code for one hit on `machine`. Popped
    /// registers, stores and port writes must be in `machine` afterwards, changes of variables in
    /// those of `program`.
    ///
    /// `machine` also checks its use (see [`TestMachine`]). An execution that does not use
    /// [`vm::Machine`] takes registers and memory from the fields and writes changes back.
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran;
}

/// The results of a run, besides variables and machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// How it ended, and the codes it set.
    pub outcome: Outcome,
    /// The elements pushed and not popped, top first; [`State::depth`] of them.
    pub stack: Vec<u64>,
    /// The log; empty if it ended with [`vm::End::Abort`].
    pub log: Vec<u8>,
    /// The stack traces, in the layout of [`State::trace`]; empty likewise.
    pub trace: Vec<u8>,
}

impl Ran {
    /// The results of a run in `state`.
    pub fn of(outcome: Outcome, state: &State) -> Ran {
        Ran {
            outcome,
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
        }
    }
}

/// The interpreter, with a state that is reused by later runs.
#[derive(Debug, Default)]
pub struct Interpreter {
    /// The state.
    pub state: Box<State>,
}

impl Interpreter {
    /// An interpreter with an unused state.
    pub fn new() -> Interpreter {
        Interpreter::default()
    }
}

impl Execution for Interpreter {
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran {
        let outcome = run(program, entry, &mut self.state, machine);
        Ran::of(outcome, &self.state)
    }
}
