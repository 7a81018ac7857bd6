//! Tests the examples of docs/templates.md: every template, record and text on the page, in order.
//!
//! A `template` block is a template file. A `record` block has a record in each line, in
//! hexadecimal and quoted characters, for the template file before it; a `shown` block is the
//! resulting text. A `fields` block is what the template says of records. A `wrong` block is a file
//! with mistakes, and a `told` block has the messages about them.

use std::path::Path;

use dprobes_trace::template::{TemplateFile, Templates};
use dprobes_trace::{Items, Record};

const PAGE: &str = include_str!("../../../../docs/templates.md");

/// The blocks of the page: language and text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut blocks = Vec::new();
    let mut rest = PAGE;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').expect("a block has lines");
        let (text, after) = after.split_once("```").expect("a block ends");
        blocks.push((language, text));
        rest = after;
    }
    blocks
}

/// Parses a record from its line: `2,2 word 4: 00 "text" 01`.
fn record(line: &str) -> Record {
    let (head, data) = line.split_once(": ").expect("codes, then data");
    let (codes, word) = head.split_once(" word ").unwrap_or((head, "8"));
    let (major, minor) = codes.split_once(',').expect("two codes");
    let mut bytes = Vec::new();
    for (number, part) in data.split('"').enumerate() {
        let hexadecimal = |text: &str| u8::from_str_radix(text, 16).expect("hexadecimal");
        match number % 2 {
            1 => bytes.extend_from_slice(part.as_bytes()),
            _ => bytes.extend(part.split_whitespace().map(hexadecimal)),
        }
    }
    let number = |text: &str| text.parse().expect("a number");
    Record {
        major: number(major),
        minor: number(minor),
        pid: 4711,
        word: number(word) as usize,
        data: bytes,
        ..Record::default()
    }
}

#[test]
fn every_example_of_the_page_is_as_it_says() {
    let directory = tempfile::tempdir().expect("room");
    let file = directory.path().join("example.fmt");
    let (mut shown, mut told, mut fields) = (String::new(), String::new(), String::new());
    let mut checked = 0;
    let mut templates = None;
    for (language, text) in blocks() {
        match language {
            "template" => {
                std::fs::write(&file, text).expect("room");
                let read = Templates::open(directory.path()).expect("it is there");
                assert_eq!(read.problems().map(ToString::to_string).collect::<String>(), "", "{text}");
                fields = read.templates().map(|(_, template)| format!("{template}\n")).collect();
                templates = Some(read);
            }
            "record" => {
                let templates = templates.as_ref().expect("a template before it");
                let mut out = Vec::new();
                for line in text.lines() {
                    let record = record(line);
                    templates.format(Items::DEFAULT, &record, &mut out);
                    if let Some(template) = templates.get(record.major, record.minor) {
                        assert_eq!(template.values(&record).len(), template.fields().len(), "{line}");
                    }
                }
                shown = String::from_utf8(out).expect("text");
            }
            "wrong" => {
                let file = TemplateFile::parse(Path::new("example.fmt"), text);
                told = file.problems.iter().map(|problem| format!("{problem}\n")).collect();
                assert_eq!(file.templates.len(), 1, "the other template is used");
            }
            "shown" => assert_eq!(shown, text),
            "told" => assert_eq!(told, text),
            "fields" => assert_eq!(fields, text),
            "text" | "sh" => continue,
            other => panic!("a block of {other:?}"),
        }
        checked += 1;
    }
    assert!(checked > 20, "{checked} blocks");
}
