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
//! | `objects` | those programs, and their probes |
//! | `missing` | attach points that match nothing |
//! | `lines`, `events`, `in_kernel` | source lines, events that the kernel counts, and what patterns match in it, as attach points |
//! | `named` | what handlers name |
//! | `scope` | the processes and files that attach points are found in |
//! | `static_probes` | the static probes that attach points name, with their arguments |
//! | `programs`, `program_values` | what debug information tells scripts of the programs |
//! | `kernel_types`, `tracepoint_types` | what the kernel tells scripts of its types |
//! | `kernel_points`, `watches` | attach points in the kernel; watchpoints |
//! | `listing` | what `-l` shows |
//! | `records` | `printf` as records of targets |
//! | `run` | the command: the processes, or all by the kernel, and the end |
//! | `tables`, `memory` | the maps: how large they are; where they are |
//! | `metrics` | maps as metrics, for `--export` |
//! | `observer` | takes records and messages, and runs what is due |
//! | `own`, `timers` | handlers that run in dprobes: their machine; when they are due |
//! | `surroundings` | what a script asks of the system when it is compiled |
//! | `text_arguments` | which arguments of functions are strings |
//! | `unhit` | attach points that had no hit |
//! | `world`, `names`, `cgroups` | what the reader of records asks: maps, symbols, names, files, commands |
//! | `writer` | standard output, or a file, written by a thread |

mod cgroups;
mod check;
mod command;
mod events;
mod flame;
mod kernel_points;
mod kernel_types;
mod lines;
mod listing;
mod memory;
mod metrics;
mod missing;
mod named;
mod names;
mod objects;
mod observer;
mod own;
mod places;
mod program_values;
mod programs;
mod records;
mod run;
mod scope;
mod source;
mod static_probes;
mod surroundings;
mod tables;
mod text_arguments;
mod timers;
mod tracepoint_types;
mod unhit;
mod watches;
mod world;
mod writer;

pub(crate) use check::{check, is_script};
pub(crate) use metrics::now;
pub(crate) use run::trace;
pub(crate) use scope::{files_named, program_named};
pub(crate) use text_arguments::text_argument;
