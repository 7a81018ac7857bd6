//! Traces running processes: arms probes in them, runs handlers at hits, and passes records to an
//! observer.
//!
//! # The trap engine
//!
//! The tracer replaces a site's first byte with `int3`. A thread that executes it stops, and only
//! the tracer handles the stop: it runs the handlers, then emulates the instruction or sends the
//! thread to the site's *slot*, a relocated copy of the instruction that jumps back. Each hit costs
//! one stop. The `int3` stays while the site is armed, so no thread can miss it, and no other
//! thread is stopped.
//!
//! ```text
//!   site:  cc ........        slot:  <instruction>
//!   next:  ....... <---------------  jmp next
//! ```
//!
//! # The jump engine
//!
//! Where possible, the site becomes a jump to a trampoline inside the process: the compiled
//! handler, the displaced instruction, a jump back. A hit then needs no stop. The arming is planned
//! while the program runs (`preplan`, `jump`); the sites are written while all threads are held
//! (`hold`, `change`). The tracer reads the records from shared memory and handles everything else.
//! See docs/jump-engine.md.
//!
//! # Invariants
//!
//! * Nothing in a process is written before every check has passed.
//! * What the program can see of itself - registers, signal frames, fault addresses, interrupted
//!   system calls - is the same as without probes. No thread is ever seen at a slot's address.
//! * A record counts once its instruction has completed: at once if the instruction cannot fault,
//!   else at the thread's next stop, or when the tracer finds the thread elsewhere.
//! * The byte at a site is restored before the slots are unmapped, and the slots are unmapped only
//!   after every thread of the address space has been seen outside them.
//!
//! # Machines
//!
//! A process runs x86-64 or i386 code. The machine of a site is that of its module, and the version
//! of a program that was compiled for that machine is placed there (`versions`). Questions about
//! system calls - which instruction makes one, its number, whether it may be restarted - are
//! decided by the code segment of the stopped thread.
//!
//! # Owners and roles
//!
//! The tracer dispatches events, and begins and ends the following of processes. Its state belongs
//! to owners, each with methods of its own:
//!
//! | owner | what it has |
//! |---|---|
//! | `Programs` | the programs and their counts |
//! | `Followed` | what is followed: the threads (`Threads`), their address spaces (`Spaces`), threads that are not followed yet, held threads' events, what is let go; it stops and resumes threads |
//! | `Sharing`, `Reader` | what processes share with the tracer; the reader of the rings |
//! | `Cache` | data about modules for later processes |
//! | `Messages` | the observer, and what it was told |
//! | `Session` | the state of the session |
//!
//! What needs several owners is done in a *role*: a struct that borrows them, and no others. The
//! tracer lends them to a role, and a role to another.
//!
//! | role | what it does |
//! |---|---|
//! | `SlotWatcher` | follows threads in slots |
//! | `HandlerRunner` | runs the handlers of traps |
//! | `Drainer` | reads rings, parks threads that wait for room |
//! | `Stepper` | steps threads out of trampolines |
//! | `Domains` | assigns processes to trust domains |
//! | `MemoryMapper` | maps handler memory and rings |
//! | `Placer` | places programs in modules; plans that beforehand |
//! | `Armer`, `Drafter`, `HandlerCompiler` | makes sites jumps (`jump/arm`); drafts that, without changing a process; compiles handlers |
//! | `Disarmer` | disarms probes that are over |
//! | `Dumper` | writes core dumps (`dump/dumper.rs`) |
//! | `ReportSources` | makes reports |
//!
//! # Files
//!
//! A file `x.rs` holds data that knows nothing of those who use it. The methods of an owner or a
//! role for it are in `x/OWNER.rs`: those of `Followed` that hold threads are in
//! `hold/followed.rs`. So files use each other in one direction: methods use their owner, which
//! uses the data. No type has methods in more than six files.
//!
//! | file | what it is |
//! |---|---|
//! | `tracer`, `pace`, `budget` | the loop: it waits for events, and hands each to one of the next row; how it waits; what traps may cost |
//! | `followed`, `threads`, `spaces`, `messages` | what is followed, and what is told |
//! | `signal`, `hit`, `new_threads`, `detach` | signals, those of traps among them; handlers and records of traps; threads, processes and exec; the end |
//! | `attach`, `seize`, `service`, `retire`, `forget` | the beginning; the threads of a process; programs that are inserted and removed while others run; probes that are over; what programs leave |
//! | `modules`, `placing`, `loader` | modules that appear are looked for; the probes of one are placed; the dynamic linker tells of new ones |
//! | `site_plans`, `resolve`, `points`, `place_names` | where probes are: in a process; in a file, for PPDFs; points of functions; how messages name places |
//! | `preplan`, `jump`, `hold`, `change` | sites that are jumps: worked out, made, with all threads held, as changes of many bytes |
//! | `coverage` | which jumps there would be, without a process or without touching it |
//! | `space`, `mapping`, `slots`, `window` | an address space; memory mapped in it; where displaced instructions run; reading it |
//! | `site`, `sites`, `tracked`, `program`, `programs`, `versions` | one probed instruction, all of an address space, a thread, a program, all of them, one as it is compiled for each machine |
//! | `tables` | the maps and constants of scripts, in memory that all probed processes share |
//! | `unwinding` | the tables by which stacks are walked, and their block in a process |
//! | `machine`, `seen`, `exits`, `dump` | a thread as a handler sees it, and its memory; the facilities that a handler asks for; core dumps |
//! | `sharing`, `reader`, `session`, `cache` | the other owners: what processes share; the reader of the rings; the session; plans and armings that are kept |
//! | `variables`, `module_names`, `interrupted`, `reported` | a program's variables; waiting modules by name; instructions that signals have interrupted; what was reported |
//! | `restart` | system calls that a stop has made fail |
//! | `module_key`, `site_use`, `counts`, `jump_counters`, `doubt`, `code_bytes`, `patch_registers` | what many files need, in files that need few: keys, what a site is for, counts, checks of bytes, registers |
//! | `reason` | why something is not done, by families, and the texts of these reasons |
//! | `observer`, `placed_report`, `losses`, `site_hits`, `report`, `error` | what is told: as it happens, and in the end |
//! | `semaphores`, `counter` | the counters of static probes that are counted up in an address space |
//! | `ledger`, `memory_entries`, `after_tracer` | what remains if the tracer is killed, and how the bytes are put back then, and memory is given back |
//! | `guard` | what the process itself has for that case: a handler that answers its traps |

