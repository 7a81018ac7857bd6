//! The fields of an event for the logged data: their description in TSDL, and their encoding.

use std::collections::HashSet;
use std::fmt::Write;

use super::metadata::identifier;
use crate::template::{Field, FieldType, Template, Value};

/// The TSDL type of a byte, shown in hexadecimal.
const BYTE: &str = "integer { size = 8; align = 8; signed = false; base = 16; }";
/// The TSDL type of a byte of text.
const CHARACTER: &str = "integer { size = 8; align = 8; signed = false; encoding = UTF8; }";

/// The error of a value that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

/// The encoding of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// An integer of 1 to 8 bytes, shown in this base.
    Integer { bytes: usize, signed: bool, base: u8 },
    /// A floating point number of 4 or 8 bytes.
    Float(usize),
    /// Text that ends with a NUL.
    Text,
    /// A fixed number of characters.
    Characters(usize),
    /// A fixed number of bytes.
    Array(usize),
    /// The number of bytes in 4 bytes, then the bytes.
    Bytes,
    /// The number of elements in 4 bytes, then the elements.
    List(Box<Layout>),
    /// The number of elements in 4 bytes, 0 or 1, then the element.
    Optional(Box<Layout>),
    /// Several values, one after the other.
    Struct(Vec<(String, Layout)>),
}

/// The fields of an event class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Names and layouts, in order.
    layouts: Vec<(String, Layout)>,
}

impl Fields {
    /// The fields of records without a template: `data`, all bytes.
    pub(super) fn raw() -> Fields {
        Fields { layouts: vec![("data".to_owned(), Layout::Bytes)] }
    }

    /// The fields of a template, in programs with words of `word` bytes. With `has_rest`, a last
    /// field takes the bytes after them.
    pub(super) fn of(template: &Template, word: usize, has_rest: bool) -> Fields {
        let mut layouts: Vec<_> = template.fields().iter().map(|field| named(field, word)).collect();
        if has_rest {
            let mut name = "rest".to_owned();
            while layouts.iter().any(|(other, _)| *other == name) {
                name.push('_');
            }
            layouts.push((name, Layout::Bytes));
        }
        Fields { layouts }
    }

    /// Their description in TSDL: a structure.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        structure(&self.layouts, 1, &mut text);
        text
    }

    /// Appends the encoded values.
    ///
    /// # Errors
    /// The values do not fit the fields; then `out` has useless bytes at its end.
    pub(super) fn encode<'a>(
        &self,
        values: impl Iterator<Item = Value<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<(), Mismatch> {
        let mut values = values;
        for (_, layout) in &self.layouts {
            encode(layout, &values.next().ok_or(Mismatch)?, out)?;
        }
        match values.next() {
            None => Ok(()),
            Some(_) => Err(Mismatch),
        }
    }
}

fn named(field: &Field, word: usize) -> (String, Layout) {
    let layout = layout(&field.kind, word);
    let layout = if field.is_conditional { Layout::Optional(Box::new(layout)) } else { layout };
    (field.name.clone(), layout)
}

/// The layout of a kind of value.
fn layout(kind: &FieldType, word: usize) -> Layout {
    let integer = |width: &crate::template::Width, signed, base| Layout::Integer {
        bytes: width.bytes(word).clamp(1, 8),
        signed,
        base,
    };
    match kind {
        FieldType::Unsigned(width) => integer(width, false, 10),
        FieldType::Signed(width) => integer(width, true, 10),
        FieldType::Hexadecimal(width) => integer(width, false, 16),
        // Numbers of 10 bytes are rounded to 8 when they are read.
        FieldType::Float(width) => Layout::Float(if width.bytes(word) == 4 { 4 } else { 8 }),
        FieldType::Characters(count) => Layout::Characters(usize::from(*count)),
        FieldType::Text | FieldType::Names(_) => Layout::Text,
        FieldType::Bytes(Some(count)) => Layout::Array(usize::from(*count)),
        FieldType::Bytes(None) => Layout::Bytes,
        FieldType::List(element) => Layout::List(Box::new(layout(element, word))),
        FieldType::Struct(fields) => Layout::Struct(fields.iter().map(|field| named(field, word)).collect()),
    }
}

/// Appends the description of a structure, up to its closing brace.
fn structure(fields: &[(String, Layout)], depth: usize, text: &mut String) {
    text.push_str("struct {\n");
    let mut names: HashSet<String> = fields.iter().map(|(name, _)| identifier(name)).collect();
    for (name, layout) in fields {
        declare(&identifier(name), layout, &mut names, depth + 1, text);
    }
    indent(depth, text);
    text.push('}');
}

