//! Probepoints in living processes.
//!
//! # The trap engine
//!
//! A site's first byte becomes `int3`. A thread that executes it stops, and the tracer alone answers: it runs the
//! handlers, then emulates the instruction or sends the thread to the site's *slot*, a relocated copy that jumps
//! back. One stop serves a hit. The site is never restored while it is armed, so no thread can slip through, and
//! no other thread is stopped.
//!
//! ```text
//!   site:  cc ........        slot:  <instruction>
//!   next:  ....... <---------------  jmp next
//! ```
//!
//! # The jump engine
//!
//! Where it can, the site becomes a jump to a trampoline inside the process: the compiled handler, the displaced instruction, a jump
//! back; no stop serves a hit. The tracer arms it while all threads are held (`hold`, `change`, `jump`), reads the records from
//! shared memory, and answers what else happens. docs/jump-engine.md tells the whole.
//!
//! # Rules that hold everywhere here
//!
//! * Nothing of a process is written before every check has passed.
//! * What the program can see of itself - registers, signal frames, fault addresses, system calls that were
//!   interrupted - is what it would see unprobed. A thread never shows a slot's address.
//! * A record counts when its instruction has completed: at once where that is certain, else at the thread's next
//!   stop, or when the thread is found to be elsewhere.
//! * The byte at a site is restored before the slots are unmapped, and the slots are unmapped only when every
//!   thread of the address space has been seen outside.
//!
//! # Two kinds of code
//!
//! A process runs x86-64's code or i386's. Which one a site is of, its module's machine says, and of a program the version is
//! placed that was compiled for that machine (`versions`). What the kernel wants to know - which instruction makes a system call, which
//! number it has, which one may start again - the code segment of the stopped thread says.
//!
//! # Where what is
//!
//! `tracer` waits for events and hands each to `hit` (traps), `signal` (other signals), `births` (threads,
//! processes, exec) or `leave` (the end). `exits` calls the other facilities that a handler asks for; `dump`
//! writes core dumps. `modules` finds modules, `placing` arms what `place` has planned for one, of which `resolve` is the part that
//! needs no process, for PPDFs, and `points` the points of functions, whose hits `places` counts; `naming` is how
//! they name places in messages; `loader` makes the dynamic linker tell of new ones; `placed` and `losses` tell the observer where probes
//! are, and what was dropped. `space` is an address space, `site` one probed instruction, `slots` the
//! memory they run in, `tracked` a thread. `service` inserts and
//! removes programs while others run. `pace` decides how the tracer waits, and `ledger` is what
//! remains if the tracer is killed.

mod attach;
mod births;
mod change;
mod coverage;
mod dump;
mod error;
mod exits;
mod foresee;
mod hit;
mod hold;
mod jump;
mod leave;
mod ledger;
mod loader;
mod losses;
mod machine;
mod mapping;
mod modules;
mod naming;
mod observer;
mod orphan;
mod pace;
mod place;
mod placed;
mod places;
mod placing;
mod points;
mod program;
mod report;
mod resolve;
mod restart;
mod service;
mod signal;
mod site;
mod slots;
mod space;
mod tracer;
mod tracked;
mod versions;
mod window;

pub use coverage::{Coverage, FlowSummary, Ground, coverage};
pub use error::{Error, Refused};
pub use hold::HoldTimes;
pub use jump::Pulse;
pub use ledger::{Ledger, Restored};
pub use observer::{Callk, Note, Observer, Placed};
pub use places::PlaceReport;
pub use process::Surroundings;
pub use program::{Counts, Engine, Options, SiteCounts, State};
pub use report::{ProbeReport, Report};
pub use resolve::{Resolved, Survey, resolve, survey, symbols_of};
pub use service::{Inserted, Variables};
pub use tracer::{BUFFERS, Control, Tracer};
pub use versions::Versions;
