//! Counts the records in a form's file: with other tools if installed, else by the form's
//! definition.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Expected;
use crate::{build, other};

/// Compares a form's file with the contents of the trace.
///
/// # Errors
/// If its records or values differ.
pub(super) fn check(form: &str, out: &Path, expected: Expected) -> io::Result<()> {
    let found = match form {
        "json" => lines(out, |line| after(line, b"\"a\":"))?,
        // The template's value is the last column but one.
        "csv" => lines(out, |line| number(line.rsplit(|byte| *byte == b',').nth(1)?))?,
        "show" => lines(out, |line| number(line.strip_prefix(b"a=")?))?,
        "babeltrace2" => lines(out, |line| after(line, b" a = "))?,
        "perfetto" => packets(out)?,
        "ctf" => return babeltrace(out, expected),
        "parquet" => return parquet(out, expected),
        // Only counts.
        _ => return report(out, expected),
    };
    same(form, found, expected)
}

fn same(what: &str, found: Expected, expected: Expected) -> io::Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(other(format!("{what}: {found:?} is not {expected:?}"))),
    }
}

/// The number at the start of a text.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// The number behind a word.
fn after(line: &[u8], word: &[u8]) -> Option<u64> {
    let at = line.windows(word.len()).rposition(|window| window == word)?;
    number(&line[at + word.len()..])
}

/// Counts the lines that have a value, and sums the values.
fn lines(out: &Path, value: impl Fn(&[u8]) -> Option<u64>) -> io::Result<Expected> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(out)?);
    let (mut line, mut found) = (Vec::new(), Expected { records: 0, sum: 0 });
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Some(value) = value(&line) {
            found.records += 1;
            found.sum += value;
        }
        line.clear();
    }
    Ok(found)
}

/// A Protocol Buffers varint of at most ten bytes.
fn varint(bytes: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0; 1];
        bytes.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(value);
        }
    }
    Err(other("a number of Protocol Buffers that does not end"))
}

/// The fields of a message: their numbers, and their values as numbers or bytes.
fn fields<'a>(mut bytes: &'a [u8], mut take: impl FnMut(u64, u64, &'a [u8])) -> Option<()> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes).ok()?;
        let (value, body) = match key & 7 {
            0 => (varint(&mut bytes).ok()?, &bytes[..0]),
            1 => (0, bytes.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes).ok()?).ok()?;
                (0, bytes.split_off(..length)?)
            }
            _ => return None,
        };
        take(key >> 3, value, body);
    }
    Some(())
}

/// Counts the events of a Perfetto trace (TracePacket.track_event = 11), and sums their annotations
/// (TrackEvent.debug_annotations = 4, DebugAnnotation.uint_value = 3).
fn packets(out: &Path) -> io::Result<Expected> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(out)?);
    let (mut packet, mut found) = (Vec::new(), Expected { records: 0, sum: 0 });
    let wrong = || other("perfetto: no trace");
    loop {
        // Trace.packet = 1, a message, and its length.
        let mut head = [0; 1];
        if reader.read(&mut head)? == 0 {
            return Ok(found);
        }
        let length = varint(&mut reader)?;
        packet.clear();
        reader.by_ref().take(length).read_to_end(&mut packet)?;
        fields(&packet, |field, _, body| {
            if field == 11 {
                let (mut is_record, mut value) = (false, 0);
                let _ = fields(body, |field, _, body| {
                    if field == 4 {
                        let _ = fields(body, |field, number, _| {
                            if field == 3 {
                                (is_record, value) = (true, number);
                            }
                        });
                    }
                });
                found.records += u64::from(is_record);
                found.sum += value;
            }
        })
        .filter(|()| head == [0x0a])
        .ok_or_else(wrong)?;
    }
}

