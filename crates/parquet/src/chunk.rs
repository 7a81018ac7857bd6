//! The values of one column in one row group, as pages.
//!
//! ```text
//! chunk      = dictionary page?, data page...      a data page for each 16,384 rows
//! page       = header, compressed body
//! dictionary = each value once, plain
//! data       = length, which rows have values (hybrid), the values:
//!              width, their numbers in the dictionary (hybrid)
//!              or delta, for numbers that rarely repeat
//!              or plain
//! ```

use std::io;

use foldhash::{HashMap, HashMapExt};
use snap::raw::{Encoder, max_compress_len};

use crate::column::{Column, Values};
use crate::encoding::{delta, hybrid, plain, plain_bytes, width};
use crate::schema::{Field, Holds};
use crate::statistics::Statistics;
use crate::texts::Texts;
use crate::thrift::Thrift;

/// Rows of a page.
const PAGE_ROWS: usize = 1 << 14;
/// Most numbers in a dictionary.
const MAX_DICTIONARY: usize = 1 << 15;

/// Parquet's numbers of the encodings. `RUNS` is the one of which rows have values.
const PLAIN: i32 = 0;
const RUNS: i32 = 3;
const DELTA: i32 = 5;
const DICTIONARY: i32 = 8;
/// And of Snappy.
const SNAPPY: i32 = 1;

/// Compresses pages, in memory that is kept from one to the next.
#[derive(Debug)]
pub(crate) struct Compressor {
    encoder: Encoder,
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new() -> Compressor {
        Compressor { encoder: Encoder::new(), out: Vec::new() }
    }

    fn compress(&mut self, body: &[u8]) -> io::Result<&[u8]> {
        self.out.resize(max_compress_len(body.len()), 0);
        let length = self.encoder.compress(body, &mut self.out).map_err(io::Error::other)?;
        Ok(&self.out[..length])
    }
}

/// A chunk that is written.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the pages before they were compressed.
    pub(crate) size: usize,
    rows: usize,
    encoding: i32,
    /// Where the data pages begin: behind the dictionary, if there is one.
    data: usize,
    statistics: Statistics,
}

/// Each value once, and which of them each row has.
#[derive(Debug, Default)]
struct Dictionary {
    /// The values, plain.
    values: Vec<u8>,
    length: usize,
    numbers: Vec<u32>,
}

impl Dictionary {
    /// Of numbers, if that is worthwhile.
    fn of_numbers(numbers: &[i64], bytes: usize) -> Option<Dictionary> {
        let most = MAX_DICTIONARY.min(numbers.len().div_ceil(2));
        let mut known: HashMap<i64, u32> = HashMap::new();
        let mut all = Dictionary::default();
        let mut last = None;
        for number in numbers {
            let own = match last {
                Some((value, own)) if value == number => own,
                _ => *known.entry(*number).or_insert_with(|| {
                    plain([*number], bytes, &mut all.values);
                    all.length += 1;
                    all.length as u32 - 1
                }),
            };
            last = Some((number, own));
            all.numbers.push(own);
            if all.length > most {
                return None;
            }
        }
        (all.length > 0).then_some(all)
    }

    /// Of texts, by their numbers in `texts`.
    fn of_texts(numbers: &[u32], texts: &Texts) -> Option<Dictionary> {
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut all = Dictionary::default();
        for number in numbers {
            let own = *known.entry(*number).or_insert_with(|| {
                plain_bytes(texts.get(*number), &mut all.values);
                all.length += 1;
                all.length as u32 - 1
            });
            all.numbers.push(own);
        }
        (all.length > 0).then_some(all)
    }
}

