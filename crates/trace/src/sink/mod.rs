//! Targets: where records go.
//!
//! A [`Sink`] takes the records of any number of programs and the facts about them. [`Target`] is
//! the name of one on a command line. The sinks are `text`, `store`, `ctf`, `ltt`, `klog`, `serial`
//! and `journal`; that of `otlp` is the command's, since it needs other crates. A failure of one
//! does not affect the others. All that may be slow is written by a thread behind a
//! [`crate::queue`]:
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
mod queued;
mod rate_limit;
mod serial;
mod store;
mod target;
mod text;
mod view;
mod whole_records;

pub use ctf::CtfSink;
pub use interface::Sink;
pub use journal::Journal;
pub use klog::KernelLog;
pub use ltt::Ltt;
pub use outlet::NonblockingFile;
pub use queued::Queued;
pub use serial::Serial;
pub use store::StoreSink;
pub use target::{Target, UnknownTarget};
pub use text::{Terminal, TextFile};
pub use view::{ProgramText, ProgramTexts, View, complaint};
pub use whole_records::Retractable;
