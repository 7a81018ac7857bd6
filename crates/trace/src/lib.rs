//! Records: what a probe logged, with what it is known by.
//!
//! A [`Record`] is made when a handler ends and written when the probed instruction has completed. Its header
//! holds the [`Items`] that were asked for, in the order and with the flags of the table in the paper, section 5.
//! The text form is the one the original wrote to the kernel log ([`Text`]), or the one that a template gives ([`template`]); the
//! binary form of the header is in [`raw`]. Whole traces are kept in a [`store`], from which they can be read when the traced
//! program is gone, or written as a directory in the Common Trace Format ([`ctf`]). Where records go while they are made
//! is in [`sink`].
//!
//! "The paper" is, in all of this crate, Richard J. Moore, *A Universal Dynamic Trace for Linux and other Operating Systems* (FREENIX 2001).

pub mod ctf;
pub mod digits;
mod header;
mod items;
pub mod queue;
mod quick;
pub mod raw;
mod record;
pub mod sink;
pub mod store;
pub mod template;
mod text;

pub use items::{Items, UnknownItem};
pub use record::Record;
pub use text::{Form, Text};
