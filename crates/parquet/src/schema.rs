//! The columns of the file: names, types and encodings.

use std::sync::Arc;

use convert::{Columns, Scalar};
use parquet::basic::{Compression, ConvertedType, Encoding, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::column::{Column, Values};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
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

/// The schema, the writer's properties, and the empty columns.
pub(crate) fn make(templates: &Columns) -> Result<(TypePtr, WriterProperties, Vec<Column>)> {
    let base = BASE.iter().map(|(name, holds)| ((*name).to_owned(), *holds));
    let fields = templates.columns.iter().map(|column| (column.name.clone(), holds(column.holds)));
    let all: Vec<(String, Holds)> =
        base.chain(fields).chain([(LAST_COLUMN.to_owned(), Holds::LongText)]).collect();
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("dprobes version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        // Keeps the footer's part for each group small.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    let mut types = Vec::new();
    let mut columns = Vec::new();
    for (name, holds) in all {
        let (physical, converted) = match holds {
            Holds::Half => (Physical::INT32, ConvertedType::UINT_32),
            Holds::Whole => (Physical::INT64, ConvertedType::UINT_64),
            Holds::Signed => (Physical::INT64, ConvertedType::INT_64),
            Holds::Time => (Physical::INT64, ConvertedType::TIMESTAMP_MICROS),
            Holds::Double => (Physical::DOUBLE, ConvertedType::NONE),
            Holds::Text | Holds::LongText => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Holds::Bytes => (Physical::BYTE_ARRAY, ConvertedType::NONE),
        };
        let builder = Type::primitive_type_builder(&name, physical);
        let builder = builder.with_converted_type(converted).with_repetition(Repetition::OPTIONAL);
        types.push(Arc::new(builder.build()?));
        let path = ColumnPath::from(name.as_str());
        properties = match holds {
            // Consecutive values are close to each other.
            _ if matches!(name.as_str(), "number" | "time" | "time_ns") => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Holds::Bytes | Holds::LongText => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path, EnabledStatistics::None),
            _ => properties,
        };
        columns.push(Column::new(match holds {
            Holds::Half => Values::Half(Vec::new()),
            Holds::Whole | Holds::Signed | Holds::Time => Values::Whole(Vec::new()),
            Holds::Double => Values::Double(Vec::new()),
            Holds::Text => Values::Texts(Vec::new()),
            Holds::LongText | Holds::Bytes => Values::Bytes(Vec::new(), Vec::new()),
        }));
    }
    let schema = Type::group_type_builder("record").with_fields(types).build()?;
    Ok((Arc::new(schema), properties.build(), columns))
}
