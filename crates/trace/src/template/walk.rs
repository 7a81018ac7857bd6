//! Decides which bytes of a record each item takes, and what happens if there are too few. No other
//! module knows this; a [`Visitor`] receives the bytes.
//!
//! A prefix has three bytes: a token, and a length of 16 bits.
//!
//! | token | the length counts | what follows |
//! |---|---|---|
//! | 0 | bytes | memory |
//! | 1 | bytes | a string, which ends earlier where it has a NUL |
//! | 5, 6, 7 | words | variables, elements of the stack |
//! | 0xff | bytes | the address that could not be read |
//! | 0xfe | bytes | the selector that could not be used |

use std::ops::ControlFlow::{self, Break, Continue};

use super::control::{Control, Group, Item};

/// The size of a prefix, in bytes.
const PREFIX: usize = 3;

/// Receives what a walk finds in a record.
pub(super) trait Visitor<'a> {
    /// A literal text of the template.
    fn literal(&mut self, text: &[u8]);
    /// The bytes of a control; for a string without its NUL. Not called for a skip.
    fn value(&mut self, control: Control, bytes: &'a [u8]);
    /// A problem: in the place of a value (`is_field`), or besides the values.
    fn trouble(&mut self, trouble: DataError<'a>, is_field: bool);
    /// Begins a group of values.
    fn begin_group(&mut self);
    /// Ends a group of `fields` values. It may have had fewer.
    fn end_group(&mut self, fields: usize);
    /// Begins a repetition, whose elements are groups.
    fn begin_list(&mut self);
    fn end_list(&mut self, fields: usize);
    /// Whether the visitor has reached its limit, and the walk must end.
    fn is_full(&self) -> bool;
}

/// A problem in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataError<'a> {
    /// The address of memory that could not be read.
    Fault(&'a [u8]),
    /// The selector of a segment that could not be used.
    Selector(&'a [u8]),
    /// A prefix with an unknown token.
    Unknown { token: u8, length: usize },
    /// Fewer bytes than the item needs.
    Short { wanted: usize, left: &'a [u8] },
    /// Fewer bytes than a prefix announces.
    Cut { announced: usize, there: usize },
}

/// The rest of a record's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    rest: &'a [u8],
    /// The size of a word of the probed program, in bytes.
    word: usize,
}

impl<'a> Data<'a> {
    pub(super) fn new(rest: &'a [u8], word: usize) -> Data<'a> {
        Data { rest, word }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes a string: up to its NUL, which is taken too, or all bytes.
    fn take_text(&mut self) -> &'a [u8] {
        match self.rest.iter().position(|&byte| byte == 0) {
            Some(end) => {
                let text = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                text
            }
            None => self.take_rest(),
        }
    }
}

/// The data that a prefix announces.
struct Announced<'a> {
    /// The data, as far as the record has it.
    data: Data<'a>,
    /// The announced length, in bytes.
    length: usize,
    is_whole: bool,
}

/// Applies items to data. It breaks when the data has ended or the visitor is full.
pub(super) fn walk<'a>(items: &[Item], data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    for item in items {
        match item {
            Item::Literal(text) => to.literal(text),
            Item::Control(control) => take(*control, data, to)?,
            Item::Prefix => _ = announced(data, to, false)?,
            Item::Prefixed(control) => prefixed(*control, data, to)?,
            Item::Group(part) => group(part, data, to)?,
            Item::Repeated(part) => repeated(part, data, to)?,
        }
    }
    Continue(())
}

/// Applies a control to the next data.
fn take<'a>(control: Control, data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    let width = match control {
        Control::Characters(width)
        | Control::Signed(width)
        | Control::Float(width)
        | Control::Skip(width)
        | Control::Unsigned(width)
        | Control::Hexadecimal(width) => width.bytes(data.word),
        Control::Text if data.left() > 0 => {
            to.value(control, data.take_text());
            return Continue(());
        }
        // A string needs at least one byte.
        Control::Text => 1,
        Control::Dump => {
            to.value(control, data.take_rest());
            return Continue(());
        }
    };
    match data.take(width) {
        Some(bytes) if control.is_field() => to.value(control, bytes),
        Some(_) => {}
        None => return short(width, data, to, control.is_field()),
    }
    Continue(())
}

