//! A trace store as a target.

use std::fs::File;
use std::io;

use super::{NonblockingFile, Sink};
use crate::queue::{Limits, Progress, Queue};
use crate::store::{About, Batch, BatchBuilder, BlockWriter, Fact, Loss};
use crate::{Record, Records};

/// A store that is being written: records are encoded here, and a thread writes the blocks.
#[derive(Debug)]
pub struct StoreSink {
    filling: BatchBuilder,
    queue: Queue<Batch>,
}

impl StoreSink {
    /// Begins a store in an empty file.
    ///
    /// # Errors
    /// The first block could not be written.
    pub fn begin(file: File, about: &About, limits: Limits) -> io::Result<StoreSink> {
        let progress = Progress::default();
        let blocks = BlockWriter::begin(NonblockingFile::new(file, progress.clone()), about)?;
        Ok(StoreSink { filling: BatchBuilder::new(), queue: Queue::new(blocks, limits, progress) })
    }

    #[cold]
    fn hand_over(&mut self) -> io::Result<()> {
        self.filling.take(&mut self.queue.block);
        self.queue.hand_over()
    }
}

impl Sink for StoreSink {
    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        if self.filling.fact(fact)? { self.hand_over() } else { Ok(()) }
    }

    fn keeps_facts(&self) -> bool {
        true
    }

    #[inline]
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.filling.record(program, record)? { self.hand_over() } else { Ok(()) }
    }

    fn records(&mut self, program: u32, records: &mut Records) {
        let StoreSink { filling, queue } = self;
        filling.records(program, records, |filling| {
            filling.take(&mut queue.block);
            queue.hand_over()
        });
    }

    fn loss(&mut self, loss: &Loss, _refused: u64) -> io::Result<()> {
        self.fact(&loss.clone().into())
    }

    fn is_ready(&mut self) -> bool {
        self.queue.is_ready()
    }

    fn set_lossless(&mut self, lossless: bool) {
        self.queue.set_lossless(lossless);
    }

    fn waits(&self) -> bool {
        self.filling.waits()
    }

    fn idle(&mut self) -> io::Result<()> {
        let handed = if self.filling.is_due() && !self.queue.is_busy() { self.hand_over() } else { Ok(()) };
        self.queue.idle().and(handed)
    }

    fn finish(&mut self) -> io::Result<()> {
        let handed = self.hand_over();
        let finished = self.queue.finish();
        handed.and(finished)
    }

    fn lost(&self) -> u64 {
        self.queue.lost()
    }
}