/// Declares one field. Length fields get names that no other field has.
fn declare(name: &str, layout: &Layout, names: &mut HashSet<String>, depth: usize, text: &mut String) {
    let mut length = |text: &mut String| {
        let mut length = format!("_{name}_length");
        while !names.insert(length.clone()) {
            length.push('_');
        }
        indent(depth, text);
        let _ = writeln!(text, "uint32_t {length};");
        length
    };
    match layout {
        Layout::Bytes => {
            let length = length(text);
            indent(depth, text);
            let _ = writeln!(text, "{BYTE} {name}[{length}];");
        }
        Layout::List(element) | Layout::Optional(element) => {
            let length = length(text);
            indent(depth, text);
            element_type(element, depth, text);
            let _ = writeln!(text, " {name}[{length}];");
        }
        Layout::Characters(count) => {
            indent(depth, text);
            let _ = writeln!(text, "{CHARACTER} {name}[{count}];");
        }
        Layout::Array(count) => {
            indent(depth, text);
            let _ = writeln!(text, "{BYTE} {name}[{count}];");
        }
        simple => {
            indent(depth, text);
            element_type(simple, depth, text);
            let _ = writeln!(text, " {name};");
        }
    }
}

/// Appends the type of one value. What takes several TSDL declarations is wrapped in a structure.
fn element_type(layout: &Layout, depth: usize, text: &mut String) {
    match layout {
        Layout::Integer { bytes, signed, base } => {
            let bits = bytes * 8;
            let _ = write!(text, "integer {{ size = {bits}; align = 8; signed = {signed}; base = {base}; }}");
        }
        Layout::Float(4) => text.push_str("floating_point { exp_dig = 8; mant_dig = 24; align = 8; }"),
        Layout::Float(_) => text.push_str("floating_point { exp_dig = 11; mant_dig = 53; align = 8; }"),
        Layout::Text => text.push_str("string"),
        Layout::Struct(fields) => structure(fields, depth, text),
        Layout::Characters(_) | Layout::Array(_) | Layout::Bytes | Layout::List(_) | Layout::Optional(_) => {
            structure(&[("value".to_owned(), layout.clone())], depth, text);
        }
    }
}

fn indent(depth: usize, text: &mut String) {
    (0..depth).for_each(|_| text.push('\t'));
}

/// Appends an encoded value.
fn encode(layout: &Layout, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Mismatch> {
    match (layout, value) {
        (Layout::Integer { bytes, .. }, Value::Unsigned(number)) => {
            out.extend_from_slice(&number.to_le_bytes()[..*bytes]);
        }
        (Layout::Integer { bytes, .. }, Value::Signed(number)) => {
            out.extend_from_slice(&number.to_le_bytes()[..*bytes]);
        }
        // A number of 4 bytes was widened when it was read; narrowing restores it exactly.
        (Layout::Float(4), Value::Float(number)) => out.extend_from_slice(&(*number as f32).to_le_bytes()),
        (Layout::Float(_), Value::Float(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (Layout::Text, Value::Text(text)) => {
            if text.contains(&0) {
                return Err(Mismatch);
            }
            out.extend_from_slice(text);
            out.push(0);
        }
        (Layout::Text, Value::Names(names)) => {
            // A name has no control characters.
            out.extend_from_slice(names.as_bytes());
            out.push(0);
        }
        (Layout::Characters(count), Value::Text(bytes)) | (Layout::Array(count), Value::Bytes(bytes)) => {
            if bytes.len() != *count {
                return Err(Mismatch);
            }
            out.extend_from_slice(bytes);
        }
        (Layout::Bytes, Value::Bytes(bytes)) => {
            count(bytes.len(), out)?;
            out.extend_from_slice(bytes);
        }
        (Layout::List(element), Value::List(values)) => {
            count(values.len(), out)?;
            values.iter().try_for_each(|value| encode(element, value, out))?;
        }
        (Layout::Optional(_), Value::Missing) => count(0, out)?,
        (Layout::Optional(element), value) => {
            count(1, out)?;
            encode(element, value, out)?;
        }
        (Layout::Struct(fields), Value::Struct(values)) => {
            if fields.len() != values.len() {
                return Err(Mismatch);
            }
            fields.iter().zip(values).try_for_each(|((_, layout), value)| encode(layout, value, out))?;
        }
        _ => return Err(Mismatch),
    }
    Ok(())
}

fn count(count: usize, out: &mut Vec<u8>) -> Result<(), Mismatch> {
    let count = u32::try_from(count).map_err(|_| Mismatch)?;
    out.extend_from_slice(&count.to_le_bytes());
    Ok(())
}
