//! Any template file, and any record: the file is read or its mistakes are told, and each template makes text and values of the
//! record, within their limits. The first byte chooses the word; the file's text ends with the first NUL, and the record follows.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use trace::Record;
use trace::template::{Field, FieldType, Template, TemplateFile, Value};

/// Bytes of text that a record may become beyond the data itself: repetitions' limit, and one template's own text.
const MOST: usize = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end]);
    let file = TemplateFile::parse(Path::new("input.fmt"), &text);
    // A few messages: rendering all of them would be most of the time.
    for problem in file.problems.iter().take(4) {
        assert!(problem.line > 0 && problem.column > 0 && !problem.to_string().is_empty());
    }
    let data = rest.get(end + 1..).unwrap_or_default().to_vec();
    let record = Record { word: if first & 1 == 0 { 8 } else { 4 }, data, ..Record::default() };
    for template in &file.templates {
        assert!(Some(template.major) == file.major && !template.to_string().is_empty());
        let mut out = Vec::new();
        let formatted = template.format(&record, &mut out);
        assert!(formatted.unused <= record.data.len());
        assert!(out.len() <= MOST + record.data.len() * 8, "{} bytes", out.len());
        let values: Vec<Value<'_>> = template.values(&record).collect();
        assert_eq!(values.len(), template.fields().len());
        values.iter().zip(template.fields()).for_each(|(value, field)| agree(value, &field.kind));
        named(template.fields());
        if let Some(format) = &template.format
            && text.is_ascii()
        {
            let again = Template::compile(template.major, template.minor, &template.description, Some(format));
            // Escapes may have made bytes that are no text; what is text is the same again.
            if !format.contains(char::REPLACEMENT_CHARACTER) {
                assert_eq!(again.as_ref(), Ok(template));
            }
        }
    }
});

/// A value is of its field's kind.
fn agree(value: &Value<'_>, kind: &FieldType) {
    match (value, kind) {
        (Value::Fault(_) | Value::Missing, _) => {}
        (Value::Unsigned(_), FieldType::Unsigned(_) | FieldType::Hexadecimal(_)) => {}
        (Value::Signed(_), FieldType::Signed(_)) | (Value::Float(_), FieldType::Float(_)) => {}
        (Value::Names(names), FieldType::Names(_)) => assert!(!names.is_empty()),
        (Value::Text(_), FieldType::Text) | (Value::Bytes(_), FieldType::Bytes(None)) => {}
        (Value::Text(bytes), FieldType::Characters(count)) | (Value::Bytes(bytes), FieldType::Bytes(Some(count))) => {
            assert_eq!(bytes.len(), usize::from(*count));
        }
        (Value::List(values), FieldType::List(element)) => values.iter().for_each(|value| agree(value, element)),
        (Value::Struct(values), FieldType::Struct(fields)) => {
            assert_eq!(values.len(), fields.len());
            values.iter().zip(fields).for_each(|(value, field)| agree(value, &field.kind));
        }
        _ => panic!("{value:?} is no {kind:?}"),
    }
}

/// Names are names, and each is another.
fn named(fields: &[Field]) {
    let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    for name in &names {
        assert!(name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_'), "{name:?}");
        assert!(name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_'), "{name:?}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), fields.len());
    for field in fields {
        match &field.kind {
            FieldType::Struct(fields) => named(fields),
            FieldType::List(element) => {
                if let FieldType::Struct(fields) = element.as_ref() {
                    named(fields);
                }
            }
            _ => {}
        }
    }
}
