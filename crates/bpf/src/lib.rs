//! Programs that the Linux kernel executes (eBPF): assembles and loads them, creates their maps,
//! attaches them to events.
//!
//! A thin layer over bpf(2) and perf_event_open(2), for x86-64 and Linux 6.1 or later. It knows
//! nothing of probes and their language.
//!
//! ```text
//! Assembler --finish--> Code --Program::load--> Program --Uprobe::attach, ...--> Link
//!                              ^                    |
//!               Map::create -> Map <--reads, writes-+
//!                              +--> Shared, RingBuffer, lookup
//! ```
//!
//! What it must never do: leave something behind. Programs, maps, links and events are descriptors;
//! nothing is pinned, so that all is gone when this process ends, however it ends. It attaches only
//! what it is asked to attach, and its probing for [features](Feature) attaches nothing that could
//! be executed.
//!
//! | file | contents |
//! |---|---|
//! | `insn.rs`, `opcode.rs`, `helper.rs` | one instruction, its parts, the helpers by name |
//! | `assembler.rs`, `item.rs`, `label.rs` | labels, functions, references to maps |
//! | `reach.rs`, `islands.rs` | leaves out dead code; makes far jumps by steps |
//! | `code.rs` | a finished program, and its text |
//! | `map.rs`, `shared.rs` | maps; array maps in memory |
//! | `program.rs`, `log.rs`, `btf.rs` | loading, the verifier's log, type information |
//! | `kernel_types.rs` | the types of the kernel: functions, tracepoints, structs |
//! | `ring.rs` | reads the records of a ring map |
//! | `link.rs` | what is attached; why the kernel refuses |
//! | `uprobe.rs`, `kprobe.rs`, `tracepoint.rs`, `breakpoint.rs`, `event.rs` | what programs are attached to |
//! | `object.rs` | a program as an ELF file, for other tools to read |
//! | `features.rs` | what this machine's kernel can do |
//! | `sys.rs` | the system calls and their structures |
//!
//! `unsafe` is in the files that make system calls or use memory shared with the kernel.

mod assembler;
mod breakpoint;
mod btf;
mod code;
mod event;
mod features;
mod helper;
mod insn;
mod islands;
mod item;
mod kernel_types;
mod kprobe;
mod label;
mod link;
mod log;
mod map;
mod object;
mod opcode;
mod program;
mod reach;
mod ring;
mod shared;
mod sys;
mod tracepoint;
mod uprobe;

pub use assembler::Assembler;
pub use breakpoint::{Access, Breakpoint};
pub use btf::{kernel_function, kernel_members};
pub use code::Code;
pub use event::{Event, EventKind, Every};
pub use features::Feature;
pub use helper::Helper;
pub use insn::{Alu, Atomic, Cond, Insn, Operand, Reg, Size, Width};
pub use kernel_types::{KernelMember, KernelShape, KernelType, KernelTypes, Prototype};
pub use kprobe::{KernelPlace, Kprobe, KprobeMulti, attach_tracing};
pub use label::{AssembleError, Label};
pub use link::{AttachError, Link};
pub use map::{Map, MapError, MapKind, MapSpec, possible_processors};
pub use nix::errno::Errno;
pub use object::write_object;
pub use program::{LoadError, Program, ProgramKind, ProgramSpec};
pub use ring::{BrokenRing, RingBuffer};
pub use shared::Shared;
pub use tracepoint::{RawTracepoint, Tracepoint};
pub use uprobe::{Uprobe, UprobeMulti};
