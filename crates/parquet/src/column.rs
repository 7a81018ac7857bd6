//! One column of the current row group.

use crate::schema::Holds;

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// Numbers as they are in 8 bytes; of floating point numbers, their bits.
    Numbers(Vec<i64>),
    /// Repeated texts, by their numbers in [`Texts`](crate::texts::Texts).
    Texts(Vec<u32>),
    /// Bytes of all values in a row, and where each value ends.
    Bytes(Vec<u8>, Vec<usize>),
}

/// A column: whether each row has a value, and the values.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) present: Vec<bool>,
    pub(crate) values: Values,
    holds: Holds,
}

impl Column {
    pub(crate) fn new(holds: Holds) -> Column {
        let values = match holds {
            Holds::Half | Holds::Whole | Holds::Signed | Holds::Time | Holds::Double => {
                Values::Numbers(Vec::new())
            }
            Holds::Text => Values::Texts(Vec::new()),
            Holds::LongText | Holds::Bytes => Values::Bytes(Vec::new(), Vec::new()),
        };
        Column { present: Vec::new(), values, holds }
    }

    /// Adds a row without a value.
    pub(crate) fn nothing(&mut self) {
        self.present.push(false);
    }

    /// Adds a row with a number; without a value if the column has another type.
    pub(crate) fn number(&mut self, number: u64) {
        match (&mut self.values, self.holds) {
            (_, Holds::Double) => return self.nothing(),
            (Values::Numbers(values), Holds::Half) => values.push((number as u32).cast_signed().into()),
            (Values::Numbers(values), _) => values.push(number.cast_signed()),
            _ => return self.nothing(),
        }
        self.present.push(true);
    }

    /// Adds a row with a number, if there is one.
    pub(crate) fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.nothing(),
        }
    }

    pub(crate) fn double(&mut self, number: f64) {
        match (&mut self.values, self.holds) {
            (Values::Numbers(values), Holds::Double) => values.push(number.to_bits().cast_signed()),
            _ => return self.nothing(),
        }
        self.present.push(true);
    }

    /// Adds a row with a text, by its number.
    pub(crate) fn text(&mut self, number: Option<u32>) {
        match (&mut self.values, number) {
            (Values::Texts(values), Some(number)) => values.push(number),
            _ => return self.nothing(),
        }
        self.present.push(true);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match &mut self.values {
            Values::Bytes(all, ends) => {
                all.extend_from_slice(bytes);
                ends.push(all.len());
            }
            _ => return self.nothing(),
        }
        self.present.push(true);
    }

    /// Adds rows without values up to this number of rows.
    pub(crate) fn pad(&mut self, rows: usize) {
        self.present.resize(rows, false);
    }

    /// Bytes of values of variable length.
    pub(crate) fn size(&self) -> usize {
        match &self.values {
            Values::Bytes(all, _) => all.len(),
            _ => 0,
        }
    }

    /// Takes out all rows.
    pub(crate) fn clear(&mut self) {
        self.present.clear();
        match &mut self.values {
            Values::Numbers(values) => values.clear(),
            Values::Texts(values) => values.clear(),
            Values::Bytes(all, ends) => {
                all.clear();
                // A column that had much need not have it again.
                all.shrink_to(1 << 20);
                ends.clear();
            }
        }
    }
}
