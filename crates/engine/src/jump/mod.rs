//! Sites that are jumps.
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
//! `arm` makes jumps of sites: `draft` works out how, while the program runs, and `carry` does it: memory is mapped and trampolines are
//! written while one thread is stopped, the sites while all are held.
//!
//! | file | what it is |
//! |---|---|
//! | `suits`, `stack` | which sites may become jumps; which have no stack for a handler |
//! | `draft`, `plan`, `planners`, `around`, `area`, `proof`, `text`, `texts` | the plan for the sites of a module, and what it has to know: what was planned before, what is around, where memory is to be, what is proven, the code |
//! | `handlers`, `compile` | the handlers of a site, as machine code |
//! | `trampoline`, `tail`, `emit`, `shape` | the code from T to J; that of F; all trampolines of a plan; its jumps |
//! | `carry`, `write`, `writing`, `back` | what a draft says is done; threads between a site and T are put back |
//! | `arming`, `armings`, `code_file`, `copied`, `copying` | what arming a module came to; all that is kept; its code as a file; one in another process that maps the same file; how it is carried out there |
//! | `jumps` | the trampolines of an address space |
//! | `remove`, `over` | jumps are taken out; probes that handlers have ended |
//! | `ground`, `lay`, `room`, `shared`, `cells`, `contexts`, `rings`, `identity`, `thread_ids` | the memory that it takes, in the process and shared with it |
//! | `trust`, `domain` | which processes share cells; those that become others |
//! | `hidden` | what of all this handlers do not see |
//! | `drain`, `handing`, `ring`, `who`, `clock`, `mark` | records are read, in the order of time, up to a moment, and handed out |
//! | `pulse`, `waiting`, `parked` | the reader's sign of life; threads that wait for room, and are kept stopped |
//! | `signal`, `forbidden`, `out` | signals of threads that are in a trampoline; instructions that the process may not execute; threads are taken out of one |

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