/// Reports that the data has ended.
fn short<'a>(
    wanted: usize,
    data: &mut Data<'a>,
    to: &mut impl Visitor<'a>,
    is_field: bool,
) -> ControlFlow<()> {
    to.trouble(DataError::Short { wanted, left: data.take_rest() }, is_field);
    Break(())
}

/// Reads a prefix. If it announces data, returns that data without taking it. If not (a fault, a
/// selector, or an unknown token), takes what it announces, reports it to the visitor, in the place
/// of a value if `is_field`, and returns none.
fn announced<'a>(
    data: &mut Data<'a>,
    to: &mut impl Visitor<'a>,
    is_field: bool,
) -> ControlFlow<(), Option<Announced<'a>>> {
    let Some(&[token, low, high]) = data.take(PREFIX) else {
        short(PREFIX, data, to, is_field)?;
        return Continue(None);
    };
    let count = usize::from(u16::from_le_bytes([low, high]));
    let length = if matches!(token, 5..=7) { count * if data.word == 4 { 4 } else { 8 } } else { count };
    let there = length.min(data.left());
    if matches!(token, 0 | 1 | 5..=7) {
        let own = &data.rest[..there];
        let nul = own.iter().position(|&byte| byte == 0).filter(|_| token == 1);
        let own = nul.map_or(own, |nul| &own[..=nul]);
        let is_whole = nul.is_some() || there == length;
        return Continue(Some(Announced { data: Data { rest: own, ..*data }, length, is_whole }));
    }
    let bytes = data.take(there).unwrap_or_default();
    let trouble = match token {
        0xff => DataError::Fault(bytes),
        0xfe => DataError::Selector(bytes),
        _ => DataError::Unknown { token, length },
    };
    to.trouble(trouble, is_field);
    if there < length {
        return cut(length, there, to).map_continue(|()| None);
    }
    Continue(None)
}

/// Reports that a prefix announces more than there is, and ends the walk.
fn cut<'a>(announced: usize, there: usize, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    to.trouble(DataError::Cut { announced, there }, false);
    Break(())
}

/// Applies a control to the data that a prefix announces. Only a string takes all of it; after
/// another control, the next item continues where it ended. If the data is too short for the
/// control, only the prefix's data ends, not the record.
fn prefixed<'a>(control: Control, data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    let Some(mut own) = announced(data, to, control.is_field())? else { return Continue(()) };
    let there = own.data.left();
    match control {
        // Unlike without a prefix, a string may be empty.
        Control::Text => {
            to.value(control, own.data.take_text());
            own.data.take_rest();
        }
        _ => _ = take(control, &mut own.data, to),
    }
    data.take(there - own.data.left());
    if own.data.left() > 0 { Continue(()) } else { finish(&own, there, to) }
}

/// Applies a group to the data that a prefix announces, and takes all of that data.
fn group<'a>(part: &Group, data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    let Some(mut own) = announced(data, to, part.fields > 0)? else { return Continue(()) };
    let there = own.data.left();
    data.take(there);
    to.begin_group();
    // If the data is too short for the group, only the prefix's data ends, not the record.
    let _ = walk(&part.items, &mut own.data, to);
    to.end_group(part.fields);
    finish(&own, there, to)
}

/// Applies a part repeatedly until the data that a prefix announces is used up.
fn repeated<'a>(part: &Group, data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    let Some(mut own) = announced(data, to, part.fields > 0)? else { return Continue(()) };
    let there = own.data.left();
    data.take(there);
    to.begin_list();
    let mut flow = Continue(());
    // It terminates: every part has an item that takes data, or breaks if there is too little.
    while flow.is_continue() && own.data.left() > 0 && !to.is_full() {
        to.begin_group();
        flow = walk(&part.items, &mut own.data, to);
        to.end_group(part.fields);
    }
    to.end_list(part.fields);
    finish(&own, there, to)
}

/// Continues after the data that a prefix announces.
fn finish<'a>(own: &Announced<'a>, there: usize, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    match own.is_whole {
        _ if to.is_full() => Break(()),
        true => Continue(()),
        false => cut(own.length, there, to),
    }
}
