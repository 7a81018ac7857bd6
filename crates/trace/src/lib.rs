//! Records: what a probe logged at a hit, with a header. This crate formats, stores, reads and
//! delivers them.
//!
//! A [`Record`] is made when a handler ends and written when the probed instruction has completed.
//! Its header has the [`Items`] that the user asked for, in the order and with the flags of the
//! table in the paper, section 5. As text it is a line for people ([`mod@line`]), the original's
//! kernel log format ([`Text`]), or what a template describes ([`template`]); [`raw`] is the binary
//! form. A [`store`] keeps a whole trace in a file; [`ctf`] writes one as a Common Trace Format
//! directory. [`sink`] has the targets to which records go while they are made.
//!
//! In this crate, "the paper" is Richard J. Moore, *A Universal Dynamic Trace for Linux and other
//! Operating Systems* (FREENIX 2001), and "the original" is the DProbes that it describes.

pub mod ctf;
pub mod digits;
mod header;
mod header_cache;
mod items;
pub mod line;
pub mod queue;
pub mod raw;
mod record;
mod records;
pub mod sink;
pub mod store;
pub mod stored;
pub mod template;
mod text;

pub use items::{Items, UnknownItem};
pub use record::Record;
pub use records::{Entry, Records};
pub use text::{Form, Text};
