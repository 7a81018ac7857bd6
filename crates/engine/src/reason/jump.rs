//! Why a site is no jump.

use std::fmt;

use patch::tactic::Reason;

use crate::ledger::Full;

use super::{Cause, NotHeld, NotMapped};

/// Why a site did not become a jump, or is none any more. `instruction` is an instruction as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoJump {
    /// The process has ended.
    #[error("the process is gone")]
    Gone,
    /// Its programs ask for a trap.
    #[error("as asked")]
    Asked,
    /// The user wants traps.
    #[error("`--engine trap`")]
    EngineTrap,
    /// A handler of the program may ask for a core dump.
    #[error("a handler of its program calls a facility, which may show all threads")]
    CallsFacility,
    /// A handler of the program calls a plugin.
    #[error("a handler of its program calls plugins, which are not in the process")]
    CallsPlugins,
    /// A handler sends signals, or has the function return.
    #[error("its handler sends signals, or returns from the function, which the tracer does")]
    Acts,
    /// It is a return only if its jump is taken.
    #[error("the function returns there only if the jump is taken")]
    ReturnsIfTaken,
    /// The site is for signal masks.
    #[error("libc blocks all signals there")]
    MasksSignals,
    /// The site is the dynamic linker's.
    #[error("the dynamic linker reports loaded modules there")]
    LinkerReports,
    /// The site is armed as a trap.
    #[error("a trap is there already")]
    TrapThere,
    /// Jumps are for 64-bit code.
    #[error("it is 32-bit code")]
    Narrow,
    /// The instruction enters the kernel.
    #[error("`{0}` enters the kernel")]
    EntersKernel(String),
    /// The instruction may set the trap flag.
    #[error("`{0}` can make the program step itself")]
    StepsItself(String),
    /// The stack may be too small for a handler.
    #[error("it is in a Go function that does not check its stack's size")]
    UncheckedStack,
    /// There may be no stack.
    #[error("rsp may not be the stack pointer there")]
    NoStack,
    /// Memory is missing.
    #[error(transparent)]
    NotMapped(#[from] NotMapped),
    /// Threads cannot be held.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// Other probes of the program are refused, so none is armed.
    #[error("other probes of its program cannot be armed")]
    OthersRefused,
    /// The code cannot be read.
    #[error("the code cannot be read")]
    UnreadableCode,
    /// The code is not what was planned for.
    #[error("its code has changed meanwhile")]
    CodeChanged,
    /// Other probes were armed or removed meanwhile.
    #[error("its probes have changed")]
    ProbesChanged,
    /// There is no handler memory.
    #[error("there is no memory for handlers")]
    NoHandlerMemory,
    /// The ledger is full.
    #[error("{}", Full)]
    LedgerFull,
    /// There is no room for the program's variables.
    #[error("its variables do not fit into shared memory")]
    Variables,
    /// There is no room for global variables.
    #[error("the global variables are not in shared memory")]
    Globals,
    /// There is no room for counters.
    #[error("there is no more memory for counters")]
    CountersFull,
    /// A probe with limits has many sites.
    #[error("it has many sites, and counts its hits one by one")]
    CountsOneByOne,
    /// There is no room for descriptions of handlers.
    #[error("there is no more room for descriptions of handlers")]
    DescriptionsFull,
    /// The handler cannot be compiled.
    #[error(transparent)]
    Unsupported(#[from] jit::Unsupported),
    /// The record would wait for an instruction behind which nobody knows what comes.
    #[error("`{0}` can fault, and its record would wait although the next instruction is not known")]
    NextUnknown(String),
    /// Records of several probes would wait for the instruction.
    #[error("`{0}` can fault, and records of more than one probe would wait for it")]
    SeveralWait(String),
    /// There is no room for its trampoline.
    #[error("no memory for its trampoline is within reach")]
    NoTrampoline,
    /// A copy of an instruction cannot be made there.
    #[error(transparent)]
    Displace(#[from] patch::Refusal),
    /// An instruction to move is not in the code.
    #[error("it is not in the code")]
    NotInCode,
    /// There is no room for the instructions that a jump covers.
    #[error("the instructions that a jump covers do not fit")]
    FollowersDoNotFit,
    /// The trampoline that a jump has does not run the instructions that it is to cover.
    #[error("a jump covers instructions that do not follow in its trampoline")]
    FollowersElsewhere,
    /// A trap would have to become a jump.
    #[error("a trap is in the way")]
    TrapInTheWay,
    /// The trampoline of a jump is gone.
    #[error("its trampoline is gone")]
    TrampolineGone,
    /// A jump does not reach its trampoline.
    #[error("a trampoline is out of reach")]
    OutOfReach,
    /// A jump would have to become a trap, and must not.
    #[error("the jump at {0:#x} would have to become a trap, which `--engine jump` has ruled out")]
    WouldTrap(u64),
    /// No plan could be carried out.
    #[error("no plan was found for it")]
    NoPlan,
    /// The plan has no jump for it.
    #[error("no jump was planned for it")]
    NotPlanned,
    /// The planner's reason.
    #[error(transparent)]
    Planner(#[from] Reason),
    /// Other sites have taken the room of its jump; with the planner's reason, if there is one.
    #[error("other probes around it leave no room for a jump{}", .0.map(|own| format!(" ({own})")).unwrap_or_default())]
    Crowded(Option<Reason>),
    /// Something could not be written.
    #[error("writing {what}: {cause}")]
    Writing {
        /// What.
        what: What,
        /// Why not.
        cause: Cause,
    },
}

/// What is written for jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Trampolines, and pads in new pages.
    Trampolines,
    /// The table of memory that handlers must not see.
    HiddenTable,
    /// Pads in pages that are in use.
    LandingPads,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Trampolines => "the trampolines",
            What::HiddenTable => "the table of hidden memory",
            What::LandingPads => "the landing pads",
        })
    }
}
