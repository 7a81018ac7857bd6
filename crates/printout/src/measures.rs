//! A map as numbers, for metrics: the parts of its keys as text, and its values before they are
//! rounded or divided.

use maps::{Entry, Kind, Value};
use script::Map;

use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::decode::ValueStorage;
use crate::error::Wrong;
use crate::histogram::{Bucket, Histogram};
use crate::reader::Reader;
use crate::table::{Cell, plain};
use crate::world::World;

/// A map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Its entries with the parts of their keys: the greatest values first, then by keys.
    pub rows: Vec<(Vec<String>, Measure)>,
    /// How many entries are no numbers, or malformed: a hostile process may write anything there.
    pub others: u64,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A number.
    Number(i128),
    /// How many numbers there were, and their sum.
    Sum {
        /// How many.
        count: u64,
        /// Their sum.
        sum: i128,
    },
    /// How many numbers each bucket of a histogram has; [`bounds`] says which these are.
    Buckets(Vec<u64>),
}

impl Measure {
    /// What decides the order.
    fn rank(&self) -> i128 {
        match self {
            Measure::Number(number) => *number,
            Measure::Sum { count, .. } => i128::from(*count),
            Measure::Buckets(counts) => counts.iter().map(|count| i128::from(*count)).sum(),
        }
    }
}

/// The least and the greatest number of each bucket of a histogram of `buckets` buckets, as far as
/// there are such; none if the map has no histograms.
pub fn bounds(map: &Map, buckets: usize) -> Vec<(Option<i128>, Option<i128>)> {
    let counts = vec![1; buckets];
    let histogram = match Kind::from_number(map.info.kind) {
        Some(Kind::Lhist) => Histogram::linear(&counts, map.info.a, map.info.b, map.info.c),
        Some(Kind::Hist) => Histogram::of_powers(&counts, bits(map), 1),
        _ => return Vec::new(),
    };
    let bounds = |bucket: &Bucket| {
        (bucket.low.as_ref().map(|low| low.number), bucket.high.as_ref().map(|high| high.number - 1))
    };
    histogram.buckets.iter().map(bounds).collect()
}

/// How many parts each power of 2 has, as a power of 2.
fn bits(map: &Map) -> u32 {
    u32::try_from(map.info.a.clamp(0, 5)).unwrap_or(0)
}

impl Reader<'_> {
    /// A map as numbers; `None` if the script has no such map, or if it is the map of stacks.
    pub fn measures(&self, map: usize, world: &mut dyn World) -> Option<Measures> {
        let described = self.decoder.script.maps.get(map)?;
        if described.info.kind == Kind::Stacks as u32 {
            return None;
        }
        let mut measures = Measures::default();
        for entry in world.entries(map) {
            match self.measure(described, &entry, world) {
                Ok(Some(row)) => measures.rows.push(row),
                Ok(None) | Err(_) => measures.others += 1,
            }
        }
        measures.rows.sort_by(|(left_key, left), (right_key, right)| {
            right.rank().cmp(&left.rank()).then_with(|| left_key.cmp(right_key))
        });
        Some(measures)
    }

    /// An entry; `None` if its value is no number.
    fn measure(
        &self,
        map: &Map,
        Entry { key, value }: &Entry,
        world: &mut dyn World,
    ) -> Result<Option<(Vec<String>, Measure)>, Wrong> {
        let signed = map.info.signed != 0;
        let exact = |word: u64| if signed { i128::from(word.cast_signed()) } else { i128::from(word) };
        let measure = match value {
            Value::Bytes(bytes) => {
                let value =
                    self.decoder.value(&map.value, ValueStorage::Alone, &mut Cursor::new(bytes), world)?;
                match plain(&map.value, value, 0) {
                    Cell::Number { exact, .. } => Measure::Number(exact),
                    Cell::Plain(Datum::Bool(value)) => Measure::Number(value.into()),
                    _ => return Ok(None),
                }
            }
            Value::Number(word) => Measure::Number(exact(*word)),
            Value::Avg { count, sum } | Value::Stats { count, sum } => {
                Measure::Sum { count: *count, sum: exact(*sum) }
            }
            Value::Buckets(counts) => Measure::Buckets(counts.clone()),
            Value::Series(_) => return Ok(None),
        };
        let parts = match &map.key {
            None => Vec::new(),
            Some(ty) => match self.decoder.key(ty, key, world)? {
                Datum::Tuple(parts) => parts.iter().map(part).collect(),
                one => vec![part(&one)],
            },
        };
        Ok(Some((parts, measure)))
    }
}

/// A part of a key as text: a stack in one line, with its frames from the innermost on.
fn part(part: &Datum) -> String {
    let text = part.to_text();
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let is_stack = text.starts_with(b"\n") && text.ends_with(b"\n");
    let text = if is_stack { lines.collect::<Vec<_>>().join(&b';') } else { text };
    String::from_utf8(text).unwrap_or_else(|error| printable::bytes(error.as_bytes()).to_string())
}
