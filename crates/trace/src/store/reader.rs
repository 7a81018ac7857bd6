//! Reads a store.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use super::block::{HEADER, Header, Kind};
use super::bytes::{Cursor, DecodeError};
use super::damage::{Damage, Error};
use super::decode::{Decoder, Step};
use super::facts::Fact;
use super::filter::Filter;
use super::index::Index;
use super::info::Info;
use super::scan::{BlockScanner, Found};
use crate::Record;

/// An item of a store.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A record.
    Record(Entry<'a>),
    /// A fact, at its place in the file. [`Reader::info`] has all facts from the start.
    Fact(Fact),
    /// A part that cannot be read.
    Damage(Damage),
}

/// A record of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its number in the store, from 0 on. Lost records are counted.
    pub number: u64,
    /// The number of its program.
    pub program: u32,
    /// The record.
    pub record: &'a Record,
}

/// The reader's position.
#[derive(Clone, Copy, Debug)]
enum ReadPosition {
    /// Between two blocks.
    Between,
    /// In a block of records, at this offset.
    Records(Header, u64),
    /// In the block of facts at this offset, at this position of its payload.
    Facts(u64, usize),
}

/// Reads a store block by block: it holds one block, the facts, and one record in memory.
#[derive(Debug)]
pub struct Reader<S = File> {
    blocks: BlockScanner<S>,
    place: ReadPosition,
    decoder: Decoder,
    record: Record,
    filter: Filter,
    index: Option<Index>,
    info: Info,
}

impl Reader {
    /// Opens a store.
    ///
    /// # Errors
    /// The file cannot be read, or is no store.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(Error::NotAStore("it is not a regular file".to_owned()));
        }
        Reader::new(file)
    }
}

impl<S: Read + Seek> Reader<S> {
    /// Opens a store from any source: a file, or bytes in memory. It reads all facts at once.
    /// Without an index (the store was not ended cleanly) it also reads the headers of all blocks.
    ///
    /// # Errors
    /// The source cannot be read, or is no store.
    pub fn new(source: S) -> Result<Reader<S>, Error> {
        let mut blocks = BlockScanner::new(source)?;
        if let Some(reason) = blocks.is_no_store()? {
            return Err(Error::NotAStore(reason));
        }
        let (index, disorder) = index(&mut blocks)?.unzip();
        let mut reader = Reader {
            index,
            blocks,
            place: ReadPosition::Between,
            decoder: Decoder::default(),
            record: Record::default(),
            filter: Filter::default(),
            info: Info { disorder: disorder.unwrap_or(0), ..Info::default() },
        };
        reader.survey()?;
        reader.rewind()?;
        Ok(reader)
    }

