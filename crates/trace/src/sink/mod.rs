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

use std::io;

use crate::Record;
use crate::store::{Fact, Loss};

pub use closing::Closing;
pub use ctf::CtfSink;
pub use journal::Journal;
pub use klog::KernelLog;
pub use ltt::Ltt;
pub use queue::Queue;
pub use serial::Serial;
pub use store::StoreSink;
pub use tail::Tail;
pub use target::{Target, UnknownTarget};
pub use view::{Live, Texts, View, complaint};

/// Takes records.
pub trait Sink {
    /// Says how the records of a program are shown, before the first of them.
    fn show(&mut self, _program: u32, _view: &View) {}

    /// Takes what is known beside the records: programs and their probes, before their records; and all else for sinks that keep it.
    ///
    /// # Errors
    /// It could not be written.
    fn fact(&mut self, _fact: &Fact) -> io::Result<()> {
        Ok(())
    }

    /// Whether all facts are of use here. Those of programs and probes are to every sink.
    fn keeps_facts(&self) -> bool {
        false
    }

    /// Takes a record of a program.
    ///
    /// # Errors
    /// It is lost, or the sink is too slow for it, or what was kept with it could not be written.
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()>;

    /// Takes a number of records that were lost before they came to any sink; `refused` of them are those that no sink took.
    ///
    /// # Errors
    /// It could not be written.
    fn loss(&mut self, _loss: &Loss, _refused: u64) -> io::Result<()> {
        Ok(())
    }

    /// No record of this program will come any more.
    ///
    /// # Errors
    /// What ends it could not be written.
    fn forget(&mut self, _program: u32) -> io::Result<()> {
        Ok(())
    }

    /// Whether a record can be taken now without a loss and without a wait. While a sink is not ready, records stay where they come
    /// from: those that may be lost are dropped there when there is no room, and the programs of all others wait. A sink that rather
    /// drops them itself is always ready.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Whether what has no room is to be waited for from now on, where it would be dropped.
    fn set_lossless(&mut self, _lossless: bool) {}

    /// Whether something is kept that is to be written before long.
    fn waits(&self) -> bool {
        false
    }

    /// Called now and then: writes what has waited long enough.
    ///
    /// # Errors
    /// Something could not be written, now or since the last call.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reads templates again that have been changed; what is wrong with them is told.
    fn refresh(&mut self, _tell: &mut dyn FnMut(&str)) {}

    /// Comes to an end, with all that is kept: nothing follows.
    ///
    /// # Errors
    /// What was kept could not be written.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Records that it was given and did not bring to their place.
    fn lost(&self) -> u64;
}
