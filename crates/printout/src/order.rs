//! The order in which the entries of a map are printed.
//!
//! Numbers come in the order of their values, averages in that of the averages, histograms in that
//! of how many numbers they have, all others and time series in the order of their keys. bpftrace
//! leaves entries of equal value in the order of the kernel's table, which changes from run to run;
//! here they are in the order of their keys.

use std::cmp::Ordering;

use crate::datum::Datum;
use crate::table::{Cell, Row};

/// Puts rows in their order.
pub(crate) fn sort(rows: &mut [Row]) {
    rows.sort_by(|left, right| rank(&left.cell).cmp(&rank(&right.cell)).then_with(|| keys(left, right)));
}

/// Only the last rows: those with the greatest values.
pub(crate) fn top(rows: &mut Vec<Row>, most: u64) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most > 0 && rows.len() > most {
        rows.drain(..rows.len() - most);
    }
}

fn rank(cell: &Cell) -> i128 {
    match cell {
        Cell::Number { exact, .. } => *exact,
        Cell::Stats { average, .. } => *average,
        Cell::Histogram { total, .. } => i128::from(*total),
        Cell::Plain(_) | Cell::Series(_) => 0,
    }
}

fn keys(left: &Row, right: &Row) -> Ordering {
    compare(left.key.as_ref().unwrap_or(&Datum::Null), right.key.as_ref().unwrap_or(&Datum::Null))
}

fn compare(left: &Datum, right: &Datum) -> Ordering {
    match (left, right) {
        (Datum::Tuple(left), Datum::Tuple(right)) => {
            let parts = left.iter().zip(right).map(|(left, right)| compare(left, right));
            parts.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }
        (Datum::Symbolic { number: left, .. }, Datum::Symbolic { number: right, .. }) => left.cmp(right),
        (left, right) => left.cmp(right),
    }
}