mod after_tracer;
mod attach;
mod budget;
mod cache;
mod change;
mod code_bytes;
mod counter;
mod counts;
mod coverage;
mod detach;
mod doubt;
mod dump;
mod error;
mod exits;
mod followed;
mod forget;
mod guard;
mod hit;
mod hold;
mod interrupted;
mod jump;
mod jump_counters;
mod ledger;
mod loader;
mod losses;
mod machine;
mod mapping;
mod memory_entries;
mod messages;
mod module_key;
mod module_names;
mod modules;
mod new_threads;
mod observer;
mod pace;
mod patch_registers;
mod place_names;
mod placed_report;
mod placing;
mod points;
mod preplan;
mod program;
mod programs;
mod reader;
pub mod reason;
mod report;
mod reported;
mod resolve;
mod restart;
mod retire;
mod seen;
mod seize;
mod semaphores;
mod service;
mod session;
mod sharing;
mod signal;
mod site;
mod site_hits;
mod site_plans;
mod site_use;
mod sites;
mod slots;
mod space;
mod spaces;
mod tables;
mod threads;
mod tracer;
mod tracked;
mod unwinding;
mod variables;
mod versions;
mod window;

pub use crate::counts::{Counts, SiteCounts, State};
pub use coverage::{Coverage, FlowSummary, Surroundings, coverage};
pub use dump::KernelHit;
pub use error::{Error, Refused};
pub use hold::HoldTimes;
pub use jump::{HeartbeatHandle, processors};
pub use ledger::{Ledger, Left, Restored};
pub use observer::{Callk, Lost, Note, Observer, Placed};
pub use process::StartOptions;
pub use program::{Engine, Options, has_limits};
pub use reader::BUFFERS;
pub use report::{OfProcess, OfProcesses, OfUser, ProbeReport, Report};
pub use resolve::{Resolved, Survey, resolve, sites_in, survey, symbols_of};
pub use service::{Inserted, Variables};
pub use site_hits::PlaceReport;
pub use tables::{THREAD_BYTES, Tables, TablesPlan};
pub use tracer::{Control, Tracer};
pub use versions::Versions;
