//! A trace store as a target.

use std::io;

use super::Sink;
use crate::Record;
use crate::store::{Fact, Loss, Store};

/// A store that is being filled.
#[derive(Debug)]
pub struct StoreSink {
    /// None once it is finished.
    store: Option<Store>,
    lost: u64,
}

impl StoreSink {
    /// A store that has been begun.
    pub fn new(store: Store) -> StoreSink {
        StoreSink { store: Some(store), lost: 0 }
    }
}

impl Sink for StoreSink {
    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.store.as_mut().map_or(Ok(()), |store| store.fact(fact))
    }

    fn keeps_facts(&self) -> bool {
        true
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        match &mut self.store {
            Some(store) => store.record(program, record),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn loss(&mut self, loss: &Loss, _refused: u64) -> io::Result<()> {
        self.fact(&loss.clone().into())
    }

    fn waits(&self) -> bool {
        self.store.as_ref().is_some_and(Store::waits)
    }

    fn idle(&mut self) -> io::Result<()> {
        self.store.as_mut().map_or(Ok(()), Store::idle)
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(mut store) = self.store.take() else { return Ok(()) };
        let flushed = store.flush();
        self.lost = store.lost();
        store.finish()?;
        flushed
    }

    fn lost(&self) -> u64 {
        self.store.as_ref().map_or(self.lost, Store::lost)
    }
}
