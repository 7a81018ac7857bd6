//! The values of a record as JSON.

use trace::Record;
use trace::template::{Field, FieldType, Template, Value};

use crate::text::{decimal, float, hex, hexadecimal, string};

/// Appends the values of a record, decoded by a template, as a JSON object keyed by field names.
///
/// Numbers are numbers; those shown in hexadecimal are strings (`"0x7f001234"`), as are texts,
/// names of bits and, in hexadecimal digits, bytes. Memory that could not be logged is
/// `{"fault":"0x10"}`; a missing value is `null`.
pub fn json_fields(template: &Template, record: &Record, out: &mut Vec<u8>) {
    object(template.fields(), template.values(record), out);
}

fn object<'a>(fields: &[Field], values: impl Iterator<Item = Value<'a>>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (field, value)) in fields.iter().zip(values).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        string(field.name.as_bytes(), out);
        out.push(b':');
        json_value(&value, &field.kind, out);
    }
    out.push(b'}');
}

/// Appends one value as JSON, like [`json_fields`].
pub fn json_value(value: &Value<'_>, kind: &FieldType, out: &mut Vec<u8>) {
    match value {
        Value::Unsigned(number) if matches!(kind, FieldType::Hexadecimal(_)) => {
            out.push(b'"');
            hexadecimal(*number, out);
            out.push(b'"');
        }
        Value::Unsigned(number) => decimal(*number, out),
        Value::Signed(number) => decimal(*number, out),
        Value::Float(number) => float(*number, out),
        Value::Text(text) => string(text, out),
        Value::Names(names) => string(names.as_bytes(), out),
        Value::Bytes(bytes) => {
            out.push(b'"');
            hex(bytes, out);
            out.push(b'"');
        }
        Value::List(values) => {
            out.push(b'[');
            let element = match kind {
                FieldType::List(element) => element,
                other => other,
            };
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                json_value(value, element, out);
            }
            out.push(b']');
        }
        Value::Struct(values) => match kind {
            FieldType::Struct(fields) => object(fields, values.iter().cloned(), out),
            _ => out.extend_from_slice(b"null"),
        },
        Value::Fault(address) => {
            out.extend_from_slice(b"{\"fault\":\"");
            hexadecimal(*address, out);
            out.extend_from_slice(b"\"}");
        }
        Value::Missing => out.extend_from_slice(b"null"),
    }
}
