//! What every target is to those that have records.

use std::io;

use super::View;
use crate::Record;
use crate::store::{Fact, Loss};

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

    /// Records that are kept, of a sink that keeps some.
    fn kept(&self) -> Option<u64> {
        None
    }

    /// Whether what is kept must be written before there is room for a record: writing has failed, and is tried again.
    fn is_full(&self) -> bool {
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
