//! One column of the current row group.

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;

use crate::texts::Texts;

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// 4-byte numbers.
    Half(Vec<i32>),
    /// 8-byte numbers.
    Whole(Vec<i64>),
    /// Floating point numbers.
    Double(Vec<f64>),
    /// Repeated texts, by their numbers in [`Texts`].
    Texts(Vec<u32>),
    /// Bytes of all values in a row, and where each value ends.
    Bytes(Vec<u8>, Vec<usize>),
}

/// A column: whether each row has a value (1 or 0), and the values.
#[derive(Debug)]
pub(crate) struct Column {
    present: Vec<i16>,
    pub(crate) values: Values,
}

impl Column {
    pub(crate) fn new(values: Values) -> Column {
        Column { present: Vec::new(), values }
    }

    /// Adds a row without a value.
    pub(crate) fn nothing(&mut self) {
        self.present.push(0);
    }

    /// Adds a row with a number; without a value if the column has another type.
    pub(crate) fn number(&mut self, number: u64) {
        match &mut self.values {
            Values::Half(values) => values.push((number as u32).cast_signed()),
            Values::Whole(values) => values.push(number.cast_signed()),
            _ => return self.nothing(),
        }
        self.present.push(1);
    }

    /// Adds a row with a number, if there is one.
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

    /// Adds a row with a text, by its number.
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

    /// Adds rows without values up to this number of rows.
    pub(crate) fn pad(&mut self, rows: usize) {
        self.present.resize(rows, 0);
    }

    /// Bytes of values of variable length.
    pub(crate) fn size(&self) -> usize {
        match &self.values {
            Values::Bytes(all, _) => all.len(),
            _ => 0,
        }
    }

    /// Writes the column to the file and clears it.
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
                let slice = |end| {
                    let from = std::mem::replace(&mut start, end);
                    all.slice(from, end - from)
                };
                let values: Vec<ByteArray> = ends.drain(..).map(slice).collect();
                out.typed::<ByteArrayType>().write_batch(&values, present, None)?;
            }
        }
        self.present.clear();
        Ok(())
    }
}
