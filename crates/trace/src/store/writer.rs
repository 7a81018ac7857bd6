//! Writing a store.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::block::{HEADER, Header, Kind};
use super::facts::{About, Fact};
use super::filling::{Batch, Filling};
use super::index::{Index, Run};
use crate::Record;
use crate::queue::{self, Block};

/// A store that is being written.
///
/// Records are kept until their block is full or [`super::PATIENCE`] is over; then the block is written in one go. Whatever ends the
/// writer, the blocks that were written can be read. Nothing is synchronized with the disk: if the machine itself goes down, the
/// kernel decides how much of the file is there.
#[derive(Debug)]
pub struct Store<W: Write = File> {
    filling: Filling,
    batch: Batch,
    blocks: Blocks<W>,
}

impl Store {
    /// Makes a store; a file that is there is replaced.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, about: &About) -> io::Result<Store> {
        Store::new(File::create(path)?, about)
    }
}

impl<W: Write> Store<W> {
    /// Makes a store at the start of an empty file, and writes its first block.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, about: &About) -> io::Result<Store<W>> {
        Ok(Store { filling: Filling::new(), batch: Batch::default(), blocks: Blocks::begin(out, about)? })
    }

    /// Takes a fact. It is written before the records that are kept, and those that come.
    ///
    /// # Errors
    /// It is too large for a block, or what is kept could not be written.
    pub fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        if self.filling.fact(fact)? { self.flush() } else { Ok(()) }
    }

    /// Takes a record of a program, by the program's number.
    ///
    /// # Errors
    /// It has more than [`super::MOST_DATA`] bytes or a name of more than [`super::MOST_NAME`], or the block that it has filled could not be
    /// written: then all records of that block are lost ([`Store::lost`]).
    #[inline]
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.filling.record(program, record)? { self.flush() } else { Ok(()) }
    }

    /// Writes out what has waited for [`super::PATIENCE`]. To be called now and then, for example when there is nothing else to do.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn idle(&mut self) -> io::Result<()> {
        if self.filling.is_due() { self.flush() } else { Ok(()) }
    }

    /// Whether something is kept that is not written yet.
    pub fn waits(&self) -> bool {
        self.filling.waits()
    }

    /// Writes out all that is kept.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        self.filling.take(&mut self.batch);
        let written = self.blocks.write_batch(&mut self.batch);
        self.batch.clear();
        written
    }

    /// Records that were taken and then lost, because their block could not be written.
    pub fn lost(&self) -> u64 {
        self.blocks.lost
    }

    #[cfg(test)]
    pub(super) fn out_mut(&mut self) -> &mut W {
        &mut self.blocks.out
    }

    /// Writes what is kept, and where everything is. A store that is dropped without it is one that was cut short: what was
    /// kept is not in it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<W> {
        let flushed = self.flush();
        self.blocks.end()?;
        flushed.map(|()| self.blocks.out)
    }
}

/// The blocks of a store, as they are written.
#[derive(Debug)]
pub(crate) struct Blocks<W: Write> {
    out: W,
    /// The store's own number.
    id: u32,
    /// Blocks so far, and records in them.
    blocks: u32,
    records: u64,
    /// The greatest step back in time so far.
    disorder: u64,
    /// Bytes written.
    offset: u64,
    /// Records that could not be written.
    lost: u64,
    /// None once a write has failed: then nobody knows where what follows is.
    index: Option<Index>,
}

impl<W: Write> Blocks<W> {
    /// Begins a store at the start of an empty file: writes its first block.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn begin(out: W, about: &About) -> io::Result<Blocks<W>> {
        let (id, index) = (number_of(about), Some(Index::new()));
        let mut blocks = Blocks { out, id, blocks: 0, records: 0, disorder: 0, offset: 0, lost: 0, index };
        let (mut filling, mut batch) = (Filling::new(), Batch::default());
        filling.fact(&about.clone().into())?;
        filling.take(&mut batch);
        blocks.write_batch(&mut batch)?;
        Ok(blocks)
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// Those of writing: its records are lost.
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

    /// Writes where everything is.
    ///
    /// # Errors
    /// Those of writing.
    fn end(&mut self) -> io::Result<()> {
        if let Some(index) = self.index.take() {
            let offset = self.offset;
            // Nobody needs to find these two by an index.
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

    /// The header of the next block, without records.
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

impl<W: Write + Send> queue::Writer<Batch> for Blocks<W> {
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

/// A store's own number: blocks of another store, which may stand in what was logged, are not to be taken for its own.
fn number_of(about: &About) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&now.as_nanos().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(about.host.as_bytes());
    hasher.finalize()
}
