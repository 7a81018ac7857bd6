//! Attributes of spans, as JSON. Each begins with a comma.

use trace::template::{Field, Value};

use crate::event::Event;
use crate::text::{decimal, float, hex, string};
use crate::value::json_value;

/// The most bytes of a text, and of what was logged without a template.
const LONGEST: usize = 1024;

fn begin(name: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",{\"key\":");
    string(name.as_bytes(), out);
    out.extend_from_slice(b",\"value\":{\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a text.
pub(super) fn text(name: &str, text: &[u8], out: &mut Vec<u8>) {
    begin(name, "stringValue", out);
    string(&text[..text.len().min(LONGEST)], out);
    out.extend_from_slice(b"}}");
}

/// Appends a number.
pub(super) fn number(name: &str, number: i64, out: &mut Vec<u8>) {
    begin(name, "intValue", out);
    out.push(b'"');
    decimal(number, out);
    out.extend_from_slice(b"\"}}");
}

/// Appends what is so.
pub(super) fn flag(name: &str, out: &mut Vec<u8>) {
    begin(name, "boolValue", out);
    out.extend_from_slice(b"true}}");
}

/// Appends the values of a record: by its template `SIDE.NAME`, or the bytes as `SIDE.data`.
pub(super) fn of_record(side: &str, event: &Event<'_>, out: &mut Vec<u8>) {
    let data = &event.record.data;
    match event.template {
        Some(template) => {
            for (field, value) in template.fields().iter().zip(template.values(event.record)) {
                of_field(&format!("{side}.{}", field.name), field, &value, out);
            }
        }
        None if data.is_empty() => {}
        None => {
            let mut digits = Vec::new();
            hex(&data[..data.len().min(LONGEST / 2)], &mut digits);
            text(&format!("{side}.data"), &digits, out);
        }
    }
}

fn of_field(name: &str, field: &Field, value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Signed(value) => number(name, *value, out),
        Value::Unsigned(value) if !matches!(field.kind, trace::template::FieldType::Hexadecimal(_)) => {
            match i64::try_from(*value) {
                Ok(value) => number(name, value, out),
                Err(_) => text(name, value.to_string().as_bytes(), out),
            }
        }
        Value::Float(value) if value.is_finite() => {
            begin(name, "doubleValue", out);
            float(*value, out);
            out.extend_from_slice(b"}}");
        }
        Value::Float(value) => text(name, value.to_string().as_bytes(), out),
        Value::Text(value) => text(name, value, out),
        Value::Names(names) => text(name, names.as_bytes(), out),
        Value::Missing => {}
        other => {
            let mut json = Vec::new();
            json_value(other, &field.kind, &mut json);
            // A text of JSON that is one string is this string.
            let inner = json.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            text(name, inner.unwrap_or(&json), out);
        }
    }
}
