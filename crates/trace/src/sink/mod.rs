//! Where records go: targets.
//!
//! A [`Sink`] takes the records of any number of programs, and what is known of these. [`Target`] is how one is named on a command line;
//! `klog`, `serial`, `ltt`, `journal`, `ctf` and `store` are what there is. Each is alone: what goes wrong with one is no other's business.
//!
//! ```text
//! tracer -> record -> sink that writes at once      (ltt, ctf, store)
//!                  -> queue -> thread -> sink that may have to wait   (serial, klog, journal)
//! ```
//!
//! A tracer that waits keeps programs waiting. So sinks that may have to wait for a device or another process are behind a `queue`
//! with a thread of its own. It has bounds: what does not fit is dropped and counted, or waited for where nothing may be lost. A sink that
//! takes nothing for too long then, or that panics, has failed: it is told of once, and is given nothing any more.

mod closing;
mod ctf;
mod datagram;
mod interface;
mod journal;
mod klog;
pub mod ltt;
mod pace;
mod queue;
mod serial;
mod store;
mod tail;
mod target;
mod view;

pub use closing::Closing;
pub use ctf::CtfSink;
pub use interface::Sink;
pub use journal::Journal;
pub use klog::KernelLog;
pub use ltt::Ltt;
pub use queue::Queue;
pub use serial::Serial;
pub use store::StoreSink;
pub use tail::Tail;
pub use target::{Target, UnknownTarget};
pub use view::{Live, Texts, View, complaint};
