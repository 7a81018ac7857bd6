//! Writes the values of a record as `DebugAnnotation`s.

use trace::Record;
use trace::template::{Field, FieldType as FieldKind, Template, Value};

use super::field::{annotation, event};
use super::names::{Kind, Names};
use super::wire::{double, message, number, signed, text, varint};
use crate::text::hex;

/// Appends a record's contents as annotations of its event: the template's values, else the bytes.
pub(super) fn annotations(
    record: &Record,
    template: Option<&Template>,
    names: &mut Names,
    out: &mut Vec<u8>,
) {
    match template {
        Some(template) => {
            for (field, value) in template.fields().iter().zip(template.values(record)) {
                annotation(event::ANNOTATION, Some(field), &value, &field.kind, names, out);
            }
        }
        None if record.data.is_empty() => {}
        None => {
            let name = names.number(Kind::Annotation, b"data");
            message(event::ANNOTATION, out, |out| {
                number(annotation::NAME, name, out);
                varint(u64::from(annotation::TEXT) << 3 | 2, out);
                varint(2 * record.data.len() as u64, out);
                hex(&record.data, out);
            });
        }
    }
}

/// Appends a boolean annotation that is true.
pub(super) fn flag(name: &str, names: &mut Names, out: &mut Vec<u8>) {
    let name = names.number(Kind::Annotation, name.as_bytes());
    message(event::ANNOTATION, out, |out| {
        number(annotation::NAME, name, out);
        number(annotation::BOOL, 1, out);
    });
}

/// Appends one value as field `part` of the enclosing message; elements of lists have no names.
fn annotation(
    part: u32,
    field: Option<&Field>,
    value: &Value<'_>,
    kind: &FieldKind,
    names: &mut Names,
    out: &mut Vec<u8>,
) {
    message(part, out, |out| {
        if let Some(field) = field {
            number(annotation::NAME, names.number(Kind::Annotation, field.name.as_bytes()), out);
        }
        match value {
            Value::Unsigned(value) if matches!(kind, FieldKind::Hexadecimal(_)) => {
                number(annotation::POINTER, *value, out);
            }
            Value::Unsigned(value) => number(annotation::UNSIGNED, *value, out),
            Value::Signed(value) => signed(annotation::SIGNED, *value, out),
            Value::Float(value) => double(annotation::DOUBLE, *value, out),
            Value::Text(value) => text(annotation::TEXT, value, out),
            Value::Names(names) => text(annotation::TEXT, names.as_bytes(), out),
            Value::Bytes(bytes) => {
                let mut digits = Vec::new();
                hex(bytes, &mut digits);
                text(annotation::TEXT, &digits, out);
            }
            Value::List(values) => {
                let element = match kind {
                    FieldKind::List(element) => element,
                    other => other,
                };
                for value in values {
                    annotation(annotation::VALUES, None, value, element, names, out);
                }
            }
            Value::Struct(values) => {
                if let FieldKind::Struct(fields) = kind {
                    for (field, value) in fields.iter().zip(values) {
                        annotation(annotation::ENTRIES, Some(field), value, &field.kind, names, out);
                    }
                }
            }
            Value::Fault(address) => {
                text(annotation::TEXT, format!("<fault at {address:#x}>").as_bytes(), out);
            }
            Value::Missing => text(annotation::TEXT, b"<missing>", out),
        }
    });
}
