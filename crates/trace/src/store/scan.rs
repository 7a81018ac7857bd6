//! Finds the blocks of a file, even if it is damaged.
//!
//! Where there is no sound block, the scanner searches for the next one by its mark and the store's
//! id. It also searches inside a block whose header is sound and whose payload is not: a write that
//! failed half way leaves the start of a block, and later blocks begin inside it. A forged file
//! could consist of such headers only, so no more bytes are searched twice than the file has.

use std::io::{self, Read, Seek, SeekFrom};

use super::block::{HEADER, Header, MARK, MAX_PAYLOAD, is_store};
use super::damage::Damage;

/// The bytes that are searched at a time.
const WINDOW: usize = 1 << 16;

/// How many bytes of a file whose start is damaged are searched for a sound block.
const START: u64 = 4 * MAX_PAYLOAD as u64;

/// The next thing in a file.
#[derive(Debug)]
pub(super) enum Found {
    /// A sound block at this offset, with its payload in memory.
    Block(Header, u64),
    Damage(Damage),
    End,
}

/// Damage whose end is not known yet.
#[derive(Debug)]
struct Open {
    offset: u64,
    what: String,
}

/// The expected numbers of the next block and of its first record.
#[derive(Clone, Copy, Debug)]
struct Expected {
    block: u32,
    record: u64,
}

