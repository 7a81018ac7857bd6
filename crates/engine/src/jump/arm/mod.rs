//! Arms the sites of a module as jumps.
//!
//! ```text
//!     sites to arm, what the program has now          only read
//!         Drafter: plans, compiles, chooses places    nothing in the process is changed
//!     Draft
//!         Armer: maps memory, writes trampolines      one thread is stopped
//!         Armer: writes the sites                     all threads are held
//!     sites that became jumps, and those that did not
//! ```
//!
//! If the process has changed since the draft was made, none of its code is changed, and another
//! draft is made. What was armed so in another process that maps the same file needs no planning
//! (`copying`).
//!
//! | file | what it is |
//! |---|---|
//! | `armer` | drafts and carries out in turn |
//! | `eligibility` | which sites may become jumps |
//! | `draft`, `choose_memory` | the plan for the sites of a module; where memory for its handlers goes |
//! | `plan`, `plan_input` | plans the jumps of one mapping; what the planner has to know |
//! | `handlers`, `compile` | the handlers of a site, as machine code |
//! | `emit` | all trampolines of a plan |
//! | `writing` | the sites of a draft, ready to be written |
//! | `carry_out` | carries a draft out |
//! | `copying` | carries out an arming of another process |

pub(super) mod armer;
mod carry_out;
mod choose_memory;
pub(super) mod compile;
mod copying;
pub(super) mod draft;
pub(super) mod eligibility;
mod emit;
mod handlers;
mod plan;
pub(super) mod plan_input;
pub(super) mod writing;
