use super::*;
use crate::{Form, Text};

/// Two functions of a module, at 0x401000 and 0x401010, for any process.
#[derive(Debug)]
struct Two;

impl Functions for Two {
    fn at(&self, _: u32, address: u64) -> Option<Function> {
        let (name, start) = match address {
            0x401000..0x401010 => ("first", 0x401000),
            0x401010..0x401020 => ("second", 0x401010),
            _ => return None,
        };
        Some(Function { module: "app".to_owned(), name: name.to_owned(), offset: address - start })
    }
}

fn probe(point: &str, logged: &str) -> LineProbe {
    LineProbe::new("app", point, (1, 2), LoggedForms::parse(logged))
}

fn lines_of(items: Items, probes: Vec<LineProbe>, records: &[Record]) -> String {
    let view = LineView { items, probes: probes.into(), functions: Some(Arc::new(Two)) };
    let mut text = Text::new(Items::DEFAULT, Form::Formatted).with_lines(view);
    let mut out = Vec::new();
    records.iter().for_each(|record| text.append(record, &mut out));
    String::from_utf8(out).expect("text")
}

fn record(probe: u32, data: &[u8]) -> Record {
    Record {
        major: 1,
        minor: 2,
        probe,
        pid: 4711,
        tid: 4711,
        time: 1_000_000_000 * (86_400 * 20_000 + 13 * 3600 + 5 * 60 + 47) + 123_456_789,
        name: "ls".to_owned(),
        word: 8,
        eip: 0x401014,
        data: data.to_vec(),
        ..Record::default()
    }
}

#[test]
fn a_hit_is_a_line_with_its_values() {
    let words: Vec<u8> = [4096, u64::MAX - 1, 0x7ffd_0000_1000, 0x401012]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .chain(*b"\x01\x03\x00a\"\n\x00\x02\x00\x01\xff\x05\x01\x00\x07\0\0\0\0\0\0\0\xff\x08\x00\x10\0\0\0\0\0\0\0")
        .collect();
    let probes = vec![probe("f", "2,2pppp"), probe("g", "")];
    let thread = Record { tid: 4713, name: "worker\n".to_owned(), ..record(1, b"") };
    assert_eq!(
        lines_of(LineView::ITEMS, probes, &[record(0, &words), thread]),
        "13:05:47.123456 ls[4711]     app:f 4096 -2 0x7ffd00001000 0x401012 <second+0x2> \"a\\\"\\n\" <01 ff> [7] \
         <fault at 0x10>\n\
         13:05:47.123456 worker\\x0a[4711:4713] app:g\n"
    );
}

#[test]
fn a_probe_in_several_functions_is_named_by_the_one_hit() {
    let probes = vec![probe("f*:entry", ""), probe("f*:*", ""), probe("f*:return", "")];
    let records = [record(0, b""), record(1, b""), record(2, b""), Record { eip: 1, ..record(0, b"") }];
    assert_eq!(
        lines_of(Items::NONE, probes, &records),
        "app:second:entry\napp:second+0x4\napp:second:return+0x4\napp:f*:entry\n"
    );
}

#[test]
fn a_return_is_named_with_its_place() {
    let probes = vec![probe("second:return", ""), probe("\"second\":return", ""), probe("f:return", "")];
    let other = Record { eip: 0x401018, ..record(0, b"") };
    let unknown = Record { eip: 1, ..record(0, b"") };
    let records = [record(0, b""), other, record(1, b""), record(2, b""), unknown];
    assert_eq!(
        lines_of(Items::NONE, probes, &records),
        "app:second:return+0x4\napp:second:return+0x8\napp:\"second\":return+0x4\n\
         app:f:return <second+0x4>\napp:second:return\n"
    );
}

#[test]
fn what_does_not_fit_the_handler_is_shown_as_it_is() {
    // Two ways that split the same bytes differently; a cut record; other codes; an unknown probe.
    let probes = vec![probe("f", "2|1p"), probe("g", "1")];
    let words = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 5, 0, 1, 2, 3, 4, 5]].concat();
    let other = Record { minor: 9, ..record(1, &1_u64.to_le_bytes()) };
    let records = [record(0, &words), record(1, b"abc"), other, record(7, b"")];
    assert_eq!(
        lines_of(Items::NONE, probes, &records),
        "app:f 1 0x504030201000501\napp:g <61 62 63>\napp:g(1,9) 1\n(1,2)\n"
    );
}

#[test]
fn words_of_four_bytes_have_their_own_signs() {
    let record = Record { word: 4, ..record(0, b"\xfe\xff\xff\xff\x00\x00\x00\xc0") };
    assert_eq!(lines_of(Items::NONE, vec![probe("f", "2")], &[record]), "app:f -2 3221225472\n");
}

#[test]
fn a_terminal_has_colours() {
    let mut line = Line::new(LineView::new(Items::NONE, None));
    line.set_colour(true);
    let mut out = Vec::new();
    line.append(&record(0, b""), &mut out);
    assert_eq!(out, b"\x1b[36m(1,2)\x1b[0m\n");
}
