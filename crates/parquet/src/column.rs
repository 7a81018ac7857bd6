//! One column of the row group that is being filled.

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;

use crate::texts::Texts;

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// Numbers of 4 bytes.
    Half(Vec<i32>),
    /// Numbers of 8 bytes.
    Whole(Vec<i64>),
    /// Floating point numbers.
    Double(Vec<f64>),
    /// Texts that come again and again, by their numbers.
    Texts(Vec<u32>),
    /// Bytes: all one after the other, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
}

/// A column: whether each row has a value, and the values.
#[derive(Debug)]
pub(crate) struct Column {
    present: Vec<i16>,
    pub(crate) values: Values,
}

impl Column {
    pub(crate) fn new(values: Values) -> Column {
        Column { present: Vec::new(), values }
    }

    /// A row without a value.
    pub(crate) fn nothing(&mut self) {
        self.present.push(0);
    }

    /// A row with a number; nothing where the column is none of numbers.
    pub(crate) fn number(&mut self, number: u64) {
        match &mut self.values {
            Values::Half(values) => values.push((number as u32).cast_signed()),
            Values::Whole(values) => values.push(number.cast_signed()),
            _ => return self.nothing(),
        }
        self.present.push(1);
    }

    /// A row with a number, if there is one.
    pub(crate) fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.nothing(),
        }
    }

    pub(crate) fn double(&mut self, number: f64) {
        match &mut self.values {
            Values::Double(values) => values.push(number),
            _ => return self.nothing(),
        }
        self.present.push(1);
    }

    /// A row with a text, by its number.
    pub(crate) fn text(&mut self, number: Option<u32>) {
        match (&mut self.values, number) {
            (Values::Texts(values), Some(number)) => values.push(number),
            _ => return self.nothing(),
        }
        self.present.push(1);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match &mut self.values {
            Values::Bytes(all, ends) => {
                all.extend_from_slice(bytes);
                ends.push(all.len());
            }
            _ => return self.nothing(),
        }
        self.present.push(1);
    }

    /// Fills rows up to so many with nothing.
    pub(crate) fn pad(&mut self, rows: usize) {
        self.present.resize(rows, 0);
    }

    /// Bytes that are kept, beside what each row takes.
    pub(crate) fn size(&self) -> usize {
        match &self.values {
            Values::Bytes(all, _) => all.len(),
            _ => 0,
        }
    }

    /// Writes the column, and empties it.
    pub(crate) fn write(&mut self, out: &mut SerializedColumnWriter<'_>, texts: &Texts) -> Result<()> {
        let present = Some(self.present.as_slice());
        match &mut self.values {
            Values::Half(values) => {
                out.typed::<Int32Type>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Whole(values) => {
                out.typed::<Int64Type>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Double(values) => {
                out.typed::<DoubleType>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Texts(numbers) => {
                let values: Vec<ByteArray> = numbers.iter().map(|&number| texts.get(number)).collect();
                out.typed::<ByteArrayType>().write_batch(&values, present, None)?;
                numbers.clear();
            }
            Values::Bytes(all, ends) => {
                let all = ByteArray::from(std::mem::take(all));
                let mut start = 0;
                let values: Vec<ByteArray> = ends
                    .drain(..)
                    .map(|end| all.slice(std::mem::replace(&mut start, end), end - start))
                    .collect();
                out.typed::<ByteArrayType>().write_batch(&values, present, None)?;
            }
        }
        self.present.clear();
        Ok(())
    }
}