    /// The summary of the store.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Rewinds, and reads only records that the filter accepts from now on. Blocks without any,
    /// according to their times, are skipped unread; damage in them is not reported.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn select(&mut self, filter: Filter) -> Result<(), Error> {
        self.filter = filter.ready();
        self.rewind()
    }

    /// Goes to the start. Without an index, what was written since the store was opened is read,
    /// too.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rewind(&mut self) -> Result<(), Error> {
        let start = match (&self.index, self.filter.from) {
            (Some(index), Some(from)) => index.find(from).unwrap_or(self.blocks.length),
            _ => 0,
        };
        self.place = ReadPosition::Between;
        self.blocks.go_to(start)?;
        Ok(())
    }

    /// The next item; none at the end. Its record is overwritten by the next call. No memory is
    /// allocated for a record.
    ///
    /// # Errors
    /// The file cannot be read. Damage in it is not an error but an item.
    #[expect(
        clippy::should_implement_trait,
        reason = "items borrow from the reader, as an iterator's cannot"
    )]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, Error> {
        loop {
            match self.place {
                ReadPosition::Records(header, offset) => {
                    let payload = &self.blocks.payload;
                    if self.decoder.is_at_end(payload) {
                        self.place = ReadPosition::Between;
                        match miscounted(&header, offset, self.decoder.count) {
                            Some(damage) => return Ok(Some(Item::Damage(damage))),
                            None => continue,
                        }
                    }
                    let number = header.first.saturating_add(self.decoder.count.into());
                    match self.decoder.next(payload, &self.filter, &mut self.record) {
                        Ok(Step::Passed) => {}
                        Ok(Step::Record(program)) => {
                            let record = &self.record;
                            return Ok(Some(Item::Record(Entry { number, program, record })));
                        }
                        Err(wrong) => {
                            self.place = ReadPosition::Between;
                            let damage = inside(&header, offset, wrong, self.decoder.count);
                            return Ok(Some(Item::Damage(damage)));
                        }
                    }
                }
                ReadPosition::Facts(offset, at) => match next_fact(&self.blocks.payload, at) {
                    Ok(None) => self.place = ReadPosition::Between,
                    Ok(Some((fact, at))) => {
                        self.place = ReadPosition::Facts(offset, at);
                        if let Some(fact) = fact {
                            return Ok(Some(Item::Fact(fact)));
                        }
                    }
                    Err(wrong) => {
                        self.place = ReadPosition::Between;
                        let skipped =
                            (self.blocks.payload.len() - wrong.at.min(self.blocks.payload.len())) as u64;
                        return Ok(Some(Item::Damage(Damage {
                            offset: offset + (HEADER + wrong.at) as u64,
                            what: wrong.what,
                            skipped,
                            blocks: Some(0),
                            records: Some(0),
                        })));
                    }
                },
                ReadPosition::Between => {
                    let filter = &self.filter;
                    let wanted = |header: &Header| match header.kind {
                        Kind::Facts => true,
                        Kind::Records => filter.wants_times(header.least, header.greatest),
                        Kind::Index | Kind::End => false,
                    };
                    match self.blocks.next(wanted)? {
                        Found::End => return Ok(None),
                        Found::Damage(damage) => return Ok(Some(Item::Damage(damage))),
                        Found::Block(header, offset) if header.kind == Kind::Records => {
                            match self.decoder.begin(&self.blocks.payload) {
                                Ok(()) => self.place = ReadPosition::Records(header, offset),
                                Err(wrong) => {
                                    let damage = inside(&header, offset, wrong, 0);
                                    return Ok(Some(Item::Damage(damage)));
                                }
                            }
                        }
                        Found::Block(_, offset) => self.place = ReadPosition::Facts(offset, 0),
                    }
                }
            }
        }
    }

    /// Reads all facts, by the index if there is one.
    fn survey(&mut self) -> Result<(), Error> {
        if let Some(index) = &self.index {
            self.info.complete = true;
            self.info.count_all(index);
            if index.whole {
                for &offset in &index.facts {
                    // `next` reports a damaged block when it gets there.
                    if self.blocks.read_at(offset)?.is_some_and(|header| header.kind == Kind::Facts) {
                        take_facts(&self.blocks.payload, &mut self.info);
                    }
                }
                return Ok(());
            }
        }
        let by_index = self.index.is_some();
        let (mut sound, mut first) = (false, None);
        loop {
            let info = &mut self.info;
            let wanted = |header: &Header| {
                sound = true;
                if !by_index {
                    info.count(header);
                }
                header.kind == Kind::Facts
            };
            match self.blocks.next(wanted)? {
                Found::End if sound => return Ok(()),
                Found::End => {
                    let what = first.unwrap_or_else(|| "it contains no block".to_owned());
                    return Err(Error::NotAStore(what));
                }
                Found::Damage(damage) => {
                    first.get_or_insert(damage.what);
                }
                Found::Block(..) => take_facts(&self.blocks.payload, &mut self.info),
            }
        }
    }
}

/// Adds the facts of a block to the summary.
fn take_facts(payload: &[u8], info: &mut Info) {
    let mut at = 0;
    while let Ok(Some((fact, next))) = next_fact(payload, at) {
        if let Some(fact) = fact {
            info.take(fact);
        }
        at = next;
    }
}

/// The index of a store that ended cleanly, and the greatest step back in time.
fn index<S: Read + Seek>(blocks: &mut BlockScanner<S>) -> Result<Option<(Index, u64)>, Error> {
    const END: u64 = HEADER as u64 + 8;
    let Some(last) = blocks.length.checked_sub(END) else { return Ok(None) };
    let Some(end) = blocks.read_at(last)?.filter(|header| header.kind == Kind::End) else { return Ok(None) };
    let Some(&offset) = blocks.payload.first_chunk() else { return Ok(None) };
    let found = blocks.read_at(u64::from_le_bytes(offset))?;
    if !found.is_some_and(|header| header.kind == Kind::Index && header.store == end.store) {
        return Ok(None);
    }
    // With offsets beyond the file, the reader would find nothing.
    let index = Index::decode(&blocks.payload).ok().filter(|index| index.is_within(last));
    blocks.id = index.is_some().then_some(end.store);
    Ok(index.map(|index| (index, end.disorder)))
}

/// The next fact of a payload and the position after it. The fact is none if its tag is unknown.
fn next_fact(payload: &[u8], at: usize) -> Result<Option<(Option<Fact>, usize)>, DecodeError> {
    let mut cursor = Cursor::new(payload, at);
    if cursor.left() == 0 {
        return Ok(None);
    }
    let fact = Fact::decode(&mut cursor)?;
    Ok(Some((fact, cursor.at())))
}

/// The damage of a block of records that cannot be decoded further after `read` records.
fn inside(header: &Header, offset: u64, wrong: DecodeError, read: u32) -> Damage {
    Damage {
        offset: offset + (HEADER + wrong.at) as u64,
        what: wrong.what,
        skipped: u64::from(header.length).saturating_sub(wrong.at as u64),
        blocks: Some(0),
        records: Some(header.records.saturating_sub(read).into()),
    }
}

/// The damage of a block whose header has the wrong number of records.
fn miscounted(header: &Header, offset: u64, read: u32) -> Option<Damage> {
    (header.records != read).then(|| Damage {
        offset: offset + 48,
        what: format!("the record count in a block's header is {}, but {read} were found", header.records),
        skipped: 0,
        blocks: Some(0),
        records: Some(header.records.saturating_sub(read).into()),
    })
}
