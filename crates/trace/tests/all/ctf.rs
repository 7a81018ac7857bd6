//! Tests of CTF traces as babeltrace2 reads them: the same records and values, and no messages on
//! its standard error but those about discarded records. Without babeltrace2 these tests are
//! skipped.

use std::path::Path;
use std::time::Duration;

use dprobes_trace::ctf::{Summary, Writer};
use dprobes_trace::sink::{CtfSink, Sink, View};
use dprobes_trace::template::Templates;
use dprobes_trace::{Items, Record};

use crate::ctf_support::{START, about, babeltrace, record};

/// The output of babeltrace2 for a trace; it must not complain.
#[track_caller]
fn read(directory: &Path) -> Option<String> {
    let options = ["--clock-seconds", "--names=context,payload,scope", "--fields=all"];
    let (text, complaints) = babeltrace(directory, &options)?;
    assert_eq!(complaints, "");
    Some(text)
}

/// Writes a trace and returns its summary.
fn write(directory: &Path, fill: impl FnOnce(&mut Writer)) -> Summary {
    let mut writer = Writer::create(directory, &about()).expect("a new directory");
    fill(&mut writer);
    writer.finish().expect("there is room")
}

#[test]
fn every_record_is_read_with_its_values() {
    let scratch = tempfile::tempdir().expect("a directory");
    let trace = scratch.path().join("trace");
    let summary = write(&trace, |writer| {
        writer.probe(0, 3, "libc.so.6:malloc:entry", Items::ALL);
        (0..30_000).for_each(|number| writer.record(0, &record(number)).expect("there is room"));
    });
    assert_eq!(summary, Summary { records: 30_000, ..Summary::default() });
    let Some(text) = read(&trace) else { return };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 30_000);
    for (number, line) in lines.iter().enumerate() {
        let low: Vec<String> = (number as u64)
            .to_le_bytes()
            .iter()
            .enumerate()
            .map(|(at, byte)| format!("[{at}] = 0x{byte:X}"))
            .collect();
        for wanted in [
            format!("[1700000000.{number:09}]"),
            "libc.so.6:malloc:entry:".to_owned(),
            format!("cpu_id = {}", number % 2),
            "major = 1, minor = 2, tid = 4712, pid = 4711, uid = 1000, ip = 0x7F0012345678, sp = 0x7FFC00001000, procname = \"worker\"".to_owned(),
            format!("data = [ {} ]", low.join(", ")),
        ] {
            assert!(line.contains(&wanted), "{wanted}\n{line}");
        }
    }
}

