//! The memory that a probed process and its tracer share: its areas, their structures and their
//! limits.
//!
//! All of it except the rings is mapped below 2 GiB ([`LOW_END`]), so that compiled code can
//! address it absolutely (by a 32-bit displacement) from any module. There are these kinds of area:
//!
//! | area | shared by | holds |
//! |---|---|---|
//! | [`Identity`] page | one address space; zeroed by the kernel in a forked child | its ids, how its threads find theirs |
//! | cells | the processes of one trust domain | a program's variables; its counters, once per processor; maps, behind a [`Clock`] |
//! | sign of life | all processes of a tracer, which can only read it | one word that the reader of the rings changes |
//! | contexts | one address space; zeroed by the kernel in a forked child | [`Context`]s |
//! | rings | one address space, and the tracer; not there in a forked child | a [`Control`] for each ring, then the rings |
//! | code | one address space | the agent's own code; never written by the process |
//!
//! Addresses, sizes and the place of the next record are kept in contexts and in code, where no
//! other process can write. Compiled code reads only one number from a ring's memory, how far the
//! reader has come, and any value of it is a place in the ring.
//!
//! The process can overwrite whatever the tracer reads here, so the tracer treats it as untrusted
//! input.
//!
//! [`thread_id`] describes the thread ids in a thread's own segment descriptors, [`hidden`] the
//! table of addresses that handlers cannot access, and [`stacks`] where the tables for walking
//! stacks are.
#![no_std]
#![forbid(unsafe_code)]

mod clock;
mod constants;
mod context;
mod counter;
mod frame;
mod handler;
pub mod hidden;
mod identity;
mod map_call;
mod record;
mod ring;
pub mod stacks;
pub mod thread_id;

pub use clock::*;
pub use constants::*;
pub use context::*;
pub use counter::*;
pub use frame::*;
pub use handler::*;
pub use identity::*;
pub use map_call::*;
pub use record::*;
pub use ring::*;
