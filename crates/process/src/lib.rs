//! A process as its tracer sees it: its threads, memory, mappings and modules, and system calls
//! made inside it.
//!
//! * Threads are typed states, [`Running`] or [`Stopped`]. Only a stopped thread's registers can be
//!   read; resuming it consumes it.
//! * Code is read and written through [`Memory`] (`/proc/PID/mem`), data through [`read`] and
//!   [`write()`], which respect page protection as the process's own accesses do.
//! * The process's own threads make system calls for the tracer ([`Stopped::call`]) and then
//!   continue where they were, also if the tracer is killed meanwhile. A [`Caller`] makes several
//!   calls, to map memory that the tracer shares with the process.
//! * Modules ([`modules()`]) are the mapped ELF files ([`image::Image`]) at the addresses where the
//!   process has them.
//!
//! This crate knows nothing of probes. It must leave a process in the state in which it found it:
//! every function either completes or restores what it changed.

mod caller;
mod copied;
mod credentials;
mod error;
mod executable;
mod files;
mod float;
mod frame;
mod identity;
mod library;
mod low_addresses;
mod map_file;
mod maps;
mod memory;
mod module;
mod obstacle;
mod pages;
mod process_memory_file;
mod processor;
mod procfs;
mod ptrace;
mod registers;
mod remote;
mod share;
mod start;
mod stat;
mod step;
mod tasks;
mod thread;

pub use caller::{Call, Caller, Step};
pub use copied::Copied;
pub use credentials::Credentials;
pub use error::Error;
pub use executable::{machine_of_command, machine_of_process};
pub use files::{allow_many_files, ignore_file_size_limit};
pub use float::FloatRegisters;
pub use identity::{RseqRegistration, keeps_its_id, thread_id_offset};
pub use library::{find_library, libraries_named};
pub use low_addresses::{addresses_left, low_gaps, low_places};
pub use map_file::FilePiece;
pub use maps::{Mapping, MappingWithFlags, maps, maps_with_flags};
pub use memory::{Memory, read, write, write_each};
pub use module::{
    ImageCache, Module, ModuleError, Skipped, Survey, modules, modules_in, open_module, survey,
};
pub use obstacle::Obstacle;
pub use pages::{Page, PageMap, Run};
pub use process_memory_file::fix_size;
pub use processor::missing_instructions;
pub use registers::Registers;
pub use remote::{COPY_CODE, Entrance, STUB, StubMemory, find_syscall, is_in_stub};
pub use share::{handle, read_only_for_others, sealed_memory, shared_memory};
pub use start::{Executed, Held, StartOptions, start};
pub use stat::{Stat, command_line};
pub use tasks::{
    Status, anonymous_memory, auxiliary, blocked_at, check_proc, children, children_share_pid_namespace,
    has_shadow_stack, has_userfaultfd, heap_start, memory_sharers, name, processor, same_memory,
    same_pid_namespace, stack_limit, threads, traced_here,
};
pub use thread::events::{Event, look_at, take_last_stop, wait};
pub use thread::{Birth, OwnSegment, Running, Stop, Stopped};
