//! What a running script prints.
//!
//! The handlers of a script do not print. They log *events*: a number, and behind it the values of
//! its arguments. The reader of the log does what the event says: it prints a line, prints or
//! clears a map, runs a command, or ends tracing.
//!
//! ```text
//! a record's log:   | 3 | 42 | 5 | "hello" 0 0 0 | 7 | ...       (words of 8 bytes)
//!                     |    |   `----------------- event 3's second argument, a string
//!                     |    `--------------------- its first argument
//!                     `-------------------------- Compiled::events[3]: printf("%d %s\n")
//! ```
//!
//! Design constraints:
//!
//! * What is printed is, byte for byte, what bpftrace prints, as text and as JSON. Where its
//!   releases differ, 0.24 is followed; a comment says so where that can be seen.
//! * The log and the maps come from a process that may be hostile. Every read is bounded; a log
//!   that is not a sequence of events is one [`Error`], and the reader can go on with the next
//!   record. Nothing here panics, and what is allocated is bounded by what was read.
//! * Symbols, time, maps, files and commands are the [`World`]'s: this crate opens nothing.
//! * One message is one write, so that lines of two readers do not mix.
//!
//! | file | what it contains |
//! |---|---|
//! | `reader` | the reader: events to actions |
//! | `world` | what it asks of the outside |
//! | `cursor`, `decode`, `number`, `layout` | bytes to values |
//! | `datum` | a value to print |
//! | `symbols`, `clock` | addresses, stacks and times as text |
//! | `format`, `conversion` | `printf` |
//! | `table`, `order` | a map as a table of rows |
//! | `measures` | a map as numbers, for metrics |
//! | `histogram`, `series`, `graph` | histograms and time series |
//! | `text`, `json` | the two forms of a message |
//! | `unit`, `told` | units of times in text; errors and warnings of a script |
//! | `folded` | maps by stacks, as lines for flame graphs |
//! | `packed` | `printf` as bytes, with a template |
//! | `flame` | flame graphs |
//! | `terminal` | what a terminal must not be sent |
//! | `error` | what can go wrong while a record is printed |

#![forbid(unsafe_code)]

mod clock;
mod conversion;
mod cursor;
mod datum;
mod decode;
mod error;
mod flame;
mod folded;
mod format;
mod graph;
mod histogram;
mod json;
mod layout;
mod measures;
mod number;
mod order;
mod packed;
mod reader;
mod series;
mod symbols;
mod table;
mod terminal;
mod text;
mod told;
mod unit;
mod world;

pub use error::{Context, Error, Wrong};
pub use flame::Flame;
pub use jiff::tz::TimeZone;
pub use measures::{Measure, Measures, bounds};
pub use reader::{Next, Output, Reader};
pub use symbols::StackMode;
pub use unit::Durations;
pub use world::{Clock, Inlined, Location, Symbol, World};
