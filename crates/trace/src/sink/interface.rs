//! The interface of a target.

use std::io;

use super::View;
use crate::store::{Fact, Loss};
use crate::{Record, Records};

/// A target: takes records.
pub trait Sink {
    /// Sets how the records of a program are shown. Called before the first of them.
    fn show(&mut self, _program: u32, _view: &View) {}

    /// Takes a fact about the trace. Programs and probes come before their records; other facts
    /// come only if [`Sink::keeps_facts`].
    ///
    /// # Errors
    /// It could not be written.
    fn fact(&mut self, _fact: &Fact) -> io::Result<()> {
        Ok(())
    }

    /// Whether the sink wants all facts. Every sink gets those about programs and probes.
    fn keeps_facts(&self) -> bool {
        false
    }

    /// Takes a record of a program.
    ///
    /// # Errors
    /// The record is lost, the sink is too slow for it, or records kept earlier could not be
    /// written.
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()>;

    /// Takes records of a program. Those that [`Sink::record`] would fail for are refused.
    fn records(&mut self, program: u32, records: &mut Records) {
        records.each(|record| self.record(program, record));
    }

    /// Takes a count of records that were lost before they reached any sink, or that no sink took:
    /// `refused` of them are the latter.
    ///
    /// # Errors
    /// It could not be written.
    fn loss(&mut self, _loss: &Loss, _refused: u64) -> io::Result<()> {
        Ok(())
    }

    /// Notes that no more records of this program will come.
    ///
    /// # Errors
    /// The end of the program could not be written.
    fn forget(&mut self, _program: u32) -> io::Result<()> {
        Ok(())
    }

    /// Whether the sink can take a record now without loss and without waiting. While a sink is not
    /// ready, records stay in their rings: when these are full, records are dropped there, or with
    /// lossless tracing the programs wait. A sink that prefers to drop records itself is always
    /// ready.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Sets whether a record without room waits from now on instead of being dropped.
    fn set_lossless(&mut self, _lossless: bool) {}

    /// Whether the sink keeps anything that is to be written before long.
    fn waits(&self) -> bool {
        false
    }

    /// The number of records that are kept, for a sink that keeps some.
    fn kept(&self) -> Option<u64> {
        None
    }

    /// Whether kept records must be written before there is room for another: writing has failed
    /// and is tried again.
    fn is_full(&self) -> bool {
        false
    }

    /// Called now and then: writes what was kept long enough.
    ///
    /// # Errors
    /// Something could not be written, now or since the last call.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reads changed templates again. Mistakes in them go to `tell`.
    fn refresh(&mut self, _tell: &mut dyn FnMut(&str)) {}

    /// Writes all that is kept and ends. Only [`Sink::refresh`] and [`Sink::lost`] follow.
    ///
    /// # Errors
    /// Kept records could not be written.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The number of records that the sink was given and did not deliver.
    fn lost(&self) -> u64;
}
