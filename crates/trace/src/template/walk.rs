//! Decides which bytes of a record each item takes, and what happens if there are too few. No other
//! module knows this; a [`Visitor`] receives the bytes.

use std::ops::ControlFlow::{self, Break, Continue};

use super::condition::{Condition, Kept};
use super::control::{Control, Group, Item, Single};
use super::number::{integer, signed};
use super::prefix::{self, PREFIX};

/// Receives what a walk finds in a record.
pub(super) trait Visitor<'a> {
    /// A literal text of the template.
    fn literal(&mut self, text: &[u8]);
    /// The bytes of a control; for a string without its NUL. Not called for a skip.
    fn value(&mut self, control: &Control, bytes: &'a [u8]);
    /// A problem: in the place of a value (`is_field`), or besides the values.
    fn trouble(&mut self, trouble: DataError<'a>, is_field: bool);
    /// A group of `fields` values that is not there, since its condition does not hold.
    fn absent(&mut self, fields: usize);
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

/// Applies the items of a template to a record's data. It breaks when the data has ended or the
/// visitor is full.
pub(super) fn walk<'a>(items: &[Item], data: &mut Data<'a>, to: &mut impl Visitor<'a>) -> ControlFlow<()> {
    Walk { kept: Kept::default(), to }.sequence(items, data)
}

/// A walk through one record.
struct Walk<'t, V> {
    /// The values that conditions ask for.
    kept: Kept,
    to: &'t mut V,
}

impl<'a, V: Visitor<'a>> Walk<'_, V> {
    /// Applies items in order.
    fn sequence(&mut self, items: &[Item], data: &mut Data<'a>) -> ControlFlow<()> {
        for item in items {
            match item {
                Item::Literal(text) => self.to.literal(text),
                Item::Control(single) => self.take(single, data)?,
                Item::Prefix => _ = self.announced(data, false)?,
                Item::Prefixed(single) => self.prefixed(single, data)?,
                Item::Group(part) => self.group(part, data)?,
                Item::Repeated(part) => self.repeated(part, data)?,
                Item::Conditional(condition, part) => self.conditional(condition, part, data)?,
            }
        }
        Continue(())
    }

    /// Applies a control to the next data.
    fn take(&mut self, single: &Single, data: &mut Data<'a>) -> ControlFlow<()> {
        let control = &single.control;
        self.kept.keep(single.slot, None);
        let width = match control {
            Control::Characters(width)
            | Control::Signed(width)
            | Control::Float(width)
            | Control::Skip(width)
            | Control::Unsigned(width)
            | Control::Hexadecimal(width)
            | Control::Names(width, _) => width.bytes(data.word),
            Control::Text if data.left() > 0 => {
                self.to.value(control, data.take_text());
                return Continue(());
            }
            // A string needs at least one byte.
            Control::Text => 1,
            Control::Dump => {
                self.to.value(control, data.take_rest());
                return Continue(());
            }
        };
        match data.take(width) {
            Some(bytes) => {
                if single.slot.is_some() {
                    let is_signed = matches!(control, Control::Signed(_));
                    let value = if is_signed { signed(bytes).cast_unsigned() } else { integer(bytes) };
                    self.kept.keep(single.slot, Some(value));
                }
                if control.is_field() {
                    self.to.value(control, bytes);
                }
            }
            None => return self.short(width, data, control.is_field()),
        }
        Continue(())
    }

    /// Reports that the data has ended.
    fn short(&mut self, wanted: usize, data: &mut Data<'a>, is_field: bool) -> ControlFlow<()> {
        self.to.trouble(DataError::Short { wanted, left: data.take_rest() }, is_field);
        Break(())
    }

    /// Reads a prefix. If it announces data, returns that data without taking it. If not (a fault,
    /// a selector, or an unknown token), takes what it announces, reports it to the visitor, in the
    /// place of a value if `is_field`, and returns none.
    fn announced(&mut self, data: &mut Data<'a>, is_field: bool) -> ControlFlow<(), Option<Announced<'a>>> {
        let Some(&[token, low, high]) = data.take(PREFIX) else {
            self.short(PREFIX, data, is_field)?;
            return Continue(None);
        };
        let length = prefix::length(token, u16::from_le_bytes([low, high]), data.word);
        let there = length.min(data.left());
        if prefix::has_data(token) {
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
        self.to.trouble(trouble, is_field);
        if there < length {
            return self.cut(length, there).map_continue(|()| None);
        }
        Continue(None)
    }

    /// Reports that a prefix announces more than there is, and ends the walk.
    fn cut(&mut self, announced: usize, there: usize) -> ControlFlow<()> {
        self.to.trouble(DataError::Cut { announced, there }, false);
        Break(())
    }

    /// Applies a control to the data that a prefix announces. Only a string takes all of it; after
    /// another control, the next item continues where it ended. If the data is too short for the
    /// control, only the prefix's data ends, not the record.
    fn prefixed(&mut self, single: &Single, data: &mut Data<'a>) -> ControlFlow<()> {
        let control = &single.control;
        self.kept.keep(single.slot, None);
        let Some(mut own) = self.announced(data, control.is_field())? else { return Continue(()) };
        let there = own.data.left();
        match control {
            // Unlike without a prefix, a string may be empty.
            Control::Text => {
                self.to.value(control, own.data.take_text());
                own.data.take_rest();
            }
            _ => _ = self.take(single, &mut own.data),
        }
        data.take(there - own.data.left());
        if own.data.left() > 0 { Continue(()) } else { self.finish(&own, there) }
    }

    /// Applies a group to the data that a prefix announces, and takes all of that data.
    fn group(&mut self, part: &Group, data: &mut Data<'a>) -> ControlFlow<()> {
        let Some(mut own) = self.announced(data, part.fields > 0)? else { return Continue(()) };
        let there = own.data.left();
        data.take(there);
        self.to.begin_group();
        // If the data is too short for the group, only the prefix's data ends, not the record.
        let _ = self.sequence(&part.items, &mut own.data);
        self.to.end_group(part.fields);
        self.finish(&own, there)
    }

    /// Applies a part repeatedly until the data that a prefix announces is used up.
    fn repeated(&mut self, part: &Group, data: &mut Data<'a>) -> ControlFlow<()> {
        let Some(mut own) = self.announced(data, part.fields > 0)? else { return Continue(()) };
        let there = own.data.left();
        data.take(there);
        self.to.begin_list();
        let mut flow = Continue(());
        // It terminates: every part has an item that takes data, or breaks if there is too little.
        while flow.is_continue() && own.data.left() > 0 && !self.to.is_full() {
            self.to.begin_group();
            flow = self.sequence(&part.items, &mut own.data);
            self.to.end_group(part.fields);
        }
        self.to.end_list(part.fields);
        self.finish(&own, there)
    }

    /// Applies a part if its condition holds. Its values belong to the sequence that it stands in.
    fn conditional(&mut self, condition: &Condition, part: &Group, data: &mut Data<'a>) -> ControlFlow<()> {
        if condition.holds(&self.kept) {
            return self.sequence(&part.items, data);
        }
        self.kept.forget(condition.inside);
        self.to.absent(part.fields);
        Continue(())
    }

    /// Continues after the data that a prefix announces.
    fn finish(&mut self, own: &Announced<'a>, there: usize) -> ControlFlow<()> {
        match own.is_whole {
            _ if self.to.is_full() => Break(()),
            true => Continue(()),
            false => self.cut(own.length, there),
        }
    }
}
