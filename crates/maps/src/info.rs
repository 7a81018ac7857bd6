//! What a map is: the plain numbers that the process and the tracer agree on.

/// What the values of a map are, and what [`Maps::update`](crate::Maps::update) does to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// Bytes that a program stores and fetches.
    Plain = 0,
    /// A sum of what is added: calls, if that is always 1.
    Count = 1,
    /// A sum.
    Sum = 2,
    /// The least number.
    Min = 3,
    /// The greatest number.
    Max = 4,
    /// Count and sum, shown as an average.
    Avg = 5,
    /// Count and sum, shown as count, average and sum.
    Stats = 6,
    /// A histogram with `2^a` buckets for each power of 2.
    Hist = 7,
    /// A histogram of buckets from `a` to `b`, `c` wide, and one bucket below and one above.
    Lhist = 8,
    /// A number for each of `b` intervals of `a` nanoseconds; `c` is its [`Kind`], or Plain for the
    /// last value.
    Tseries = 9,
    /// Byte strings by their number: stacks.
    Stacks = 10,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u32) -> Option<Kind> {
        Some(match number {
            0 => Kind::Plain,
            1 => Kind::Count,
            2 => Kind::Sum,
            3 => Kind::Min,
            4 => Kind::Max,
            5 => Kind::Avg,
            6 => Kind::Stats,
            7 => Kind::Hist,
            8 => Kind::Lhist,
            9 => Kind::Tseries,
            10 => Kind::Stacks,
            _ => return None,
        })
    }
}

/// A map, as its users see it. It is in memory that the probed process cannot write.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapInfo {
    /// The number of its [`Kind`].
    pub kind: u32,
    /// 1 if its numbers are signed: what is the least, and how an average is rounded.
    pub signed: u32,
    /// The most bytes of a key, a multiple of 8; 0: the map has one entry, which is always there.
    pub key: u32,
    /// Bytes of a value, a multiple of 8.
    pub value: u32,
    /// The most entries of one copy.
    pub entries: u32,
    /// The number of copies, which are added up: one for each processor, or fewer. Plain maps and
    /// stacks have one.
    pub copies: u32,
    /// The place of its first word.
    pub place: u32,
    /// The number of words of one copy.
    pub words: u32,
    /// 1 if a new key takes the place of one that was not used for long, where there is no room for
    /// it; such a map has one copy. Else a full map loses what is new.
    pub evicts: u32,
    /// The parameters of its kind.
    pub a: i64,
    /// The second one.
    pub b: i64,
    /// The third one.
    pub c: i64,
}
