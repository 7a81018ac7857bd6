//! Files read back by the crate `parquet`, which others have written.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::record::Field as Found;
use proptest::prelude::*;

use crate::column::Column;
use crate::file::File;
use crate::schema::{Field, Holds};
use crate::texts::Texts;

const ALL: [Holds; 8] = [
    Holds::Half,
    Holds::Whole,
    Holds::Signed,
    Holds::Time,
    Holds::Double,
    Holds::Text,
    Holds::LongText,
    Holds::Bytes,
];

/// A column of each type, and one whose values are close to each other.
fn fields() -> Vec<Field> {
    let all = ALL.iter().map(|holds| Field { name: format!("{holds:?}"), holds: *holds });
    all.chain([Field { name: "number".to_owned(), holds: Holds::Whole }]).collect()
}

/// The value of a column for a number of a row.
fn found(holds: Holds, number: u64) -> Found {
    match holds {
        Holds::Half => Found::UInt(number as u32),
        Holds::Whole => Found::ULong(number),
        Holds::Signed => Found::Long(number.cast_signed()),
        Holds::Time => Found::TimestampMicros(number.cast_signed()),
        Holds::Double => Found::Double(number.cast_signed() as f64),
        Holds::Text | Holds::LongText => Found::Str(format!("text {number}")),
        Holds::Bytes => Found::Bytes(number.to_le_bytes().to_vec().into()),
    }
}

fn add(column: &mut Column, holds: Holds, texts: &mut Texts, number: Option<u64>) {
    let Some(number) = number else { return column.nothing() };
    let text = format!("text {number}");
    match holds {
        Holds::Half | Holds::Whole | Holds::Signed | Holds::Time => column.number(number),
        Holds::Double => column.double(number.cast_signed() as f64),
        Holds::Text => column.text(Some(texts.number(text.as_bytes()))),
        Holds::LongText => column.bytes(text.as_bytes()),
        Holds::Bytes => column.bytes(&number.to_le_bytes()),
    }
}

/// A file of these groups: every column has the same numbers.
fn file(groups: &[Vec<Option<u64>>]) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = fields();
    let mut file = File::new(&mut out, fields.clone()).expect("memory");
    let mut texts = Texts::default();
    let mut columns: Vec<Column> = fields.iter().map(|field| Column::new(field.holds)).collect();
    for rows in groups {
        for (column, field) in columns.iter_mut().zip(&fields) {
            rows.iter().for_each(|number| add(column, field.holds, &mut texts, *number));
        }
        file.group(&columns, rows.len(), &texts).expect("memory");
        columns.iter_mut().for_each(Column::clear);
        texts.clear();
    }
    file.finish().expect("memory");
    out
}

fn check(groups: &[Vec<Option<u64>>]) {
    let reader = SerializedFileReader::new(bytes(groups)).expect("a file of Parquet");
    let all: Vec<Option<u64>> = groups.concat();
    assert_eq!(reader.metadata().file_metadata().num_rows(), all.len() as i64);
    let mut rows = reader.get_row_iter(None).expect("rows");
    for (at, number) in all.iter().enumerate() {
        let row = rows.next().expect("a row").expect("a row that can be read");
        for ((_, value), field) in row.get_column_iter().zip(fields()) {
            let expected = number.map_or(Found::Null, |number| found(field.holds, number));
            assert_eq!(*value, expected, "row {at}, column {}", field.name);
        }
    }
    assert!(rows.next().is_none());
}

fn bytes(groups: &[Vec<Option<u64>>]) -> bytes::Bytes {
    file(groups).into()
}

#[test]
fn groups_of_many_pages_are_read_back() {
    let steady = (0..50_000).map(|number| Some(number * 3)).collect();
    let repeated = (0..40_000).map(|number| (number % 7 != 0).then_some(number / 1000)).collect();
    // More than a dictionary holds, and far apart.
    let various = (0..100_000_u64).map(|number| Some(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    check(&[steady, repeated, various, vec![None; 20_000], vec![Some(7)]]);
}

#[test]
fn a_file_without_rows_is_one() {
    check(&[]);
}

#[test]
fn statistics_have_the_order_of_the_type() {
    let numbers = vec![Some(5), None, Some(u64::MAX), Some(1 << 31), Some(9)];
    let reader = SerializedFileReader::new(bytes(&[numbers])).expect("a file of Parquet");
    let columns = reader.metadata().row_group(0).columns();
    let of = |holds: Holds| {
        let at = ALL.iter().position(|each| *each == holds).expect("it is one");
        columns[at].statistics().expect("at least a count").clone()
    };
    assert!(ALL.iter().all(|holds| of(*holds).null_count_opt() == Some(1)));
    let Statistics::Int32(half) = of(Holds::Half) else { panic!("{:?}", of(Holds::Half)) };
    assert_eq!((half.min_opt(), half.max_opt()), (Some(&5), Some(&-1)), "without a sign");
    let Statistics::Int64(whole) = of(Holds::Whole) else { panic!("{:?}", of(Holds::Whole)) };
    assert_eq!((whole.min_opt(), whole.max_opt()), (Some(&5), Some(&-1)), "without a sign");
    let Statistics::Int64(signed) = of(Holds::Signed) else { panic!("{:?}", of(Holds::Signed)) };
    assert_eq!((signed.min_opt(), signed.max_opt()), (Some(&-1), Some(&(1 << 31))));
    let Statistics::Double(double) = of(Holds::Double) else { panic!("{:?}", of(Holds::Double)) };
    assert_eq!((double.min_opt(), double.max_opt()), (Some(&-1.0), Some(&2_147_483_648.0)));
    let text = of(Holds::Text);
    assert_eq!(text.min_bytes_opt(), Some(&b"text 18446744073709551615"[..]));
    assert_eq!(text.max_bytes_opt(), Some(&b"text 9"[..]));
    assert_eq!(of(Holds::Bytes).min_bytes_opt(), None);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        groups in prop::collection::vec(
            prop::collection::vec(
                prop::option::of(prop_oneof![0..4_u64, 0..1000_u64, any::<u64>()]), 1..600),
            0..4)
    ) {
        check(&groups);
    }

    #[test]
    fn runs_among_others_are_read_back(
        runs in prop::collection::vec((prop::option::of(0..300_u64), 1..40_usize), 1..60)
    ) {
        check(&[runs.iter().flat_map(|(number, times)| vec![*number; *times]).collect()]);
    }
}
