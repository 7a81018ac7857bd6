//! Scripts: `dprobes trace` runs them, `dprobes check` checks them.
//!
//! ```text
//! text --script--> handlers --places--> programs, one for each module --engine, kernel--> records
//!                      |                                                             |
//!                      +-- begin, end, interval: run here (own) ---------------------+--> reader (printout)
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `check` | `dprobes check` of a script |
//! | `source` | the text, and what the command line gives to it |
//! | `places` | attach points as programs of the engine, and as what dprobes itself does |
//! | `lines` | source lines as attach points |
//! | `scope` | the processes and files that attach points are found in |
//! | `static_probes` | the static probes that attach points name, with their arguments |
//! | `programs`, `program_values` | what debug information tells scripts of the programs |
//! | `run` | the command: the processes, or all by the kernel, and the end |
//! | `tables`, `memory` | the maps: how large they are; where they are |
//! | `observer` | takes records and messages, and runs what is due |
//! | `own`, `timers` | handlers that run in dprobes: their machine; when they are due |
//! | `world`, `symbols` | what the reader of records asks: maps, symbols, files, commands |
//! | `writer` | standard output, or a file, written by a thread |

mod check;
mod lines;
mod memory;
mod observer;
mod own;
mod places;
mod program_values;
mod programs;
mod run;
mod scope;
mod source;
mod static_probes;
mod symbols;
mod tables;
mod timers;
mod world;
mod writer;

pub(crate) use check::{check, is_script};
pub(crate) use run::trace;
pub(crate) use scope::program_named;
