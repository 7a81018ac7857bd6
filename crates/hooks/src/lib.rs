//! Generalised hooks: dormant call sites in a program, at which exits can be registered and armed
//! (Richard J. Moore, *Dynamic Probes and Generalised Kernel Hooks Interface for Linux*, ALS 2000;
//! "the paper" in this crate).
//!
//! A *hook* is a place in a program where callbacks may be wanted. It is declared once
//! ([`declare_hook!`]) and has one or more *sites* ([`hook!`], [`hook_ret!`]). A callback is an
//! *exit*: it is registered and then armed. The site calls the armed exits in their order until one
//! ends the chain.
//!
//! ```
//! hooks::declare_hook! {
//!     /// A number has been drawn.
//!     DRAWN(number: u32)
//! }
//! use std::sync::atomic::{AtomicU32, Ordering};
//! static SUM: AtomicU32 = AtomicU32::new(0);
//!
//! fn draw(number: u32) {
//!     hooks::hook!(DRAWN, number);
//! }
//!
//! draw(1); // dormant: nothing is called
//! let exit = DRAWN.exit(|_, (number,)| {
//!     SUM.fetch_add(number, Ordering::Relaxed);
//!     hooks::Verdict::Continue
//! });
//! let exit = exit.name("sum").register()?;
//! exit.arm()?;
//! draw(2);
//! drop(exit); // disarmed and deregistered: nobody is inside of it any more
//! draw(4);
//! assert_eq!(SUM.load(Ordering::Relaxed), 2);
//! # Ok::<(), hooks::Error>(())
//! ```
//!
//! # What a site is
//!
//! A site is one no-operation of 5 bytes; the armed path is out of line. Arming the first exit of a
//! hook writes a jump to that path over the no-operation in all its sites; disarming the last exit
//! restores the no-operation (`text` explains why that is safe while other threads execute it). So
//! a dormant site loads nothing, tests nothing and does not jump.
//!
//! With the feature `tested-sites`, or on another machine than x86-64, a site loads a byte, tests
//! it and does not jump. The feature is for systems that do not allow text to be changed; without
//! it arming returns [`Error::Text`] there. The choice is the build's, since a site compiled as a
//! no-operation cannot test anything.
//!
//! # Guarantees
//!
//! * Arming a list is atomic: a hit sees all its exits armed or none ([`arm_all`]).
//! * Deregistering returns when no thread is inside the exit; called from inside an exit it does
//!   not wait.
//! * A thread inside an exit never waits for another thread here. Exits that it would have to wait
//!   for are skipped and counted ([`ExitInfo::missed`]).
//! * A panic of an exit does not leave it; the exit is disarmed.
//! * A hit allocates nothing and takes no lock, unless an exit disarms itself.
//!
//! # Files
//!
//! `macros` and `site` define sites, `text` writes them. `hook` is a hook, `head` its part shared
//! with C; `exit` is an exit, `entry` the registry's copy of it; `arguments` are a hook's
//! arguments. `dispatch` executes a hit, using `state` and `readers`. `registry` and `known` change
//! hooks and exits, `list` describes them. `c` is the C interface, `record` an exit's C record,
//! `plugin` the interface to plugins. The user's guide is docs/hooks.md.

mod all;
mod arguments;
mod c;
mod dispatch;
mod entry;
mod error;
mod exit;
mod head;
mod hook;
mod known;
mod list;
mod macros;
mod pause;
pub mod plugin;
mod readers;
mod record;
mod registry;
mod site;
mod state;
mod text;
mod thread;

pub use all::{find, hooks, initialise, terminate};
pub use arguments::{ARGUMENTS, Argument, Arguments, FromCode, Signature};
pub use c::{
    hook_delete, hook_exit_arm, hook_exit_deregister, hook_exit_disarm, hook_exit_register, hook_find,
    hook_hit, hook_identify, hook_initialise, hook_sites_delete, hook_sites_identify, hook_terminate,
};
#[doc(hidden)]
pub use dispatch::hit;
pub use entry::{CExit, Conditions, Departure, Invocation, Priority, Record, Verdict};
pub use error::Error;
pub use exit::{Builder, Exit, arm_all, disarm_all};
pub use head::HookHeader;
pub use hook::Hook;
pub use list::{ExitInfo, HookInfo};
#[doc(hidden)]
pub use record::Kind;

/// The cold path of a tested site.
#[doc(hidden)]
#[cold]
pub fn cold() {}
