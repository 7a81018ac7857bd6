//! Checks whether a program notices that it is probed: every instruction of every function of a
//! module is probed, in random batches, while a workload uses the module; its output and exit must
//! be as without probes.
//!
//! ```text
//! sites      every instruction, by binutils       workload   what runs, for each module
//! random     in batches                           drive      running it
//! batch      one batch: probes, run, counts       outcome    what must be equal
//! minimize   which sites are to blame             callgrind, compare   are the counts right?
//! choices    what only one processor runs         tally, report        what is told in the end
//! module     all of that
//! ```

pub(crate) mod batch;
mod callgrind;
mod choices;
mod compare;
mod drive;
mod minimize;
mod module;
mod outcome;
pub(crate) mod random;
mod report;
mod sites;
mod tally;
mod workload;

pub use batch::{Fate, Runner};
pub use compare::Comparison;
pub use module::{Plan, Shown, run};
pub use outcome::Outcome;
pub use report::{Head, report};
pub use sites::{Site, Sites};
pub use tally::{Failure, Tally};
pub use workload::{Driver, MODULES, Scale, Workload};
