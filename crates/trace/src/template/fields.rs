//! The fields of a template: names and types of the values in a record's data.
//!
//! A template does not name its values, so names come from the text before each control:
//! `size=%8u from 0x%8x` has the fields `size` and `from`.

use std::collections::HashMap;
use std::fmt;

use super::control::{Control, Group, Item, Width};

/// The greatest length of a label. Of a longer text, only the last word is used.
const LABEL: usize = 40;

/// A value that every record of a template has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// A name of letters, digits and `_`, unique in its template or group: made from the label, or
    /// `field3` for the third field without one.
    pub name: String,
    /// The text before the value that describes it, as in the template; empty if there is none.
    pub label: String,
    /// Its type and width.
    pub kind: FieldType,
    /// Whether a condition decides if the record has it.
    pub is_conditional: bool,
}

/// The type of a field. All numbers are little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// An unsigned integer of at most 8 bytes.
    Unsigned(Width),
    /// A signed integer of at most 8 bytes.
    Signed(Width),
    /// An unsigned integer of at most 8 bytes that is shown in hexadecimal: an address, flags.
    Hexadecimal(Width),
    /// The names of the bits of an integer of at most 8 bytes.
    Names(Width),
    /// A floating point number of 4, 8 or 10 bytes.
    Float(Width),
    /// A fixed number of characters.
    Characters(u16),
    /// A string, of any length.
    Text,
    /// A fixed or variable number of bytes.
    Bytes(Option<u16>),
    /// A number of elements of one type, given by the record.
    List(Box<FieldType>),
    /// Several values that form a group.
    Struct(Vec<Field>),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_conditional { "?" } else { "" };
        write!(f, "{}{mark} {}", self.name, self.kind)
    }
}

