//! Static probes (USDT) in Rust programs.
//!
//! A static probe is a place that a program's author chose for tracers, with arguments. It is one
//! `nop`, and a note in the file about where it is and where its arguments are. The note is what
//! SystemTap's `sys/sdt.h` writes, so dprobes, gdb, bpftrace and perf find the probe.
//!
//! ```
//! usdt::provider! {
//!     /// The probes of the server.
//!     mod server {
//!         /// A request has been read.
//!         fn request__start(id: u32, path: *const u8, length: usize);
//!         /// The server waits.
//!         fn idle();
//!     }
//! }
//!
//! fn answer(id: u32, path: &str) {
//!     server::request__start(id, path.as_ptr(), path.len());
//!     if server::idle::enabled() {
//!         // Something that only a tracer wants to know.
//!         server::idle();
//!     }
//! }
//! # answer(1, "/");
//! ```
//!
//! ```text
//! $ dprobes trace 'usdt:./server:server:request__start { printf("%d %s\n", arg0, str(arg1, arg2)); }' -- ./server
//! ```
//!
//! # What a probe costs
//!
//! While nobody traces: the `nop`, and what brings its arguments into registers if they are not
//! there yet. They are evaluated always. Where that is work, ask `enabled()` first: it loads a
//! counter of 16 bits, which tracers count up, and tests it.
//!
//! # What it must not do
//!
//! * A probe changes nothing but which register a value is in. It calls nothing.
//! * This crate depends on no other, and not on `std`.
//!
//! On machines other than x86-64 with ELF files, probes do nothing and are never enabled.

#![no_std]

mod argument;
mod macros;

pub use argument::Argument;

#[doc(hidden)]
pub use core;
