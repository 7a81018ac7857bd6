//! Writing a store.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::block::{FULL, HEADER, Header, Kind, LARGEST};
use super::encode::Encoder;
use super::facts::{About, Fact, Thread};
use super::index::{Index, Run};
use super::threads::Threads;
use crate::Record;

/// How long records wait for their block to fill.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of data that a record has at most.
pub const MOST_DATA: usize = LARGEST / 2;

/// Bytes of a name that a record has at most. The kernel's names have 15.
pub const MOST_NAME: usize = 1 << 10;

/// A store that is being written.
///
/// Records are kept until their block is full or [`PATIENCE`] is over; then the block is written in one go. Whatever ends the
/// writer, the blocks that were written can be read. Nothing is synchronized with the disk: if the machine itself goes down, the
/// kernel decides how much of the file is there.
#[derive(Debug)]
pub struct Store<W: Write = File> {
    out: W,
    /// The store's own number.
    id: u32,
    encoder: Encoder,
    /// Facts that are not written yet, with room for their block's header before them.
    facts: Vec<u8>,
    /// Memory for a fact.
    body: Vec<u8>,
    /// When the first thing that is kept came.
    since: Option<Instant>,
    /// Blocks so far, and records in them.
    blocks: u32,
    records: u64,
    /// The greatest time so far, and the greatest step back from it.
    greatest: u64,
    disorder: u64,
    /// Bytes written.
    offset: u64,
    /// Records that were taken and could not be written.
    lost: u64,
    /// None once a write has failed: then nobody knows where what follows is.
    index: Option<Index>,
    threads: Threads,
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
        let mut store = Store {
            out,
            id: number_of(about),
            encoder: Encoder::new(),
            facts: vec![0; HEADER],
            body: Vec::new(),
            since: None,
            blocks: 0,
            records: 0,
            greatest: 0,
            disorder: 0,
            offset: 0,
            lost: 0,
            index: Some(Index::new()),
            threads: Threads::default(),
        };
        store.encoder.clear();
        store.fact(&about.clone().into())?;
        store.flush()?;
        Ok(store)
    }

    /// Takes a fact. It is written before the records that are kept, and those that come.
    ///
    /// # Errors
    /// It is too large for a block, or what is kept could not be written.
    pub fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.keep(fact)?;
        if self.facts.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Keeps a fact until its block is written.
    fn keep(&mut self, fact: &Fact) -> io::Result<()> {
        let before = self.facts.len();
        fact.encode(&mut self.facts, &mut self.body);
        if self.facts.len() - before > LARGEST - FULL {
            self.facts.truncate(before);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a fact that is too large for a store"));
        }
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Takes a record of a program, by the program's number.
    ///
    /// # Errors
    /// It has more than [`MOST_DATA`] bytes or a name of more than [`MOST_NAME`], or the block that it has filled could not be written: then all records of that block
    /// are lost ([`Store::lost`]).
    #[inline]
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if record.data.len() > MOST_DATA || record.name.len() > MOST_NAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a record that is too large for a store",
            ));
        }
        if self.encoder.count == 0 {
            self.since.get_or_insert_with(Instant::now);
        }
        if let Some(thread) = self.encoder.push(program, record)
            && self.threads.is_new(thread)
        {
            let (pid, tid, uid, name) = (thread.pid, thread.tid, thread.uid, thread.name.clone());
            self.keep(&Thread { time: record.time, pid, tid, uid, name }.into())?;
        }
        self.disorder = self.disorder.max(self.greatest.saturating_sub(record.time));
        self.greatest = self.greatest.max(record.time);
        let waited = self.encoder.greatest - self.encoder.least;
        let full = self.encoder.bytes.len() >= FULL || self.facts.len() >= FULL;
        if full || waited >= PATIENCE.as_nanos() as u64 { self.flush() } else { Ok(()) }
    }

    /// Writes out what has waited for [`PATIENCE`]. To be called now and then, for example when there is nothing else to do.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn idle(&mut self) -> io::Result<()> {
        if self.since.is_some_and(|since| since.elapsed() >= PATIENCE) { self.flush() } else { Ok(()) }
    }

    /// Whether something is kept that is not written yet.
    pub fn waits(&self) -> bool {
        self.since.is_some()
    }

    /// Writes out all that is kept.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        self.since = None;
        let facts = if self.facts.len() > HEADER { self.write_facts() } else { Ok(()) };
        let records = if self.encoder.count > 0 { self.write_records() } else { Ok(()) };
        facts.and(records)
    }

    /// Records that were taken and then lost, because their block could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    #[cfg(test)]
    pub(super) fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes what is kept, and where everything is. A store that is dropped without it is one that was cut short: what was
    /// kept is not in it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<W> {
        let flushed = self.flush();
        if let Some(index) = self.index.take() {
            let offset = self.offset;
            let payload = index.encode();
            // Nobody needs to find these two by an index.
            self.write_block(Kind::Index, &payload)?;
            self.write_block(Kind::End, &offset.to_le_bytes())?;
        }
        self.out.flush()?;
        flushed.map(|()| self.out)
    }

    fn write_facts(&mut self) -> io::Result<()> {
        let mut block = std::mem::replace(&mut self.facts, vec![0; HEADER]);
        let header = self.header(Kind::Facts, &block[HEADER..]);
        block[..HEADER].copy_from_slice(&header.encode());
        let offset = self.offset;
        let written = self.write(&block);
        if let Some(index) = &mut self.index {
            index.facts(offset);
        }
        self.blocks = self.blocks.wrapping_add(1);
        block.truncate(HEADER);
        self.facts = block;
        written
    }

    fn write_records(&mut self) -> io::Result<()> {
        let payload = std::mem::take(&mut self.encoder.bytes);
        let (count, least, greatest) = (self.encoder.count, self.encoder.least, self.encoder.greatest);
        let header = Header { records: count, least, greatest, ..self.header(Kind::Records, &payload) };
        let offset = self.offset;
        let written = self.write(&header.encode()).and_then(|()| self.write(&payload));
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
        self.encoder.bytes = payload;
        self.encoder.clear();
        written
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

/// A store's own number: blocks of another store, which may stand in what was logged, are not to be taken for its own.
fn number_of(about: &About) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&now.as_nanos().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(about.host.as_bytes());
    hasher.finalize()
}