impl fmt::Display for FieldType {
    /// `u`, `i`, `x`, `m` or `f` with the number of bits or `-word`; `char[16]`, `text`, `bytes`; a
    /// list in brackets, a structure in braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldType::Unsigned(width) => write!(f, "u{width}"),
            FieldType::Signed(width) => write!(f, "i{width}"),
            FieldType::Hexadecimal(width) => write!(f, "x{width}"),
            FieldType::Names(width) => write!(f, "m{width}"),
            FieldType::Float(width) => write!(f, "f{width}"),
            FieldType::Characters(count) => write!(f, "char[{count}]"),
            FieldType::Text => f.write_str("text"),
            FieldType::Bytes(Some(count)) => write!(f, "bytes[{count}]"),
            FieldType::Bytes(None) => f.write_str("bytes"),
            FieldType::List(element) => write!(f, "[{element}]"),
            FieldType::Struct(fields) => {
                for (number, field) in fields.iter().enumerate() {
                    write!(f, "{} {field}", if number == 0 { "{" } else { "," })?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// The fields that items make.
pub(super) fn of(items: &[Item]) -> Vec<Field> {
    let mut fields = Vec::new();
    collect(items, false, &mut Namer::default(), &mut fields);
    fields
}

fn collect(items: &[Item], is_conditional: bool, namer: &mut Namer, fields: &mut Vec<Field>) {
    for item in items {
        if let Item::Conditional(_, part) = item {
            collect(&part.items, true, namer, fields);
        } else if let Some(field) = namer.next(item) {
            fields.push(Field { is_conditional: field.is_conditional || is_conditional, ..field });
        }
    }
}

/// Names the fields of a template or group, item by item. The items of a conditional group are
/// items of the sequence that it stands in.
#[derive(Default)]
pub(super) struct Namer {
    names: Names,
    /// The label that the text before the next item is.
    before: String,
    /// How many fields it has named.
    count: usize,
}

impl Namer {
    /// The field that the next item makes.
    pub(super) fn next(&mut self, item: &Item) -> Option<Field> {
        if let Item::Literal(text) = item {
            self.before = label(&String::from_utf8_lossy(text));
        }
        let field = kind(item).map(|(inner, kind, is_conditional)| {
            // The label inside a group of one value is nearer to it than the label before the
            // group.
            let label = if inner.is_empty() { std::mem::take(&mut self.before) } else { inner };
            self.count += 1;
            Field { name: self.names.name(&label, self.count), label, kind, is_conditional }
        });
        // Skipped data may be between a label and its value.
        let keeps_label = match item {
            Item::Literal(_) | Item::Prefix => true,
            Item::Control(single) => matches!(single.control, Control::Skip(_)),
            _ => false,
        };
        if !keeps_label {
            self.before.clear();
        }
        field
    }
}

/// The label and type of an item's value, and whether a condition decides if it is there: the label
/// is the one inside a group.
fn kind(item: &Item) -> Option<(String, FieldType, bool)> {
    match item {
        // The values of a conditional group are fields of their own.
        Item::Literal(_) | Item::Prefix | Item::Conditional(..) => None,
        Item::Control(single) | Item::Prefixed(single) => {
            Some((String::new(), simple(&single.control)?, false))
        }
        Item::Group(part) => together(part),
        Item::Repeated(part) => {
            let (label, kind, _) = together(part)?;
            Some((label, FieldType::List(Box::new(kind)), false))
        }
    }
}

/// The type of a group: its only value, or a structure of all.
fn together(part: &Group) -> Option<(String, FieldType, bool)> {
    let mut fields = of(&part.items);
    match fields.len() {
        0 => None,
        1 => fields.pop().map(|field| (field.label, field.kind, field.is_conditional)),
        _ => Some((String::new(), FieldType::Struct(fields), false)),
    }
}

fn simple(control: &Control) -> Option<FieldType> {
    Some(match control {
        Control::Skip(_) => return None,
        Control::Characters(width) => FieldType::Characters(width.bytes(8) as u16),
        Control::Signed(width) => FieldType::Signed(*width),
        Control::Unsigned(width) => FieldType::Unsigned(*width),
        Control::Hexadecimal(Width::Bytes(bytes @ 9..)) => FieldType::Bytes(Some(*bytes)),
        Control::Hexadecimal(width) => FieldType::Hexadecimal(*width),
        Control::Names(width, _) => FieldType::Names(*width),
        Control::Float(width) => FieldType::Float(*width),
        Control::Text => FieldType::Text,
        Control::Dump => FieldType::Bytes(None),
    })
}

/// The end of a text that describes the value after it: `, return code=0x` gives `return code`.
fn label(text: &str) -> String {
    let mut text = text;
    loop {
        let shorter =
            text.trim_end_matches(|last: char| last.is_whitespace() || "=:'\"`([{<#".contains(last));
        let shorter = match shorter.strip_suffix("0x").or_else(|| shorter.strip_suffix("0X")) {
            Some(number) if !number.ends_with(|last: char| last.is_alphanumeric()) => number,
            _ => shorter,
        };
        if shorter.len() == text.len() {
            break;
        }
        text = shorter;
    }
    let ends = |each: char| each.is_control() || ",;:|=()[]{}<>\"'`".contains(each);
    let last = text.rsplit(ends).next().unwrap_or_default().trim();
    match last.chars().nth(LABEL) {
        Some(_) => last.rsplit(' ').next().unwrap_or_default().chars().take(LABEL).collect(),
        None => last.to_owned(),
    }
}

/// Makes names unique.
#[derive(Default)]
struct Names {
    /// How often each name was requested.
    wanted: HashMap<String, usize>,
}

impl Names {
    /// A unique name for the value at a place, from its label.
    fn name(&mut self, label: &str, place: usize) -> String {
        let mut name = String::new();
        for each in label.chars() {
            match each {
                'A'..='Z' | 'a'..='z' | '0'..='9' | '_' => name.push(each),
                _ if name.ends_with('_') => {}
                _ => name.push('_'),
            }
        }
        let name = match name.trim_matches('_') {
            "" => format!("field{place}"),
            name if name.starts_with(|first: char| first.is_ascii_digit()) => format!("_{name}"),
            name => name.to_owned(),
        };
        let mut unique = name.clone();
        // The numbered name is recorded too, since it may be another's label; thus each number is
        // tried once.
        while let Some(count) = self.wanted.get_mut(&unique) {
            *count += 1;
            unique = format!("{name}_{count}");
        }
        self.wanted.insert(unique.clone(), 1);
        unique
    }
}
