//! Writes a store.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::batch_builder::{Batch, BatchBuilder};
use super::block::{HEADER, Header, Kind};
use super::facts::{About, Fact};
use super::index::{Index, Run};
use crate::Record;
use crate::queue::{self, Block};

/// A store that is being written.
///
/// It keeps records until their block is full or [`super::BLOCK_TIMEOUT`] is over, then writes the
/// block at once. However the writer ends, the blocks that were written can be read. The file is
/// not synced to disk: if the machine crashes, the kernel decides how much of it is there.
#[derive(Debug)]
pub struct Store<W: Write = File> {
    filling: BatchBuilder,
    batch: Batch,
    blocks: BlockWriter<W>,
}

impl Store {
    /// Creates a store. Replaces an existing file.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, about: &About) -> io::Result<Store> {
        Store::new(File::create(path)?, about)
    }
}

impl<W: Write> Store<W> {
    /// Begins a store in an empty file and writes its first block.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, about: &About) -> io::Result<Store<W>> {
        Ok(Store {
            filling: BatchBuilder::new(),
            batch: Batch::default(),
            blocks: BlockWriter::begin(out, about)?,
        })
    }

    /// Takes a fact. It is written before the records that are kept at present, and before all
    /// later ones.
    ///
    /// # Errors
    /// It is too large for a block, or kept data could not be written.
    pub fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        if self.filling.fact(fact)? { self.flush() } else { Ok(()) }
    }

    /// Takes a record of a program, given by number.
    ///
    /// # Errors
    /// The record has more than [`super::MAX_DATA`] bytes or a name of more than
    /// [`super::MAX_NAME`], or it filled a block that could not be written: then all records of
    /// that block are lost ([`Store::lost`]).
    #[inline]
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.filling.record(program, record)? { self.flush() } else { Ok(()) }
    }

    /// Writes what has been kept for [`super::BLOCK_TIMEOUT`]. Call it now and then, for example
    /// when there is nothing else to do.
    ///
    /// # Errors
    /// A write failed; what could not be written is lost.
    pub fn idle(&mut self) -> io::Result<()> {
        if self.filling.is_due() { self.flush() } else { Ok(()) }
    }

    /// Whether anything is kept that is not written yet.
    pub fn waits(&self) -> bool {
        self.filling.waits()
    }

    /// Writes all that is kept.
    ///
    /// # Errors
    /// A write failed; what could not be written is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        self.filling.take(&mut self.batch);
        let written = self.blocks.write_batch(&mut self.batch);
        self.batch.clear();
        written
    }

    /// How many records were taken and then lost because their block could not be written.
    pub fn lost(&self) -> u64 {
        self.blocks.lost
    }

    #[cfg(test)]
    pub(super) fn out_mut(&mut self) -> &mut W {
        &mut self.blocks.out
    }

    /// Writes what is kept, then the index. A store that is dropped without this call has no index
    /// and lacks what was kept.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(mut self) -> io::Result<W> {
        let flushed = self.flush();
        self.blocks.end()?;
        flushed.map(|()| self.blocks.out)
    }
}

/// Writes the blocks of a store.
#[derive(Debug)]
pub(crate) struct BlockWriter<W: Write> {
    out: W,
    /// The store's id.
    id: u32,
    /// The number of blocks so far, and of records in them.
    blocks: u32,
    records: u64,
    /// The greatest step back in time so far, in nanoseconds.
    disorder: u64,
    /// How many bytes were written.
    offset: u64,
    /// How many records could not be written.
    lost: u64,
    /// None after a failed write: the offsets of later blocks are then unknown.
    index: Option<Index>,
}

impl<W: Write> BlockWriter<W> {
    /// Begins a store in an empty file: writes its first block.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn begin(out: W, about: &About) -> io::Result<BlockWriter<W>> {
        let (id, index) = (store_id(about), Some(Index::new()));
        let mut blocks =
            BlockWriter { out, id, blocks: 0, records: 0, disorder: 0, offset: 0, lost: 0, index };
        let (mut filling, mut batch) = (BatchBuilder::new(), Batch::default());
        filling.fact(&about.clone().into())?;
        filling.take(&mut batch);
        blocks.write_batch(&mut batch)?;
        Ok(blocks)
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// A write failed; the records of the batch are lost.
    fn write_batch(&mut self, batch: &mut Batch) -> io::Result<()> {
        let facts = if batch.facts.is_empty() { Ok(()) } else { self.write_facts(&mut batch.facts) };
        self.disorder = batch.disorder;
        let records = if batch.count > 0 { self.write_records(batch) } else { Ok(()) };
        facts.and(records)
    }

    fn write_facts(&mut self, block: &mut [u8]) -> io::Result<()> {
        let header = self.header(Kind::Facts, &block[HEADER..]);
        block[..HEADER].copy_from_slice(&header.encode());
        let offset = self.offset;
        let written = self.write(block);
        if let Some(index) = &mut self.index {
            index.facts(offset);
        }
        self.blocks = self.blocks.wrapping_add(1);
        written
    }

    fn write_records(&mut self, batch: &Batch) -> io::Result<()> {
        let Batch { records, count, least, greatest, .. } = batch;
        let (records, count, least, greatest) = (records.as_slice(), *count, *least, *greatest);
        let header = Header { records: count, least, greatest, ..self.header(Kind::Records, records) };
        let offset = self.offset;
        let written = self.write(&header.encode()).and_then(|()| self.write(records));
        match &written {
            Ok(()) => {
                if let Some(index) = &mut self.index {
                    index.records(Run { offset, records: count.into(), least, greatest });
                }
            }
            Err(_) => self.lost += u64::from(count),
        }
        self.blocks = self.blocks.wrapping_add(1);
        self.records += u64::from(count);
        written
    }

    /// Writes the index and the end block.
    ///
    /// # Errors
    /// A write failed.
    fn end(&mut self) -> io::Result<()> {
        if let Some(index) = self.index.take() {
            let offset = self.offset;
            // The index does not list these two blocks.
            self.write_block(Kind::Index, &index.encode())?;
            self.write_block(Kind::End, &offset.to_le_bytes())?;
        }
        self.out.flush()
    }

    fn write_block(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let header = self.header(kind, payload);
        self.write(&header.encode())?;
        self.write(payload)?;
        self.blocks = self.blocks.wrapping_add(1);
        Ok(())
    }

    /// The header of the next block; the caller adds the values for records.
    fn header(&self, kind: Kind, payload: &[u8]) -> Header {
        Header {
            store: self.id,
            kind,
            length: payload.len() as u32,
            first: self.records,
            least: 0,
            greatest: 0,
            disorder: self.disorder,
            records: 0,
            number: self.blocks,
            checksum: crc32fast::hash(payload),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.out.write_all(bytes);
        match &written {
            Ok(()) => self.offset += bytes.len() as u64,
            Err(_) => self.index = None,
        }
        written
    }
}

impl<W: Write + Send> queue::Writer<Batch> for BlockWriter<W> {
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        self.write_batch(batch)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.end()
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// The store's id. It keeps the reader from taking blocks of another store, which may be among the
/// logged data, for its own.
fn store_id(about: &About) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&now.as_nanos().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(about.host.as_bytes());
    hasher.finalize()
}
