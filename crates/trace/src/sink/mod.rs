//! Where records go: targets.
//!
//! A [`Sink`] takes the records of any number of programs, and what is known of these. [`Target`] is how one is named on a command line;
//! `text`, `store`, `ctf`, `ltt`, `klog`, `serial` and `journal` are what there is. Each is alone: what goes wrong with one is no other's
//! business. All that may be slow is written by a thread behind a [`crate::queue`]:
//!
//! ```text
//! tracer -> text, store: made here -> blocks of bytes   -> thread: file
//!        -> Queued                 -> blocks of records -> thread: Ltt, CtfSink, KernelLog, Serial, Journal
//!        -> Terminal: standard error, at once
//! ```

mod ctf;
mod datagram;
mod interface;
mod journal;
mod klog;
pub mod ltt;
mod outlet;
mod pace;
mod queued;
mod serial;
mod store;
mod tail;
mod target;
mod text;
mod view;

pub use ctf::CtfSink;
pub use interface::Sink;
pub use journal::Journal;
pub use klog::KernelLog;
pub use ltt::Ltt;
pub use outlet::Outlet;
pub use queued::Queued;
pub use serial::Serial;
pub use store::StoreSink;
pub use tail::Tail;
pub use target::{Target, UnknownTarget};
pub use text::{Terminal, TextFile};
pub use view::{Live, Texts, View, complaint};