#[test]
fn the_machine_and_the_tracer_are_described() {
    let scratch = tempfile::tempdir().expect("a directory");
    write(scratch.path(), |writer| writer.record(0, &record(0)).expect("there is room"));
    let Some((text, complaints)) = babeltrace(scratch.path(), &["--component=sink.text.details"]) else {
        return;
    };
    assert_eq!(complaints, "");
    for wanted in [
        "domain: user",
        "tracer_name: dprobes",
        "tracer_version: 1.2.3",
        "tracer_major: 1",
        "tracer_minor: 2",
        "start: 1,700,000",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(text.contains("hostname: a \"host\" \\ 01\u{1}2 é\n"), "{text}");
}

#[test]
fn a_template_gives_fields_their_names_and_types() {
    let scratch = tempfile::tempdir().expect("a directory");
    let templates = scratch.path().join("templates");
    std::fs::create_dir(&templates).expect("room");
    std::fs::write(
        templates.join("all.fmt"),
        "major=1\n\
         minor=2, desc=\"all kinds\" fmt=\"small=%1u signed=%2d odd=%3u flags=%8x float=%4f double=%8f \
         name=%s letters=%4c event=%x string=%d \" \
         fmt=\"wide=%16x list=%r2u texts=%rs pairs=%r(a=%1u b=%2d) nested=%p(x=%1u y=%1u)\"\n\
         minor=3, desc=\"short\" fmt=\"word=%wu rest=%1u\"\n\
         minor=4, desc=\"text\" fmt=\"text=%ps last=%u\"\n",
    )
    .expect("room");
    let templates = Templates::open(&templates).expect("they are there");
    assert_eq!(templates.problems().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    let mut data = vec![200, 0xfe, 0xff, 1, 2, 3];
    data.extend(0xdead_beef_u64.to_le_bytes());
    data.extend(1.5_f32.to_le_bytes());
    data.extend((-0.25_f64).to_le_bytes());
    data.extend(b"a name\0fourAB");
    data.extend(0..16);
    data.extend([0, 4, 0, 1, 0, 2, 0]);
    data.extend(b"\x00\x06\0one\0t\0");
    data.extend([0, 6, 0, 1, 0xff, 0xff, 2, 5, 0]);
    data.extend([0, 2, 0, 8, 9]);
    let whole = data.clone();
    data.extend([0xaa, 0xbb]);
    let trace = scratch.path().join("trace");
    let of = |number: u64, minor: u32, word: usize, data: &[u8]| Record {
        cpu: 0,
        minor,
        word,
        data: data.to_vec(),
        ..record(number)
    };
    write(&trace, |writer| {
        templates.templates().for_each(|(_, template)| writer.template(template.clone()));
        writer.probe(0, 3, "all", Items::NONE);
        for record in [
            of(0, 2, 8, &data),
            of(1, 2, 8, &whole[..4]),
            of(2, 3, 8, &[1, 0, 0, 0, 0, 0, 0, 0, 2]),
            of(3, 3, 4, &[1, 0, 0, 0, 2]),
            of(4, 3, 4, &[1, 0, 0, 0, 2, 9, 8]),
            of(5, 4, 8, &[7]),
            // A string that could not be read.
            of(6, 4, 8, b"\xff\x08\x00addressz"),
            of(7, 4, 8, b"\x00\x02\x00hiz"),
        ] {
            writer.record(0, &record).expect("there is room");
        }
    });
    let Some(text) = read(&trace) else { return };
    let fields: Vec<&str> =
        text.lines().map(|line| line.split_once("event.fields = ").expect("it has some").1).collect();
    let bytes = |bytes: &[u8]| -> String {
        let each = bytes.iter().enumerate().map(|(at, byte)| format!("[{at}] = 0x{byte:X}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let raw = |data: &[u8]| format!("{{ _data_length = {}, data = [ {} ] }}", data.len(), bytes(data));
    let all = format!(
        "{{ small = 200, signed = -2, odd = 197121, flags = 0xDEADBEEF, float = 1.5, double = -0.25, name = \"a name\", \
         letters = \"four\", event = 0x41, string = 66, wide = [ {} ], _list_length = 2, list = [ [0] = 1, [1] = 2 ], \
         _texts_length = 2, texts = [ [0] = \"one\", [1] = \"t\" ], _pairs_length = 2, \
         pairs = [ [0] = {{ a = 1, b = -1 }}, [1] = {{ a = 2, b = 5 }} ], nested = {{ x = 8, y = 9 }}, \
         _rest_length = 2, rest = [ [0] = 0xAA, [1] = 0xBB ] }}",
        bytes(&(0..16).collect::<Vec<u8>>())
    );
    let expected = [
        all,
        raw(&whole[..4]),
        "{ word = 1, rest = 2 }".to_owned(),
        "{ word = 1, rest = 2 }".to_owned(),
        "{ word = 1, rest = 2, _rest__length = 2, rest_ = [ [0] = 0x9, [1] = 0x8 ] }".to_owned(),
        raw(&[7]),
        raw(b"\xff\x08\x00addressz"),
        "{ text = \"hi\", last = 122 }".to_owned(),
    ];
    assert_eq!(fields, expected);
}

/// Two templates for the same codes: each record has the names and values of the one that its
/// program had when the record came.
#[test]
fn templates_for_the_same_codes_are_not_confused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let trace = scratch.path().join("trace");
    let file = |name: &str, format: &str| {
        let home = scratch.path().join(name);
        std::fs::create_dir_all(&home).expect("room");
        let text = format!("major=1\nminor=2, desc=\"of {name}\" fmt=\"{format}\"\n");
        std::fs::write(home.join("a.fmt"), text).expect("room");
        home
    };
    let view = |name: &str, format: &str| {
        let templates = Templates::open(&file(name, format)).expect("they are there");
        View { templates: Some(templates), ..View::default() }
    };
    let mut sink = CtfSink::create(&trace, &about()).expect("a new directory");
    let mut number = 0;
    let mut log = |sink: &mut CtfSink, program: u32| {
        let data = vec![1, 0, 2, 0, 3, 0, 4, 0];
        sink.record(program, &Record { cpu: 0, data, ..record(number) }).expect("there is room");
        number += 1;
    };
    sink.show(0, &view("zero", "low=%4u high=%4u"));
    sink.show(1, &view("one", "word=%8u"));
    sink.show(2, &View::default());
    (0..3).for_each(|program| log(&mut sink, program));
    // Numbers of the same sizes under other names.
    file("zero", "first=%4u second=%4u");
    std::thread::sleep(Duration::from_millis(1100));
    sink.refresh(&mut |told| panic!("{told}"));
    (0..3).for_each(|program| log(&mut sink, program));
    // A template that was there before gets the same class again.
    file("zero", "low=%4u high=%4u ");
    file("zero", "low=%4u high=%4u");
    std::thread::sleep(Duration::from_millis(1100));
    sink.refresh(&mut |told| panic!("{told}"));
    log(&mut sink, 0);
    sink.finish().expect("there is room");
    let Some(text) = read(&trace) else { return };
    let fields: Vec<&str> =
        text.lines().map(|line| line.split_once("event.fields = ").expect("it has some").1).collect();
    let (word, raw) = ("{ word = 1125912791875585 }", fields[2]);
    assert!(raw.contains("data = ["), "a program without templates has none: {raw}");
    let (low, first) = ("{ low = 131073, high = 262147 }", "{ first = 131073, second = 262147 }");
    assert_eq!(fields, [low, word, raw, first, word, raw, low]);
    let metadata = std::fs::read_to_string(trace.join("metadata")).expect("text");
    assert_eq!(metadata.matches("_low;").count(), 1, "{metadata}");
}

#[test]
fn names_with_any_character_are_read_as_they_are() {
    let scratch = tempfile::tempdir().expect("a directory");
    let name = "/opt/a \"b\"\\n\u{1}7\t/ü;}{ /* */ // %s:\u{7f}:entry";
    write(scratch.path(), |writer| {
        writer.probe(0, 3, name, Items::NONE);
        writer.record(0, &Record { name: "a\0b".to_owned(), ..record(0) }).expect("there is room");
    });
    let Some(text) = read(scratch.path()) else { return };
    assert!(text.contains(&format!(" {name}: ")), "{text}");
}

#[test]
fn discarded_records_are_counted_exactly() {
    let scratch = tempfile::tempdir().expect("a directory");
    let summary = write(scratch.path(), |writer| {
        writer.discarded(7);
        (0..20_000).for_each(|number| {
            writer.record(0, &record(number)).expect("there is room");
            writer.discarded(number % 3);
        });
        writer.discarded(5);
        let refused = Record { cpu: u32::MAX, ..record(0) };
        let error = writer.record(0, &refused).expect_err("no machine has so many");
        assert!(error.to_string().contains("processor 4294967295"), "{error}");
    });
    let dropped = 7 + (0..20_000).map(|number| number % 3).sum::<u64>() + 5 + 1;
    assert_eq!(summary, Summary { records: 20_000, lost: 1, discarded: dropped, adjusted: 0 });
    let Some((text, told)) = babeltrace(scratch.path(), &[]) else { return };
    assert_eq!(text.lines().count(), 20_000);
    let counts = told.lines().map(|line| {
        let count = line.strip_prefix("WARNING: Tracer discarded ").and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{line}"))
    });
    assert_eq!(counts.sum::<u64>(), dropped);
}

#[test]
fn a_trace_of_which_all_was_discarded_says_so() {
    let scratch = tempfile::tempdir().expect("a directory");
    write(scratch.path(), |writer| writer.discarded(3));
    let Some((text, told)) = babeltrace(scratch.path(), &[]) else { return };
    assert!(text.is_empty() && told.starts_with("WARNING: Tracer discarded 3 events "), "{text}{told}");
}

/// A dropped writer leaves what a killed one leaves.
#[test]
fn what_was_written_before_the_writer_was_killed_is_read() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::create(scratch.path(), &about()).expect("a new directory");
    writer.probe(0, 3, "killed", Items::NONE);
    for number in 0..100_000 {
        writer.record(0, &Record { cpu: 0, ..record(number) }).expect("there is room");
    }
    assert!(writer.waits());
    drop(writer);
    let Some(text) = read(scratch.path()) else { return };
    let count = text.lines().count();
    assert!((90_000..100_000).contains(&count), "{count}");
    let last = format!("[1700000000.{:09}]", count - 1);
    assert!(text.lines().last().is_some_and(|line| line.starts_with(&last)), "all that came first");
}

#[test]
fn records_that_come_in_another_order_are_read_in_that_of_time() {
    let scratch = tempfile::tempdir().expect("a directory");
    let count = 40_000_u64;
    let summary = write(scratch.path(), |writer| {
        let mut random = 1_u64;
        let mut late = Vec::new();
        for number in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Every hundredth record comes after all others.
            match random >> 57 {
                0 => late.push(number),
                _ => writer.record(0, &record(number ^ 0x3ff).clone()).expect("there is room"),
            }
        }
        for number in late {
            writer.record(0, &record(number ^ 0x3ff)).expect("there is room");
        }
    });
    assert_eq!((summary.records, summary.adjusted), (count, 0));
    let Some(text) = read(scratch.path()) else { return };
    let times: Vec<&str> = text.lines().map(|line| &line[..22]).collect();
    assert_eq!(times.len(), count as usize);
    assert!(times.is_sorted());
    let unique: std::collections::HashSet<_> = times.iter().collect();
    assert_eq!(unique.len(), times.len());
}

#[test]
fn times_that_no_clock_shows_are_counted() {
    let scratch = tempfile::tempdir().expect("a directory");
    let summary = write(scratch.path(), |writer| {
        for time in [START, 0, u64::MAX, 5] {
            writer.record(0, &Record { time, ..record(0) }).expect("there is room");
        }
    });
    assert_eq!((summary.records, summary.adjusted), (4, 3));
    let Some(text) = read(scratch.path()) else { return };
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn a_directory_that_is_not_empty_is_left_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("metadata");
    std::fs::write(&file, "another's").expect("room");
    let error = Writer::create(scratch.path(), &about()).expect_err("it is not empty");
    assert!(error.to_string().contains("not empty"), "{error}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"another's");
}
