//! What is exported: families of series, as they are at one moment.

/// All that is exported, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When counting began: nanoseconds since 1970.
    pub start: u64,
    /// When the values were read: nanoseconds since 1970.
    pub time: u64,
    /// The families; no two have a name of a sample in common.
    pub families: Vec<Family>,
}

/// Series of one meaning, which differ in their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, without what the kind adds (`_total`, `_bucket`).
    pub name: String,
    /// What it is, in a sentence.
    pub help: String,
    /// What its values are.
    pub kind: Kind,
    /// The series.
    pub series: Vec<Series>,
}

/// What the values of a family are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that only grow, until they begin again at 0.
    Counter,
    /// Numbers that go up and down.
    Gauge,
    /// How many numbers there were, and their sum.
    Summary {
        /// Whether some may be below 0.
        signed: bool,
    },
    /// How many numbers there were in each interval. These are the greatest numbers of all
    /// intervals but the last, which has no bound, in ascending order.
    Histogram(Vec<i128>),
}

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values of its labels.
    pub labels: Vec<(String, String)>,
    /// Its value, as the family's kind has it.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or gauge.
    Number(i128),
    /// Of a summary.
    Summary {
        /// How many numbers.
        count: u64,
        /// Their sum.
        sum: i128,
    },
    /// Of a histogram.
    Histogram {
        /// How many numbers each interval has: one count more than there are bounds.
        counts: Vec<u64>,
        /// The sum of the numbers, estimated by the intervals.
        sum: f64,
    },
}

impl Kind {
    /// How many lines a series has in Prometheus' text.
    pub(crate) fn lines(&self) -> usize {
        match self {
            Kind::Counter | Kind::Gauge => 1,
            Kind::Summary { .. } => 2,
            Kind::Histogram(bounds) => bounds.len() + 3,
        }
    }

    /// Whether a value is one of this kind.
    pub(crate) fn has(&self, value: &Value) -> bool {
        match (self, value) {
            (Kind::Counter | Kind::Gauge, Value::Number(_))
            | (Kind::Summary { .. }, Value::Summary { .. }) => true,
            (Kind::Histogram(bounds), Value::Histogram { counts, .. }) => counts.len() == bounds.len() + 1,
            _ => false,
        }
    }

    /// Adds a value of the same labels. A gauge has none to add: the first stays.
    pub(crate) fn merge(&self, into: &mut Value, other: &Value) {
        match (into, other) {
            (Value::Number(sum), Value::Number(other)) if *self == Kind::Counter => {
                *sum = sum.saturating_add(*other);
            }
            (Value::Summary { count, sum }, Value::Summary { count: more, sum: other }) => {
                *count = count.saturating_add(*more);
                *sum = sum.saturating_add(*other);
            }
            (Value::Histogram { counts, sum }, Value::Histogram { counts: more, sum: other }) => {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(*more));
                *sum += other;
            }
            _ => {}
        }
    }
}
