//! The columns of the file: names and types.

use convert::{Columns, Scalar};

use crate::thrift::Thrift;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Half,
    Whole,
    Signed,
    Time,
    Double,
    Text,
    /// A text whose values rarely repeat.
    LongText,
    Bytes,
}

impl Holds {
    /// Parquet's number of the physical type: INT32, INT64, DOUBLE or BYTE_ARRAY.
    pub(crate) fn physical(self) -> i32 {
        match self {
            Holds::Half => 1,
            Holds::Whole | Holds::Signed | Holds::Time => 2,
            Holds::Double => 5,
            Holds::Text | Holds::LongText | Holds::Bytes => 6,
        }
    }

    /// The number of the type that the physical one stands for: UINT_32, UINT_64, INT_64,
    /// TIMESTAMP_MICROS or UTF8.
    fn converted(self) -> Option<i32> {
        match self {
            Holds::Half => Some(13),
            Holds::Whole => Some(14),
            Holds::Signed => Some(18),
            Holds::Time => Some(10),
            Holds::Text | Holds::LongText => Some(0),
            Holds::Double | Holds::Bytes => None,
        }
    }

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        if self == Holds::Half { 4 } else { 8 }
    }
}

/// A column's name and type.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) holds: Holds,
}

impl Field {
    /// Whether consecutive values are close to each other.
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self.name.as_str(), "number" | "time" | "time_ns")
    }

    /// Describes the column in the footer, as SchemaElement.
    pub(crate) fn describe(&self, footer: &mut Thrift) {
        footer.item();
        footer.i32(1, self.holds.physical());
        // OPTIONAL: a row may have no value.
        footer.i32(3, 1);
        footer.text(4, self.name.as_bytes());
        if let Some(converted) = self.holds.converted() {
            footer.i32(6, converted);
        }
        footer.end();
    }
}

/// The columns of every file, in the order of [`base`].
const BASE: [(&str, Holds); 17] = [
    ("number", Holds::Whole),
    ("time", Holds::Time),
    ("time_ns", Holds::Signed),
    ("cpu", Holds::Half),
    ("pid", Holds::Half),
    ("tid", Holds::Half),
    ("uid", Holds::Half),
    ("major", Holds::Half),
    ("minor", Holds::Half),
    ("ip", Holds::Whole),
    ("sp", Holds::Whole),
    ("comm", Holds::Text),
    ("module", Holds::Text),
    ("probe", Holds::Text),
    ("symbol", Holds::Text),
    ("event", Holds::Text),
    ("data", Holds::Bytes),
];

/// Positions of the columns of every file; those of templates follow, then the one for all other
/// values.
pub(crate) mod base {
    pub(crate) const NUMBER: usize = 0;
    pub(crate) const TIME: usize = 1;
    pub(crate) const TIME_NS: usize = 2;
    pub(crate) const CPU: usize = 3;
    pub(crate) const PID: usize = 4;
    pub(crate) const TID: usize = 5;
    pub(crate) const UID: usize = 6;
    pub(crate) const MAJOR: usize = 7;
    pub(crate) const MINOR: usize = 8;
    pub(crate) const IP: usize = 9;
    pub(crate) const SP: usize = 10;
    pub(crate) const COMM: usize = 11;
    pub(crate) const MODULE: usize = 12;
    pub(crate) const PROBE: usize = 13;
    pub(crate) const SYMBOL: usize = 14;
    pub(crate) const EVENT: usize = 15;
    pub(crate) const DATA: usize = 16;
    /// The first column of the templates.
    pub(crate) const FIELDS: usize = 17;
}

/// The name of the last column.
const LAST_COLUMN: &str = "fields";

/// The names of the columns of every file.
pub(crate) fn taken() -> Vec<&'static str> {
    BASE.iter().map(|(name, _)| *name).chain([LAST_COLUMN]).collect()
}

fn holds(scalar: Scalar) -> Holds {
    match scalar {
        Scalar::Unsigned | Scalar::Hexadecimal => Holds::Whole,
        Scalar::Signed => Holds::Signed,
        Scalar::Float => Holds::Double,
        Scalar::Text | Scalar::Json => Holds::LongText,
        Scalar::Bytes => Holds::Bytes,
    }
}

/// All columns of a file.
pub(crate) fn fields(templates: &Columns) -> Vec<Field> {
    let base = BASE.iter().map(|(name, holds)| ((*name).to_owned(), *holds));
    let fields = templates.columns.iter().map(|column| (column.name.clone(), holds(column.holds)));
    let all = base.chain(fields).chain([(LAST_COLUMN.to_owned(), Holds::LongText)]);
    all.map(|(name, holds)| Field { name, holds }).collect()
}
