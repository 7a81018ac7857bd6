//! Handlers in the kernel: RPN bytecode becomes eBPF programs, and the maps they work in.
//!
//! The kernel runs a handler where the probe is hit, in any process, without stopping it and
//! without a tracer that follows it. The result is that of the interpreter ([`vm::run`]), bit for
//! bit. What the kernel does not let a program do is refused when it is compiled ([`Reason`]);
//! never is an instruction left out, or a hit lost uncounted.
//!
//! Design constraints:
//!
//! * The verifier must accept every program made here: any bytecode compiles, or is refused with a
//!   reason. It follows all paths of a program, up to a million instructions. So everything of a
//!   run is in memory (`layout`), not in registers: wherever paths meet, the verifier sees the same
//!   state.
//! * Programs run on Linux 6.1 and later. No instruction and no helper that is newer is used but
//!   where a [`Target`] says so.
//! * A run's time is bounded as in the interpreter; besides, `bpf_loop` runs at most 8 million
//!   steps: a run that needs more ends as if `insmax` were reached.
//! * Two runs on one processor can interleave, since threads in handlers are preempted, and may
//!   sleep. They never share a context.
//! * Nothing is attached but by [`session`], and it leaves nothing attached behind.
//!
//! # One hit
//!
//! ```text
//!   uprobe, kprobe, breakpoint, tracepoint
//!        |  registers, cookie: which probe
//!        v
//!     program --> claims a context: stack, frames, log, traces, heap
//!        |            ^
//!        |  bpf_loop  | step: part of the bytecode | routine
//!        v
//!     record --> ring of the processor --> Maps::drain --> RawRecord
//! ```
//!
//! # The parts
//!
//! | file | what it is |
//! |---|---|
//! | `handler`, `refusal` | what is compiled, what for, and what cannot be |
//! | `layout`, `record` | the memory of a run; the record it makes |
//! | `nodes` | the instructions that a handler can reach, cut into parts |
//! | `compile`, `program`, `output` | the functions of a program; the one that the kernel calls; its record |
//! | `compiler`, `routine` | what compiles; the names of the routines |
//! | `emit` | fields and stack elements as instructions |
//! | `instructions`, `arithmetic`, `control`, `access`, `registers`, `fields`, `logging` | what each bytecode instruction becomes |
//! | `scripts`, `frame` | the same for what scripts are compiled to |
//! | `micro` | the routines: what loops, or is long |
//! | `filter`, `thread_check` | whose hits count |
//! | `by_process` | hits counted by process |
//! | `core_dumps`, `dump_requests` | exits to a core dump: how a handler asks and waits; who reads that |
//! | `light` | handlers that only count, and need no context |
//! | `table_code`, `table_function` | what is done with the maps of scripts |
//! | `tables` | the memory of these maps, and of constants |
//! | `maps`, `processes`, `rings` | the maps, and the records out of the rings |
//! | `tracepoints` | the kernel's tracepoints, and where the fields of their records are |
//! | `session` | attaching programs to files and to the kernel |

mod access;
mod arithmetic;
mod by_process;
mod compile;
mod compiler;
mod control;
mod core_dumps;
mod dump_requests;
mod emit;
mod fields;
mod filter;
mod frame;
mod handler;
mod instructions;
mod layout;
mod light;
mod logging;
mod maps;
mod micro;
mod nodes;
mod output;
mod processes;
mod program;
mod record;
mod refusal;
mod registers;
mod rings;
mod routine;
mod scripts;
pub mod session;
mod table_code;
mod table_function;
mod tables;
mod thread_check;
pub mod tracepoints;

pub use by_process::ProcessHits;
pub use compile::{Compiled, compile, compile_for_tracepoint};
pub use dump_requests::{DumpRequest, DumpRequests};
pub use filter::{Cgroup, CgroupError, Filter, ThreadName};
pub use handler::{AttachKind, Condition, Handler, Size, Target, cookie};
pub use layout::MAP_NAMES;
pub use maps::{Counts, Globals, Maps, MapsOptions, ProbeState};
pub use processes::Processes;
pub use record::RawRecord;
pub use refusal::{Reason, Refusal};
pub use tables::{Tables, TablesShape};

#[cfg(test)]
mod tests;