/// The output of a command.
fn said(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(other(format!("{command:?} has failed: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// Counts the events with babeltrace2. Their values are checked in its own conversion to text.
fn babeltrace(out: &Path, expected: Expected) -> io::Result<()> {
    let Some(babeltrace) = testing::find_program("babeltrace2") else {
        println!("skipped: the count of babeltrace2, which is not installed");
        return Ok(());
    };
    let text = said(Command::new(babeltrace).arg(out).args(["-c", "sink.utils.counter", "-p", "step=+0"]))?;
    let events = text.lines().rev().find(|line| line.contains("Event messages"));
    let records = events.and_then(|line| line.split_whitespace().next()?.replace(',', "").parse().ok());
    println!("babeltrace2 counts {} events", records.unwrap_or(0));
    same("ctf", Expected { records: records.unwrap_or(0), ..expected }, expected)
}

/// Counts and sums with DuckDB and Spark.
fn parquet(out: &Path, expected: Expected) -> io::Result<()> {
    let python =
        std::env::var_os("DPROBES_PYTHON").map(PathBuf::from).or_else(|| testing::find_program("python3"));
    let duckdb = "import duckdb, sys; print('said', *duckdb.sql(f\"select count(*), sum(a) from '{sys.argv[1]}'\").fetchall()[0])";
    let spark = build::repository().join("crates/bench/subject/spark.py");
    for (module, name) in [("duckdb", "DuckDB"), ("pyspark", "Spark")] {
        let is_here = |python: &&PathBuf| {
            Command::new(python)
                .args(["-c", &format!("import {module}")])
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let Some(python) = python.as_ref().filter(is_here) else {
            println!(
                "skipped: the count of {name}, whose Python module {module} is not installed (DPROBES_PYTHON names \
                 the Python to use)"
            );
            continue;
        };
        let mut command = Command::new(python);
        match module {
            "duckdb" => command.args(["-c", duckdb]).arg(out),
            _ => command.arg(&spark).arg(out).args(["count(*)", "sum(a)"]),
        };
        let text = said(&mut command)?;
        let numbers = text.lines().find_map(|line| line.strip_prefix("said ")).unwrap_or("");
        let mut numbers = numbers.split(' ').map_while(|word| word.parse().ok());
        let found = Expected { records: numbers.next().unwrap_or(0), sum: numbers.next().unwrap_or(0) };
        println!("{name} counts {} rows with the sum {}", found.records, found.sum);
        same(name, found, expected)?;
    }
    Ok(())
}

/// The count at the start of a report, in groups of three digits.
fn report(out: &Path, expected: Expected) -> io::Result<()> {
    let text = std::fs::read_to_string(out)?.replace(',', "");
    let count = expected.records.to_string();
    match text.contains(&format!(" {count} records")) || text.contains(&format!("<b>{count}</b>")) {
        true => Ok(()),
        false => Err(other(format!("{}: the report does not show {count} records", out.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_what_each_form_writes() {
        assert_eq!(after(b"{\"number\":7,\"fields\":{\"a\":42}}", b"\"a\":"), Some(42));
        assert_eq!(after(b"{ cpu = 1 }, { a = 42, _rest = 3 }", b" a = "), Some(42));
        assert_eq!(after(b"nothing", b" a = "), None);
        let bytes = [0x0a, 3, 0x18, 0x96, 0x01, 0x10, 5];
        let mut seen = Vec::new();
        let end = fields(&bytes, |field, value, body| seen.push((field, value, body.to_vec())));
        assert_eq!((end, seen), (Some(()), vec![(1, 0, vec![0x18, 0x96, 0x01]), (2, 5, vec![])]));
        assert_eq!(fields(&[0x0a, 9, 0], |_, _, _| ()), None, "longer than it is");
    }

    #[test]
    fn numbers_end_or_are_none() {
        let read = |bytes: &[u8]| varint(&mut &bytes[..]).ok();
        assert_eq!(read(&[0x96, 0x01, 7]), Some(150));
        assert_eq!(read(&[[0xff; 9].as_slice(), &[1]].concat()), Some(u64::MAX));
        assert_eq!((read(&[]), read(&[0x80]), read(&[0xff; 20])), (None, None, None));
    }
}