impl Chunk {
    /// Encodes a column.
    ///
    /// # Errors
    /// A page is too large, which the size of groups prevents.
    pub(crate) fn new(
        field: &Field,
        column: &Column,
        texts: &Texts,
        compressor: &mut Compressor,
    ) -> io::Result<Chunk> {
        let dictionary = match &column.values {
            Values::Numbers(_) if field.is_steady() => None,
            Values::Numbers(numbers) => Dictionary::of_numbers(numbers, field.holds.bytes()),
            Values::Texts(numbers) => Dictionary::of_texts(numbers, texts),
            Values::Bytes(..) => None,
        };
        let is_integer = field.holds != Holds::Double && matches!(column.values, Values::Numbers(_));
        let mut chunk = Chunk {
            rows: column.present.len(),
            encoding: match &dictionary {
                Some(_) => DICTIONARY,
                None if is_integer => DELTA,
                None => PLAIN,
            },
            statistics: Statistics::of(field.holds, column, texts),
            ..Chunk::default()
        };
        if let Some(dictionary) = &dictionary {
            chunk.page(&dictionary.values, compressor, |header| {
                header.begin(7);
                header.i32(1, dictionary.length as i32);
                header.i32(2, PLAIN);
                header.end();
            })?;
        }
        chunk.data = chunk.bytes.len();
        let (mut body, mut start) = (Vec::new(), 0);
        for present in column.present.chunks(PAGE_ROWS) {
            let end = start + present.iter().filter(|present| **present).count();
            body.clear();
            body.extend_from_slice(&[0; 4]);
            hybrid(present, 1, &mut body);
            let length = body.len() as u32 - 4;
            body[..4].copy_from_slice(&length.to_le_bytes());
            match (&dictionary, &column.values) {
                (Some(dictionary), _) => {
                    let width = width(dictionary.length as u64 - 1).max(1);
                    body.push(width as u8);
                    hybrid(&dictionary.numbers[start..end], width, &mut body);
                }
                (None, Values::Numbers(numbers)) if is_integer => {
                    delta(&numbers[start..end], field.holds.bytes(), &mut body);
                }
                (None, Values::Numbers(numbers)) => {
                    plain(numbers[start..end].iter().copied(), field.holds.bytes(), &mut body);
                }
                (None, Values::Bytes(all, ends)) => {
                    let mut from = start.checked_sub(1).map_or(0, |before| ends[before]);
                    for end in &ends[start..end] {
                        plain_bytes(&all[from..*end], &mut body);
                        from = *end;
                    }
                }
                // Without a value, since there is no dictionary.
                (None, Values::Texts(_)) => {}
            }
            let encoding = chunk.encoding;
            chunk.page(&body, compressor, |header| {
                header.begin(5);
                header.i32(1, present.len() as i32);
                header.i32(2, encoding);
                header.i32(3, RUNS);
                header.i32(4, RUNS);
                header.end();
            })?;
            start = end;
        }
        Ok(chunk)
    }

    /// Adds a page: DictionaryPageHeader is field 7 of its header, DataPageHeader field 5.
    fn page(
        &mut self,
        body: &[u8],
        compressor: &mut Compressor,
        describe: impl FnOnce(&mut Thrift),
    ) -> io::Result<()> {
        let compressed = compressor.compress(body)?;
        let is_dictionary = self.encoding == DICTIONARY && self.bytes.is_empty();
        let mut header = Thrift::new();
        header.i32(1, if is_dictionary { 2 } else { 0 });
        for (field, length) in [(2, body.len()), (3, compressed.len())] {
            header.i32(field, i32::try_from(length).map_err(io::Error::other)?);
        }
        describe(&mut header);
        let header = header.bytes();
        self.size += header.len() + body.len();
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(compressed);
        Ok(())
    }

    /// Describes the chunk in the footer, as ColumnChunk. `offset` is where its bytes are in the
    /// file.
    pub(crate) fn describe(&self, field: &Field, offset: u64, footer: &mut Thrift) {
        footer.item();
        // The description is here, not beside the chunk.
        footer.i64(2, 0);
        footer.begin(3);
        footer.i32(1, field.holds.physical());
        let encodings = [self.encoding, RUNS, PLAIN];
        let has_dictionary = self.encoding == DICTIONARY;
        footer.numbers(2, if has_dictionary { &encodings } else { &encodings[..2] });
        footer.texts(3, &[field.name.as_bytes()]);
        footer.i32(4, SNAPPY);
        footer.i64(5, self.rows as u64);
        footer.i64(6, self.size as u64);
        footer.i64(7, self.bytes.len() as u64);
        footer.i64(9, offset + self.data as u64);
        if has_dictionary {
            footer.i64(11, offset);
        }
        self.statistics.describe(footer);
        footer.end();
        footer.end();
    }
}
