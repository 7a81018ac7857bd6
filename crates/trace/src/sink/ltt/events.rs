//! Decodes the entries of a stream.

use std::collections::HashMap;

use crate::raw::{self, Malformed};
use crate::{Items, Record};

/// The id of entries about events.
pub(super) const ABOUT: u32 = 0;
/// The bytes before an entry's data: its id, and how many bytes follow.
const HEAD: usize = 8;
/// The greatest size of an event's data, in bytes.
const MAX_EVENT_BYTES: u32 = 1 << 24;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event was created.
    Created {
        /// Its id.
        id: u32,
        /// The bytes of a word in the headers of its records: 4 or 8.
        word: u32,
        /// The module that the program probes.
        module: String,
        /// The format of its data: `HEX`.
        format: String,
        /// The file that its program came from.
        description: String,
    },
    /// An event was destroyed.
    Destroyed(u32),
    /// So many records of this event were lost.
    Lost(u32, u64),
    /// A record of an event, with the items of its header.
    Record(u32, Record, Items),
}

/// Decodes entries one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoder {
    /// The bytes of a word of each event that there is, by id.
    words: HashMap<u32, u32>,
}

/// What is at the start of some bytes.
#[derive(Debug)]
pub(super) enum Decoded {
    /// An entry, and the bytes that it takes.
    Whole(Event, usize),
    /// The beginning of an entry, which has so many bytes, as far as is known.
    Part(usize),
}

impl Decoder {
    /// Decodes the entry at the start of `bytes`. Offsets in errors count from there.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, Malformed> {
        let Some(((id, size), rest)) =
            take(bytes).and_then(|(id, rest)| take(rest).map(|(size, rest)| ((id, size), rest)))
        else {
            return Ok(Decoded::Part(HEAD));
        };
        if size > MAX_EVENT_BYTES {
            let found = format!("{size} bytes, more than any event has");
            return Err(Malformed { offset: 4, item: "DataSize", found });
        }
        let whole = HEAD + size as usize;
        let Some(data) = rest.get(..size as usize) else { return Ok(Decoded::Part(whole)) };
        let event = match id {
            ABOUT => self.about(data)?,
            id => {
                let word = self.words.get(&id).copied().unwrap_or(8);
                let (record, items) = raw::read(data, word as usize)
                    .map_err(|wrong| Malformed { offset: HEAD + wrong.offset, ..wrong })?;
                Event::Record(id, record, items)
            }
        };
        Ok(Decoded::Whole(event, whole))
    }

    fn about(&mut self, data: &[u8]) -> Result<Event, Malformed> {
        let unknown = || Malformed {
            offset: HEAD,
            item: "Data",
            found: format!("{} bytes that describe no event", data.len()),
        };
        let (id, rest) = take(data).ok_or_else(unknown)?;
        // A created event is longer: its format alone has four bytes.
        if rest.is_empty() {
            self.words.remove(&id);
            return Ok(Event::Destroyed(id));
        }
        if let Ok(lost) = rest.try_into() {
            return Ok(Event::Lost(id, u64::from_le_bytes(lost)));
        }
        let (word, rest) = take(rest).ok_or_else(unknown)?;
        let mut texts = rest.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        let mut next = || texts.next().unwrap_or_default();
        let (module, format, description) = (next(), next(), next());
        self.words.insert(id, word);
        Ok(Event::Created { id, word, module, format, description })
    }
}

/// Reads the entries of a stream that is in memory.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    bytes: &'a [u8],
    offset: usize,
    decoder: Decoder,
}

impl<'a> Events<'a> {
    /// Reads a stream from its first byte.
    pub fn of(bytes: &'a [u8]) -> Events<'a> {
        Events { bytes, offset: 0, decoder: Decoder::default() }
    }

    fn event(&mut self) -> Result<Event, Malformed> {
        let left = &self.bytes[self.offset..];
        match self.decoder.decode(left) {
            Ok(Decoded::Whole(event, length)) => {
                self.offset += length;
                Ok(event)
            }
            Ok(Decoded::Part(length)) => {
                let found = format!("{} bytes, but {} are left", length, left.len());
                Err(Malformed { offset: self.offset, item: "an event", found })
            }
            Err(wrong) => Err(Malformed { offset: self.offset + wrong.offset, ..wrong }),
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Malformed>;

    /// The next entry. An error ends the iteration, as nothing says where another entry begins.
    fn next(&mut self) -> Option<Result<Event, Malformed>> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let event = self.event();
        if event.is_err() {
            self.offset = self.bytes.len();
        }
        Some(event)
    }
}

/// Splits off a number.
fn take(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}
