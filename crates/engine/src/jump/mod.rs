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
//! `arm` arms sites: `draft` plans everything while the program runs; `carry` executes the plan:
//! one stopped thread maps memory, the tracer writes the trampolines, then holds all threads and
//! writes the sites.
//!
//! | file | what it is |
//! |---|---|
//! | `suits`, `stack` | which sites may become jumps; which code has no usable stack for a handler |
//! | `draft`, `plan`, `planners`, `around`, `area`, `proof`, `text`, `texts` | the plan for the sites of a module, and its input: earlier plans, surroundings, places for memory, what control flow proves, the code |
//! | `handlers`, `compile` | the handlers of a site, as machine code |
//! | `trampoline`, `tail`, `emit`, `shape` | the code from T to J; that of F; all trampolines of a plan; its jumps |
//! | `carry`, `write`, `writing`, `back` | executes a draft; moves threads between a site and T back to the site |
//! | `arming`, `armings`, `code_file`, `copied`, `copying` | the result of arming a module; all that are kept; its code as a file; the same at another address; carrying it out in another process that maps the same file |
//! | `jumps` | the trampolines of an address space |
//! | `remove`, `over` | removes jumps; removes probes that handlers have ended |
//! | `ground`, `lay`, `room`, `shared`, `cells`, `contexts`, `rings`, `identity`, `thread_ids` | memory for handlers, in the process and shared with it |
//! | `trust`, `domain` | which processes share cells; processes that change their rights |
//! | `hidden` | which parts of this memory handlers must not see |
//! | `drain`, `handing`, `ring`, `who`, `clock`, `mark` | reads records in the order of time, up to a moment, and passes them to the observer |
//! | `pulse`, `waiting`, `parked` | the reader's sign of life; threads that wait for room, and are kept stopped |
//! | `signal`, `forbidden`, `out` | signals of threads in a trampoline; instructions that the process has forbidden; stepping threads out |

mod area;
mod arm;
mod arming;
mod armings;
mod around;
mod back;
mod carry;
mod cells;
mod clock;
mod code_file;
mod compile;
mod contexts;
mod copied;
mod copying;
mod domain;
mod draft;
mod drain;
mod emit;
mod forbidden;
mod ground;
mod handing;
mod handlers;
mod hidden;
mod identity;
mod jumps;
mod lay;
mod mark;
mod numbers;
mod out;
mod over;
mod parked;
mod plan;
mod planners;
pub(crate) mod proof;
mod pulse;
mod remove;
mod ring;
mod rings;
mod room;
mod shape;
mod shared;
mod signal;
mod stack;
mod suits;
mod tail;
mod text;
mod texts;
mod thread_ids;
mod trampoline;
mod trust;
mod waiting;
mod who;
mod write;
mod writing;

pub(crate) use area::best_gap;
pub(crate) use arm::{Left, Sites};
pub(crate) use arming::Keep;
pub(crate) use armings::Armings;
pub(crate) use around::free_for_pads;
pub(crate) use cells::{Cells, Counter, Domain, Words};
pub(crate) use compile::has_limits;
pub(crate) use copied::Copied;
pub(crate) use draft::{Basis, Draft};
pub(crate) use drain::Drain;
pub(crate) use ground::{Ground, low_memory};
pub(crate) use hidden::Hidden;
pub(crate) use identity::{Known, Looks};
pub(crate) use jumps::{Jumps, New};
pub(crate) use mark::Mark;
pub(crate) use numbers::Numbers;
pub(crate) use parked::{Parked, Wait};
pub(crate) use planners::Planners;
pub use pulse::Pulse;
pub(crate) use pulse::Sign;
pub(crate) use rings::Rings;
pub(crate) use shape::name;
pub(crate) use shared::Shared;
pub(crate) use stack::Stacks;
pub(crate) use suits::unsuitable;
pub(crate) use texts::Texts;
pub(crate) use thread_ids::take_ids;
pub(crate) use trampoline::{Code, Layout, Part, Trampoline};
pub(crate) use trust::{Again, NextLook, Trust};
pub(crate) use waiting::Patience;
