//! The fields of a template: names and types of the values in a record's data.
//!
//! A template does not name its values, so names come from the text before each control:
//! `size=%8u from 0x%8x` has the fields `size` and `from`.

use std::collections::HashMap;
use std::fmt;

use super::compile::Template;
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

impl fmt::Display for Template {
    /// The template as a list of its fields: `9,1 write: fd i32, length x64, codes [u16]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{} {}:", self.major, self.minor, self.description)?;
        for (number, field) in self.fields().iter().enumerate() {
            write!(f, "{} {field}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.kind)
    }
}

impl fmt::Display for FieldType {
    /// `u`, `i`, `x` or `f` with the number of bits or `-word`; `char[16]`, `text`, `bytes`; a list
    /// in brackets, a structure in braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldType::Unsigned(width) => write!(f, "u{width}"),
            FieldType::Signed(width) => write!(f, "i{width}"),
            FieldType::Hexadecimal(width) => write!(f, "x{width}"),
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
    let mut fields: Vec<Field> = Vec::new();
    let mut names = Names::default();
    let mut before: &[u8] = &[];
    for item in items {
        if let Some((inner, kind)) = kind(item) {
            let own = label(&String::from_utf8_lossy(before));
            // The label inside a group of one value is nearer to it than the label before the
            // group.
            let label = if inner.is_empty() { own } else { inner };
            fields.push(Field { name: names.name(&label, fields.len() + 1), label, kind });
        }
        before = match item {
            Item::Literal(text) => text,
            // Skipped data may be between a label and its value.
            Item::Prefix | Item::Control(Control::Skip(_)) => before,
            _ => &[],
        };
    }
    fields
}

/// The label and type of an item's value: the label is the one inside a group.
fn kind(item: &Item) -> Option<(String, FieldType)> {
    match item {
        Item::Literal(_) | Item::Prefix => None,
        Item::Control(control) | Item::Prefixed(control) => Some((String::new(), simple(*control)?)),
        Item::Group(part) => together(part),
        Item::Repeated(part) => {
            let (label, kind) = together(part)?;
            Some((label, FieldType::List(Box::new(kind))))
        }
    }
}

/// The type of a group: its only value, or a structure of all.
fn together(part: &Group) -> Option<(String, FieldType)> {
    let mut fields = of(&part.items);
    match fields.len() {
        0 => None,
        1 => fields.pop().map(|field| (field.label, field.kind)),
        _ => Some((String::new(), FieldType::Struct(fields))),
    }
}

fn simple(control: Control) -> Option<FieldType> {
    Some(match control {
        Control::Skip(_) => return None,
        Control::Characters(width) => FieldType::Characters(width.bytes(8) as u16),
        Control::Signed(width) => FieldType::Signed(width),
        Control::Unsigned(width) => FieldType::Unsigned(width),
        Control::Hexadecimal(Width::Bytes(bytes @ 9..)) => FieldType::Bytes(Some(bytes)),
        Control::Hexadecimal(width) => FieldType::Hexadecimal(width),
        Control::Float(width) => FieldType::Float(width),
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
