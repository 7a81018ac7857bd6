//! Reads events and maps as text.

use std::fmt::Write;

use dprobes_script::{Action, Compiled, Type};
use maps::{Entry, Value};

use crate::run::Run;

/// A log that is read.
struct Log<'l>(&'l [u8]);

impl Log<'_> {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.0.split_first_chunk().expect("the log has a word");
        self.0 = rest;
        u64::from_le_bytes(*word)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes.to_vec()
    }

    fn text(&mut self) -> Vec<u8> {
        let length = self.word() as usize;
        let mut bytes = self.bytes(length.next_multiple_of(8));
        assert!(bytes[length..].iter().all(|byte| *byte == 0), "strings are padded with zeros");
        bytes.truncate(length);
        bytes
    }
}

/// The events of a log, one a line.
pub(crate) fn events(run: &Run, log: &[u8]) -> String {
    let compiled = &run.compiled;
    let mut log = Log(log);
    let mut out = String::new();
    while !log.0.is_empty() {
        let number = log.word() as usize;
        let event = &compiled.events[number];
        let mut values: Vec<String> = Vec::new();
        for ty in &event.arguments {
            values.push(match ty {
                Type::Text | Type::Bytes => quoted(&log.text()),
                Type::Opaque(_) | Type::Tuple(_) | Type::Array(..) | Type::Named(..)
                    if size(compiled, ty) != 8 || !is_word(ty) =>
                {
                    value(compiled, ty, &log.bytes(size(compiled, ty)))
                }
                _ => word(ty, log.word()),
            });
        }
        if let Action::Join(_) = event.action {
            let count = values[0].parse::<usize>().expect("a count");
            values.extend((0..count).map(|_| quoted(&log.text())));
        }
        let action = match &event.action {
            Action::Printf(format) => format!("printf {}", quoted(format)),
            Action::Errorf(format) => format!("errorf {}", quoted(format)),
            Action::Warnf(format) => format!("warnf {}", quoted(format)),
            Action::Print => "print".into(),
            Action::PrintEntry(map) => format!("entry @{}", compiled.maps[*map].name),
            Action::PrintMap { map, top, divisor } => {
                format!("map @{} {top} {divisor}", compiled.maps[*map].name)
            }
            Action::Clear(map) => format!("clear @{}", compiled.maps[*map].name),
            Action::Zero(map) => format!("zero @{}", compiled.maps[*map].name),
            Action::Unwatch => "unwatch".into(),
            Action::Exit => "exit".into(),
            Action::Time(format) => format!("time {}", quoted(format)),
            Action::Cat(format) => format!("cat {}", quoted(format)),
            Action::System(format) => format!("system {}", quoted(format)),
            Action::Join(separator) => format!("join {}", quoted(separator)),
            Action::Assert => "assert".into(),
        };
        writeln!(out, "{}", format!("{action} {}", values.join(" ")).trim_end()).expect("a string");
    }
    out
}

/// All maps, one entry a line, sorted.
pub(crate) fn maps(run: &Run) -> String {
    let mut lines = Vec::new();
    for (number, map) in
        run.compiled.maps.iter().enumerate().filter(|(number, map)| {
            map.info.kind() != maps::Kind::Stacks && run.compiled.child != Some(*number)
        })
    {
        for Entry { key, value: found } in run.maps().view(number) {
            let key = map.key.as_ref().map_or(String::new(), |ty| {
                let text = value(&run.compiled, ty, &key);
                format!("[{}]", text.trim_start_matches('(').trim_end_matches(')'))
            });
            let shown = match found {
                Value::Bytes(bytes) => match &map.value {
                    Type::Text | Type::Bytes => {
                        let length = u64::from_le_bytes(bytes[..8].try_into().expect("8")) as usize;
                        quoted(&bytes[8..8 + length])
                    }
                    ty => value(&run.compiled, ty, &bytes),
                },
                Value::Number(number) => (number as i64).to_string(),
                Value::Avg { count, sum } | Value::Stats { count, sum } => {
                    format!("count {count} sum {}", sum as i64)
                }
                Value::Buckets(buckets) => {
                    let filled = buckets.iter().enumerate().filter(|(_, count)| **count > 0);
                    filled.map(|(index, count)| format!("{index}:{count}")).collect::<Vec<_>>().join(" ")
                }
                Value::Series(series) => format!("{series:?}"),
            };
            lines.push(format!("@{}{key}: {shown}\n", map.name));
        }
    }
    lines.sort();
    lines.concat()
}

fn is_word(ty: &Type) -> bool {
    matches!(ty, Type::Bool | Type::Integer(_) | Type::Pointer(_))
        || matches!(ty, Type::Named(dprobes_script::Tag::Enum, _))
}

/// The bytes of a value in a tuple.
fn size(compiled: &Compiled, ty: &Type) -> usize {
    use dprobes_script::Opaque;
    match ty {
        Type::Text | Type::Bytes => compiled.settings.max_strlen.next_multiple_of(8),
        Type::Tuple(members) => members.iter().map(|member| size(compiled, member)).sum(),
        Type::Opaque(Opaque::UserStack | Opaque::UserSymbol | Opaque::Timestamp) => 16,
        Type::Opaque(Opaque::Inet) => 24,
        Type::Array(inner, Some(length)) => (raw(compiled, inner) * *length as usize).next_multiple_of(8),
        Type::Named(..) if !is_word(ty) => raw(compiled, ty).next_multiple_of(8),
        _ => 8,
    }
}

/// The bytes of a value in memory; of a struct as far as its last field goes.
fn raw(compiled: &Compiled, ty: &Type) -> usize {
    match ty {
        Type::Bool => 1,
        Type::Integer(integer) => integer.bytes.into(),
        Type::Array(inner, length) => raw(compiled, inner) * length.unwrap_or(0) as usize,
        Type::Named(dprobes_script::Tag::Enum, _) => 4,
        Type::Named(_, name) => {
            let fields = compiled.records[name].members.iter();
            fields.map(|field| field.offset as usize + raw(compiled, &field.ty)).max().unwrap_or(0)
        }
        _ => 8,
    }
}

fn word(ty: &Type, value: u64) -> String {
    match ty {
        Type::Integer(integer) if integer.signed => (value as i64).to_string(),
        Type::Bool if value < 2 => (value == 1).to_string(),
        Type::Pointer(_) => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

fn value(compiled: &Compiled, ty: &Type, bytes: &[u8]) -> String {
    match ty {
        Type::Text | Type::Bytes => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            quoted(&bytes[..end])
        }
        Type::Tuple(members) => {
            let mut rest = bytes;
            let mut all = Vec::new();
            for member in members.iter() {
                let (own, after) = rest.split_at(size(compiled, member).min(rest.len()));
                all.push(value(compiled, member, own));
                rest = after;
            }
            format!("({})", all.join(", "))
        }
        _ if is_word(ty) && bytes.len() == 8 => word(ty, u64::from_le_bytes(bytes.try_into().expect("8"))),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
