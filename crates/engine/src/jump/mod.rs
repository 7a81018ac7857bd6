//! The jump engine: turns sites into jumps to trampolines, and reads the records that handlers
//! write.
//!
//! ```text
//!     site:   e9 ..              jmp T                     (or a jump to a landing pad, which jumps to T)
//!     T:      the handlers, one behind the other
//!     D:      the displaced instruction
//!     A:      the record is committed                      only where a handler logs and the instruction can fault
//!     F:      copies of the following instructions         as many as the site's jump covers
//!     J:      jmp behind them
//! ```
//!
//! `arm` arms sites: it plans everything while the program runs, then one stopped thread maps
//! memory, the tracer writes the trampolines, holds all threads, and writes the sites.
//!
//! | file | what it is |
//! |---|---|
//! | `arm` | makes sites jumps, from the plan to the written bytes |
//! | `stack`, `proof`, `text`, `code_cache` | what is known of the code: where a handler has no usable stack, what control flow proves, its bytes |
//! | `planners`, `area`, `reach`, `trampoline_allocator`, `not_jumped` | earlier plans; places for memory, how far jumps reach, room in it; a site that gets no jump |
//! | `trampoline`, `relocated_successors`, `shape` | the code from T to J; that of F; the jumps to T |
//! | `write`, `put_back`, `held` | writes where no thread is; moves a thread between a site and T back to the site; what is done while threads are held |
//! | `arming`, `armings`, `code_file`, `copied` | the result of arming a module; all that are kept; its code as a file; the same at another address |
//! | `jumps` | the trampolines of an address space |
//! | `remove`, `probe_end` | removes jumps; removes probes that handlers have ended |
//! | `handler_memory`, `map_handler_memory`, `shared`, `cells`, `contexts`, `rings`, `identity`, `thread_ids`, `numbers` | memory for handlers, in the process and shared with it |
//! | `trust`, `domain` | which processes share cells; processes that change their rights |
//! | `hidden` | which parts of this memory handlers must not see |
//! | `drain`, `deliver`, `ring`, `thread_names`, `clock`, `mark` | reads records in the order of time, up to a moment, and passes them to the observer |
//! | `heartbeat`, `waiting`, `parked` | the reader's sign of life; threads that wait for room, and are kept stopped |
//! | `signal`, `forbidden`, `step_out` | signals of threads in a trampoline; instructions that the process has forbidden; stepping threads out |

mod area;
mod arm;
mod arming;
mod armings;
mod cells;
mod clock;
mod code_cache;
mod code_file;
mod contexts;
mod copied;
mod deliver;
mod domain;
mod drain;
mod forbidden;
mod handler_memory;
mod heartbeat;
mod held;
mod hidden;
mod identity;
mod jumps;
mod map_handler_memory;
mod mark;
mod not_jumped;
mod numbers;
mod parked;
mod planners;
mod probe_end;
pub(crate) mod proof;
mod put_back;
mod reach;
mod relocated_successors;
mod remove;
mod ring;
mod rings;
mod shape;
mod shared;
mod signal;
mod stack;
mod step_out;
mod text;
mod thread_ids;
mod thread_names;
mod trampoline;
mod trampoline_allocator;
mod trust;
mod waiting;
mod write;

pub(crate) use crate::jump::not_jumped::NotJumped;
pub(crate) use area::best_gap;
pub(crate) use arm::armer::{Armer, ToArm};
pub(crate) use arm::draft::{Basis, Draft};
pub(crate) use arm::eligibility::unsuitable;
pub(crate) use arm::plan_input::free_for_pads;
pub(crate) use arming::Keep;
pub(crate) use armings::Armings;
pub use cells::processors;
pub(crate) use cells::{Cells, Counter, Domain, Words};
pub(crate) use clock::counter;
pub(crate) use code_cache::CodeCache;
pub(crate) use copied::Copied;
pub(crate) use domain::Domains;
pub(crate) use drain::Drain;
pub(crate) use drain::drainer::Drainer;
pub(crate) use handler_memory::{HandlerMemory, low_memory};
pub(crate) use heartbeat::Heartbeat;
pub use heartbeat::HeartbeatHandle;
pub(crate) use hidden::Hidden;
pub(crate) use identity::space::forget_stranger;
pub(crate) use identity::{Looks, ThreadLayout};
pub(crate) use jumps::{Jumps, New};
pub(crate) use map_handler_memory::MemoryMapper;
pub(crate) use mark::Mark;
pub(crate) use numbers::Numbers;
pub(crate) use parked::{Parked, Wait};
pub(crate) use planners::Planners;
pub(crate) use rings::Rings;
pub(crate) use shape::name;
pub(crate) use shared::Shared;
pub(crate) use stack::Stacks;
pub(crate) use step_out::stepper::Stepper;
pub(crate) use thread_ids::take_ids;
pub(crate) use trampoline::{Code, Layout, Part, Trampoline};
pub(crate) use trust::{Again, NextLook, Trust};
pub(crate) use waiting::ProgressTimer;
