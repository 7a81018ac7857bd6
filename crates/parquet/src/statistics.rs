//! The least and the greatest value of a column in a row group: readers pass over groups by them.

use crate::column::{Column, Values};
use crate::schema::Holds;
use crate::texts::Texts;
use crate::thrift::Thrift;

/// Most bytes of a text that is kept.
const MAX_TEXT: usize = 128;

/// What is known about the values of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// Rows without a value.
    nulls: usize,
    /// The least and the greatest value, plain; of bytes, without their length.
    range: Option<(Vec<u8>, Vec<u8>)>,
}

impl Statistics {
    pub(crate) fn of(holds: Holds, column: &Column, texts: &Texts) -> Statistics {
        let range = match &column.values {
            Values::Numbers(numbers) => of_numbers(holds, numbers),
            Values::Texts(numbers) => of_texts(numbers, texts),
            Values::Bytes(..) => None,
        };
        Statistics { nulls: column.present.iter().filter(|present| !**present).count(), range }
    }

    /// Describes them in the footer, as field 12 of ColumnMetaData.
    pub(crate) fn describe(&self, footer: &mut Thrift) {
        footer.begin(12);
        footer.i64(3, self.nulls as u64);
        if let Some((least, greatest)) = &self.range {
            footer.text(5, greatest);
            footer.text(6, least);
        }
        footer.end();
    }
}

/// In the order of the type.
fn of_numbers(holds: Holds, numbers: &[i64]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (least, greatest) = match holds {
        Holds::Double => {
            let doubles = numbers.iter().map(|number| f64::from_bits(number.cast_unsigned()));
            let doubles = || doubles.clone().filter(|double| !double.is_nan());
            // Either zero may be among the values.
            let least = doubles().reduce(f64::min).map(|least| if least == 0.0 { -0.0 } else { least })?;
            let greatest = doubles().reduce(f64::max).map(|most| if most == 0.0 { 0.0 } else { most })?;
            (least.to_bits().cast_signed(), greatest.to_bits().cast_signed())
        }
        // Numbers of 4 bytes are in 8 as signed ones, which keeps their order without a sign.
        Holds::Half | Holds::Whole => {
            let key = |number: &&i64| number.cast_unsigned();
            (*numbers.iter().min_by_key(key)?, *numbers.iter().max_by_key(key)?)
        }
        _ => (*numbers.iter().min()?, *numbers.iter().max()?),
    };
    let bytes = |number: i64| number.to_le_bytes()[..holds.bytes()].to_vec();
    Some((bytes(least), bytes(greatest)))
}

/// In the order of their bytes; `None` for long ones.
fn of_texts(numbers: &[u32], texts: &Texts) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut last = None;
    let mut range: Option<(&[u8], &[u8])> = None;
    for number in numbers {
        // Most rows have the text of the row before.
        if last.replace(number) == Some(number) {
            continue;
        }
        let text = texts.get(*number);
        range = Some(range.map_or((text, text), |(least, most)| (least.min(text), most.max(text))));
    }
    let (least, most) = range.filter(|(least, most)| least.len().max(most.len()) <= MAX_TEXT)?;
    Some((least.to_vec(), most.to_vec()))
}
