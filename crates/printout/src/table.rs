//! A map as a table of rows, ready to be printed.

use maps::{Entry, Kind, Value};
use script::{Map, Tag, Type};

use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::decode::{Decoder, ValueStorage};
use crate::error::{Error, Wrong};
use crate::histogram::Histogram;
use crate::order;
use crate::series::{self, Series};
use crate::world::World;

/// A map to print.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The map's name with its `@`.
    pub(crate) name: String,
    /// Whether it has keys.
    pub(crate) keyed: bool,
    /// What the values are.
    pub(crate) kind: TableKind,
    /// The entries, in their order.
    pub(crate) rows: Vec<Row>,
}

/// What the values of a table are: the types of its message in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    Map,
    Stats,
    Histogram,
    Series,
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its key, if the map has keys.
    pub(crate) key: Option<Datum>,
    /// Its value.
    pub(crate) cell: Cell,
}

/// A value of a map.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// A value that does not decide the order.
    Plain(Datum),
    /// A number that does: before it was divided, and as it is shown.
    Number {
        exact: i128,
        shown: Datum,
    },
    /// Count, average and sum.
    Stats {
        count: Datum,
        average: i128,
        shown_average: Datum,
        total: Datum,
    },
    /// A histogram, and how many numbers it has.
    Histogram {
        total: u64,
        histogram: Histogram,
    },
    Series(Series),
}

/// Which rows are shown, and what values are divided by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection {
    /// 0: all.
    pub(crate) top: u64,
    /// 0: not divided.
    pub(crate) divisor: u64,
}

impl Table {
    /// The table of a map without keys that has this value.
    pub(crate) fn of_one(map: &Map, cell: Cell) -> Table {
        let rows = vec![Row { key: None, cell }];
        Table { name: format!("@{}", map.name), keyed: false, kind: TableKind::Map, rows }
    }
}

impl Decoder<'_> {
    /// The table of a map with these entries.
    pub(crate) fn table(
        &self,
        map: &Map,
        entries: Vec<Entry>,
        selection: Selection,
        world: &mut dyn World,
    ) -> Result<Table, Error> {
        let kind = Kind::from_number(map.info.kind).unwrap_or(Kind::Plain);
        // All rows of time series end with the last interval in which any of them has a value.
        let last = entries.iter().filter_map(|entry| match &entry.value {
            Value::Series(points) => series::last(points),
            _ => None,
        });
        let last = last.max().unwrap_or(0);
        let mut rows = Vec::with_capacity(entries.len());
        for Entry { key, value } in &entries {
            // A map without keys always has its entry; bpftrace has none before the first update.
            if map.key.is_none() && is_empty(value) {
                continue;
            }
            let row = self.row(map, kind, key, value, (selection.divisor, last), world);
            rows.push(row.map_err(|why| Error::MalformedEntry { map: map.name.clone(), why })?);
        }
        order::sort(&mut rows);
        if kind != Kind::Tseries {
            order::top(&mut rows, selection.top);
        }
        let keyed = map.key.is_some();
        let kind = match kind {
            Kind::Avg | Kind::Stats => TableKind::Stats,
            Kind::Hist | Kind::Lhist => TableKind::Histogram,
            Kind::Tseries => TableKind::Series,
            _ => TableKind::Map,
        };
        Ok(Table { name: format!("@{}", map.name), keyed, kind, rows })
    }

    fn row(
        &self,
        map: &Map,
        kind: Kind,
        key: &[u8],
        value: &Value,
        (divisor, last): (u64, i64),
        world: &mut dyn World,
    ) -> Result<Row, Wrong> {
        let key = match &map.key {
            None => None,
            Some(ty) => Some(self.key(ty, key, world)?),
        };
        let signed = map.info.signed != 0;
        let cell = match value {
            Value::Bytes(bytes) => {
                let value = self.value(&map.value, ValueStorage::Alone, &mut Cursor::new(bytes), world)?;
                plain(&map.value, value, divisor)
            }
            Value::Number(word) => number(exact(*word, signed), divisor),
            Value::Avg { count, sum } => number(average(*count, *sum, signed), divisor),
            Value::Stats { count, sum } => {
                let average = average(*count, *sum, signed);
                Cell::Stats {
                    count: Datum::integer(exact(*count, signed)),
                    average,
                    shown_average: Datum::integer(divided(average, divisor)),
                    total: Datum::integer(exact(*sum, signed)),
                }
            }
            Value::Buckets(counts) => {
                let info = &map.info;
                let histogram = match kind {
                    Kind::Lhist => Histogram::linear(counts, info.a, info.b, info.c),
                    _ => {
                        Histogram::of_powers(counts, u32::try_from(info.a.clamp(0, 5)).unwrap_or(0), divisor)
                    }
                };
                Cell::Histogram {
                    total: counts.iter().fold(0, |sum, each| sum.wrapping_add(*each)),
                    histogram,
                }
            }
            Value::Series(points) => {
                let shape = (map.info.a, map.info.b);
                let mut time = |start| world.time_of_interval(start);
                Cell::Series(series::shown(points, last, shape, signed, &mut time))
            }
        };
        Ok(Row { key, cell })
    }
}

/// Whether an aggregate had no update.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Bytes(_) | Value::Number(_) => false,
        Value::Avg { count, .. } | Value::Stats { count, .. } => *count == 0,
        Value::Buckets(counts) => counts.iter().all(|count| *count == 0),
        Value::Series(points) => series::last(points).is_none(),
    }
}

/// A plain value; integers decide the order.
pub(crate) fn plain(ty: &Type, value: Datum, divisor: u64) -> Cell {
    match (ty, &value) {
        (Type::Integer(_), Datum::Signed(exact)) => number((*exact).into(), divisor),
        (Type::Integer(_), Datum::Unsigned(exact)) => number((*exact).into(), divisor),
        (Type::Named(Tag::Enum, _), Datum::Symbolic { number, .. }) => {
            Cell::Number { exact: (*number).into(), shown: value }
        }
        _ => Cell::Plain(value),
    }
}

fn number(exact: i128, divisor: u64) -> Cell {
    Cell::Number { exact, shown: Datum::integer(divided(exact, divisor)) }
}

fn exact(word: u64, signed: bool) -> i128 {
    if signed { word.cast_signed().into() } else { word.into() }
}

/// Rounded towards 0, as in C.
fn average(count: u64, sum: u64, signed: bool) -> i128 {
    exact(sum, signed).checked_div(i128::from(count)).unwrap_or(0)
}

fn divided(number: i128, divisor: u64) -> i128 {
    number / i128::from(divisor.max(1))
}