/// The read position in a file of blocks.
#[derive(Debug)]
pub(super) struct BlockScanner<S> {
    source: S,
    /// The size of the file, in bytes.
    pub(super) length: u64,
    /// The store's id, once it is known.
    pub(super) id: Option<u32>,
    position: u64,
    expected: Option<Expected>,
    open: Option<Open>,
    /// A sound block that is returned after the damage before it.
    held: Option<(Header, u64)>,
    /// The payload of the last block that was read.
    pub(super) payload: Vec<u8>,
    /// How many bytes were searched twice.
    again: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<S: Read + Seek> BlockScanner<S> {
    /// Begins at the start of a file.
    pub(super) fn new(mut source: S) -> io::Result<BlockScanner<S>> {
        let length = source.seek(SeekFrom::End(0))?;
        Ok(BlockScanner {
            source,
            length,
            id: None,
            position: 0,
            expected: Some(Expected { block: 0, record: 0 }),
            open: None,
            held: None,
            payload: Vec::new(),
            again: 0,
            window: Vec::new(),
            window_at: 0,
        })
    }

    /// Why the file is no store; none if it begins like one or has a sound block near its start.
    pub(super) fn is_no_store(&mut self) -> io::Result<Option<String>> {
        if self.length == 0 {
            return Ok(Some("it is empty".to_owned()));
        }
        let mut start = [0; MARK.len()];
        if self.length >= start.len() as u64 {
            self.source.seek(SeekFrom::Start(0))?;
            self.source.read_exact(&mut start)?;
        }
        if is_store(&start) {
            return Ok(None);
        }
        // The first block may be damaged.
        self.length = self.length.min(START);
        let mut sound = false;
        let mut look = |_: &Header| {
            sound = true;
            false
        };
        while !matches!(self.next(&mut look)?, Found::End) {}
        self.go_to(0)?;
        Ok((!sound).then(|| "it does not begin like one, and there is no block near its start".to_owned()))
    }

    /// Sets the position, and the length of the file, which may have grown. The next block's
    /// numbers are known only at the start.
    pub(super) fn go_to(&mut self, position: u64) -> io::Result<()> {
        self.length = self.source.seek(SeekFrom::End(0))?;
        self.position = position;
        self.expected = (position == 0).then_some(Expected { block: 0, record: 0 });
        (self.open, self.held) = (None, None);
        self.again = 0;
        self.window.clear();
        Ok(())
    }

    /// The next sound block for which `wanted` returns true, or the next damage.
    pub(super) fn next(&mut self, mut wanted: impl FnMut(&Header) -> bool) -> io::Result<Found> {
        loop {
            if let Some((header, offset)) = self.held.take() {
                return Ok(Found::Block(header, offset));
            }
            if self.position >= self.length {
                return Ok(self.close(None).map_or(Found::End, Found::Damage));
            }
            let offset = self.position;
            match self.block(offset, &mut wanted)? {
                Ok((header, read)) => {
                    self.position = offset + header.size();
                    let damage = self.close(Some((&header, offset)));
                    self.id = Some(header.store);
                    self.expected =
                        Some(Expected { block: header.number.wrapping_add(1), record: header.after() });
                    match damage {
                        Some(damage) => {
                            self.held = read.then_some((header, offset));
                            return Ok(Found::Damage(damage));
                        }
                        None if read => return Ok(Found::Block(header, offset)),
                        None => {}
                    }
                }
                Err((at, what, size)) => {
                    self.open.get_or_insert(Open { offset: offset + at, what });
                    let again = self.again.saturating_add(size);
                    self.position = match again <= self.length {
                        true => {
                            self.again = again;
                            self.find(offset + 1)?
                        }
                        false => offset.saturating_add(size).max(offset + 1),
                    };
                }
            }
        }
    }

    /// The block at an offset, and whether its payload was read. If it is not sound: the position
    /// in it, what is wrong, and how many of its bytes will be searched again.
    #[expect(clippy::type_complexity, reason = "of one caller")]
    fn block(
        &mut self,
        offset: u64,
        wanted: &mut impl FnMut(&Header) -> bool,
    ) -> io::Result<Result<(Header, bool), (u64, String, u64)>> {
        let header = match self.header(offset)? {
            Ok(header) => header,
            Err(wrong) => return Ok(Err((wrong.0, wrong.1, 0))),
        };
        let there = self.length - offset;
        if there < header.size() {
            let what = format!("the file ends inside a block, after {there} of {} bytes", header.size());
            return Ok(Err((0, what, there)));
        }
        if !wanted(&header) {
            return Ok(Ok((header, false)));
        }
        self.payload.resize(header.length as usize, 0);
        self.source.seek(SeekFrom::Start(offset + HEADER as u64))?;
        self.source.read_exact(&mut self.payload)?;
        Ok(match crc32fast::hash(&self.payload) == header.checksum {
            true => Ok((header, true)),
            false => Err((0, "a block has a wrong checksum".to_owned(), header.size())),
        })
    }

    /// The sound header at an offset, of this store and not of an earlier block.
    fn header(&mut self, offset: u64) -> io::Result<Result<Header, (u64, String)>> {
        let there = self.length - offset;
        if there < HEADER as u64 {
            return Ok(Err((
                0,
                format!("the file ends inside the header of a block, after {there} of {HEADER} bytes"),
            )));
        }
        let mut bytes = [0; HEADER];
        let start = offset.wrapping_sub(self.window_at) as usize;
        match self.window.get(start..start.saturating_add(HEADER)) {
            Some(known) => bytes.copy_from_slice(known),
            None => {
                self.source.seek(SeekFrom::Start(offset))?;
                self.source.read_exact(&mut bytes)?;
            }
        }
        Ok(match Header::decode(&bytes) {
            Err(wrong) => Err((wrong.at as u64, wrong.what)),
            Ok(header) if self.id.is_some_and(|id| id != header.store) => {
                Err((4, "a block of another store".to_owned()))
            }
            Ok(header) if self.expected.is_some_and(|expected| header.number < expected.block) => {
                Err((52, "a block out of order".to_owned()))
            }
            Ok(header) => Ok(header),
        })
    }

    /// The next offset at which a block may begin; the end of the file if there is none.
    fn find(&mut self, from: u64) -> io::Result<u64> {
        let mut mark = MARK.to_vec();
        mark.extend(self.id.iter().flat_map(|id| id.to_le_bytes()));
        let mut at = from;
        loop {
            let start = at.wrapping_sub(self.window_at) as usize;
            if let Some(rest) = self.window.get(start..) {
                if let Some(place) = rest.windows(mark.len()).position(|bytes| bytes == mark) {
                    return Ok(at + place as u64);
                }
                // A mark may begin in the last bytes and end in the next window.
                at += (rest.len() + 1).saturating_sub(mark.len()) as u64;
            }
            let left = self.length.saturating_sub(at);
            if left < HEADER as u64 {
                return Ok(self.length);
            }
            self.window.resize(left.min(WINDOW as u64) as usize, 0);
            self.window_at = at;
            self.source.seek(SeekFrom::Start(at))?;
            self.source.read_exact(&mut self.window)?;
        }
    }

    /// Ends the open damage before a sound block or the end of the file, and reports missing
    /// blocks.
    fn close(&mut self, block: Option<(&Header, u64)>) -> Option<Damage> {
        let lost = |header: &Header| {
            let expected = self.expected?;
            let blocks = header.number.saturating_sub(expected.block);
            Some((u64::from(blocks), header.first.saturating_sub(expected.record)))
        };
        let lost = block.and_then(|(header, _)| lost(header));
        let end = block.map_or(self.length, |(_, offset)| offset);
        let gone = lost.is_some_and(|lost| lost != (0, 0));
        if self.open.is_none() && !gone {
            return None;
        }
        let open = self.open.take().unwrap_or_else(|| Open {
            offset: end,
            what: "blocks are missing: they could not be written".to_owned(),
        });
        Some(Damage {
            offset: open.offset,
            what: open.what,
            skipped: end.saturating_sub(open.offset),
            blocks: lost.map(|(blocks, _)| blocks),
            records: lost.map(|(_, records)| records),
        })
    }

    /// Reads the sound block at an offset without changing the position.
    pub(super) fn read_at(&mut self, offset: u64) -> io::Result<Option<Header>> {
        if offset >= self.length {
            return Ok(None);
        }
        let expected = self.expected.take();
        let block = self.block(offset, &mut |_| true)?;
        self.expected = expected;
        Ok(block.ok().map(|(header, _)| header))
    }
}
