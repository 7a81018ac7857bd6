//! The file: row groups, and the footer that says where they are.
//!
//! ```text
//! file   = PAR1, chunk..., footer, length of the footer (4 bytes), PAR1
//! footer = FileMetaData: columns, rows, for each group its chunks, who wrote it
//! ```
//!
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>

use std::io::{self, Write};

use crate::chunk::{Chunk, Compressor};
use crate::column::Column;
use crate::schema::Field;
use crate::texts::Texts;
use crate::thrift::Thrift;

const MAGIC: &[u8; 4] = b"PAR1";

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct File<W: Write> {
    out: W,
    fields: Vec<Field>,
    /// Bytes that are written.
    offset: u64,
    rows: u64,
    /// The groups, as the footer describes them.
    groups: Vec<u8>,
    count: usize,
    compressor: Compressor,
}

impl<W: Write> File<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn new(mut out: W, fields: Vec<Field>) -> io::Result<File<W>> {
        out.write_all(MAGIC)?;
        let (groups, compressor) = (Vec::new(), Compressor::new());
        Ok(File { out, fields, offset: 4, rows: 0, groups, count: 0, compressor })
    }

    /// Writes a row group. All columns have `rows` rows.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn group(&mut self, columns: &[Column], rows: usize, texts: &Texts) -> io::Result<()> {
        let mut group = Thrift::new();
        group.structs(1, columns.len());
        let (mut size, start) = (0, self.offset);
        for (field, column) in self.fields.iter().zip(columns) {
            let chunk = Chunk::new(field, column, texts, &mut self.compressor)?;
            chunk.describe(field, self.offset, &mut group);
            self.out.write_all(&chunk.bytes)?;
            self.offset += chunk.bytes.len() as u64;
            size += chunk.size;
        }
        group.i64(2, size as u64);
        group.i64(3, rows as u64);
        group.i64(5, start);
        group.i64(6, self.offset - start);
        self.groups.extend_from_slice(&group.bytes());
        self.count += 1;
        self.rows += rows as u64;
        Ok(())
    }

    /// Writes the footer.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let mut footer = Thrift::new();
        footer.i32(1, 1);
        footer.structs(2, 1 + self.fields.len());
        // The columns are in a structure, the row.
        footer.item();
        footer.text(4, b"record");
        footer.i32(5, self.fields.len() as i32);
        footer.end();
        self.fields.iter().for_each(|field| field.describe(&mut footer));
        footer.i64(3, self.rows);
        footer.structs(4, self.count);
        footer.ready(&self.groups);
        footer.text(6, concat!("dprobes version ", env!("CARGO_PKG_VERSION")).as_bytes());
        // The order of each column's values is that of its type: a union with an empty structure.
        footer.structs(7, self.fields.len());
        for _ in &self.fields {
            footer.item();
            footer.begin(1);
            footer.end();
            footer.end();
        }
        let footer = footer.bytes();
        let length = u32::try_from(footer.len()).map_err(io::Error::other)?;
        self.out.write_all(&footer)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        self.out.flush()
    }
}
