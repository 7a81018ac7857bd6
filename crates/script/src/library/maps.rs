//! Functions that a map is set to: each call adds a number to what the map has.

use super::entry::Accepts::{Integer, Literal, Number};
use super::entry::Usage::MapFunction;
use super::entry::{Entry, Gives, Parameter, needed, optional};
use crate::types::Aggregate;

const VALUE: &[Parameter] = &[needed("number", Integer)];

const fn function(name: &'static str, parameters: &'static [Parameter], gives: Aggregate) -> Entry {
    Entry::new(name, MapFunction, parameters, Gives::Aggregate(gives))
}

/// The rows.
pub(super) const TABLE: &[Entry] = &[
    function("avg", VALUE, Aggregate::Avg).about("the average"),
    function("count", &[], Aggregate::Count).about("the number of calls"),
    function("hist", &[needed("number", Integer), optional("bits", Number)], Aggregate::Hist)
        .about("a histogram with a bucket, or 2 to the power of `bits`, for each power of 2"),
    function(
        "lhist",
        &[needed("number", Integer), needed("least", Number), needed("most", Number), needed("step", Number)],
        Aggregate::Lhist,
    )
    .about("a histogram with buckets of one size"),
    function("max", VALUE, Aggregate::Max).about("the largest number"),
    function("min", VALUE, Aggregate::Min).about("the smallest number"),
    function("stats", VALUE, Aggregate::Stats).about("number of calls, average and sum"),
    function("sum", VALUE, Aggregate::Sum).about("the sum"),
    function(
        "tseries",
        &[
            needed("number", Integer),
            needed("interval", Number),
            needed("intervals", Number),
            optional("aggregation", Literal),
        ],
        Aggregate::Tseries,
    )
    .about("a number for each interval of time"),
];
