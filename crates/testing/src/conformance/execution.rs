//! What runs a case's program.

use super::TestMachine;
use vm::{Outcome, Program, State, run};

/// A way of running programs. Every one must come to the same result, bit for bit.
pub trait Execution {
    /// Runs the handler that begins at `entry` in the program's code for one hit, on `machine`: what the program
    /// pops into registers, stores and writes to ports must be in `machine` afterwards, what it does to variables in
    /// those of `program`.
    ///
    /// `machine` also checks how it is used (see [`TestMachine`]). A way that does not go through [`vm::Machine`]
    /// takes its registers and memory from the fields and puts back what changed.
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran;
}

/// What a run leaves besides the variables and the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// How it ended, and the codes that it set.
    pub outcome: Outcome,
    /// The elements pushed and not popped, top first: as many as [`State::depth`] says.
    pub stack: Vec<u64>,
    /// The log; empty if it ended with [`vm::End::Abort`].
    pub log: Vec<u8>,
    /// The stack traces, in the layout of [`State::trace`]; likewise.
    pub trace: Vec<u8>,
}

impl Ran {
    /// What a run left in `state`.
    pub fn of(outcome: Outcome, state: &State) -> Ran {
        Ran {
            outcome,
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
        }
    }
}

/// The interpreter, with a state that passes from one run to the next.
#[derive(Debug, Default)]
pub struct Interpreter {
    /// That state.
    pub state: Box<State>,
}

impl Interpreter {
    /// An interpreter with a state that no run has used yet.
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
