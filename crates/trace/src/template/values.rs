//! A record's data as typed values, for converters.

use super::control::Control;
use super::definition::Template;
use super::number::{float, integer, signed};
use super::walk::{Data, DataError, Visitor, walk};
use crate::Record;

/// The most values that repetitions may make of one record; no more repetitions are begun then.
const MAX_VALUES: usize = 1 << 18;

/// A value of a record, of the type of the corresponding [`Field`](super::Field).
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// From `%u`, and from `%x` up to 8 bytes.
    Unsigned(u64),
    /// From `%d`.
    Signed(i64),
    /// From `%f`.
    Float(f64),
    /// From `%s` and `%c`: bytes that may not be UTF-8.
    Text(&'a [u8]),
    /// From `%m`: what the template shows.
    Names(String),
    /// From `%z`, and from `%x` beyond 8 bytes: the bytes of the record.
    Bytes(&'a [u8]),
    /// From `%r`: the elements. An unreadable element has its place in the list.
    List(Vec<Value<'a>>),
    /// From a group of several values.
    Struct(Vec<Value<'a>>),
    /// A value that could not be logged: the address (or the selector) that could not be read.
    Fault(u64),
    /// A missing value: the data ended, its prefix is unknown, or a condition does not hold.
    Missing,
}

/// The values of one record: one for each field of the template, in order.
#[derive(Clone, Debug)]
pub struct Values<'a>(std::vec::IntoIter<Value<'a>>);

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Values<'_> {}

impl Template {
    /// The values of a record, one for each of [`Template::fields`].
    pub fn values<'a>(&self, record: &'a Record) -> Values<'a> {
        self.values_and_rest(record).0
    }

    /// The same, and the remaining bytes that the template does not take.
    pub fn values_and_rest<'a>(&self, record: &'a Record) -> (Values<'a>, &'a [u8]) {
        let mut data = Data::new(&record.data, record.word);
        let mut collector =
            Collector { values: Vec::with_capacity(self.fields.len()), ..Collector::default() };
        // Values after a break stay missing.
        let _ = walk(&self.items, &mut data, &mut collector);
        collector.values.resize(self.fields.len(), Value::Missing);
        let rest = &record.data[record.data.len() - data.left()..];
        (Values(collector.values.into_iter()), rest)
    }
}

#[derive(Default)]
struct Collector<'a> {
    /// The values of all open groups and lists.
    values: Vec<Value<'a>>,
    /// The index in `values` at which each of them begins.
    starts: Vec<usize>,
    /// How many values were made in all.
    made: usize,
}

impl<'a> Collector<'a> {
    fn push(&mut self, value: Value<'a>) {
        self.made += 1;
        if let Value::Names(names) = &value {
            // A text takes as much memory as some values.
            self.made += names.len() / size_of::<Value<'_>>();
        }
        self.values.push(value);
    }

    fn start(&mut self) -> usize {
        self.starts.pop().unwrap_or_default()
    }
}

impl<'a> Visitor<'a> for Collector<'a> {
    fn literal(&mut self, _text: &[u8]) {}

    fn value(&mut self, control: &Control, bytes: &'a [u8]) {
        self.push(match control {
            Control::Characters(_) | Control::Text => Value::Text(bytes),
            Control::Signed(_) => Value::Signed(signed(bytes)),
            Control::Unsigned(_) => Value::Unsigned(integer(bytes)),
            Control::Hexadecimal(_) if bytes.len() <= 8 => Value::Unsigned(integer(bytes)),
            Control::Float(_) => Value::Float(float(bytes)),
            Control::Names(_, mask) => Value::Names(mask.text(integer(bytes))),
            Control::Hexadecimal(_) | Control::Dump | Control::Skip(_) => Value::Bytes(bytes),
        });
    }

    fn trouble(&mut self, trouble: DataError<'a>, is_field: bool) {
        if is_field {
            self.push(match trouble {
                DataError::Fault(number) | DataError::Selector(number) => Value::Fault(integer(number)),
                _ => Value::Missing,
            });
        }
    }

    fn absent(&mut self, fields: usize) {
        self.made += fields;
        self.values.resize(self.values.len() + fields, Value::Missing);
    }

    fn begin_group(&mut self) {
        self.starts.push(self.values.len());
    }

    fn end_group(&mut self, fields: usize) {
        let start = self.start();
        self.made += start + fields - self.values.len();
        self.values.resize(start + fields, Value::Missing);
        if fields > 1 {
            let group = self.values.drain(start..).collect();
            self.values.push(Value::Struct(group));
        }
    }

    fn begin_list(&mut self) {
        self.starts.push(self.values.len());
    }

    fn end_list(&mut self, fields: usize) {
        let start = self.start();
        if fields > 0 {
            let list = self.values.drain(start..).collect();
            self.values.push(Value::List(list));
        }
    }

    fn is_full(&self) -> bool {
        self.made >= MAX_VALUES
    }
}
