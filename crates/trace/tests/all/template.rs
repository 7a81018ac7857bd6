//! Tests of the formatter: the examples of the paper, section 6, with its output, and properties
//! that hold for any template and record.

use std::path::Path;

use dprobes_trace::template::{Field, FieldType, Template, TemplateFile, Templates, Value, Width};
use dprobes_trace::{Items, Record};
use proptest::prelude::*;

/// The only template of a file with this `fmt`, as it is between the quotes.
#[track_caller]
fn template(format: &str) -> Template {
    let text = format!("major=1 minor=2 desc=\"\" fmt=\"{format}\"");
    let file = TemplateFile::parse(Path::new("test.fmt"), &text);
    assert!(file.problems.is_empty(), "{}", file.problems[0]);
    file.templates.into_iter().next().expect("a template")
}

fn record(data: &[u8]) -> Record {
    Record { major: 1, minor: 2, word: 8, data: data.to_vec(), ..Record::default() }
}

/// The text that a template makes of some data.
#[track_caller]
fn shown(format: &str, data: &[u8]) -> String {
    let mut out = Vec::new();
    template(format).format(&record(data), &mut out);
    String::from_utf8(out).expect("text")
}

/// A prefix.
fn prefix(token: u8, length: u16) -> Vec<u8> {
    let [low, high] = length.to_le_bytes();
    vec![token, low, high]
}

#[test]
fn the_seeds_array_of_structures() {
    // "The result would be (for a length value of 12 in the prefix)". Its "Function" is "function"
    // in the template.
    let data = [prefix(0, 12), vec![0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 0, 0]].concat();
    assert_eq!(
        shown(r"%r(function=0x%2x return code=0x%2x\n)", &data),
        "function=0x0000 return code=0x0000\nfunction=0x0000 return code=0x0003\nfunction=0x0002 return code=0x0000\n"
    );
}

#[test]
fn the_seeds_table_of_pointers_to_strings() {
    // The paper's pointers have nine digits, too many for four bytes: these are the first eight.
    let entry = |pointer: u32, text: &str| {
        [pointer.to_le_bytes().to_vec(), prefix(1, text.len() as u16), text.as_bytes().to_vec()].concat()
    };
    let table = [
        entry(0x8012_3445, "this is an example string"),
        entry(0x8022_3445, "this is another example string"),
    ]
    .concat();
    let data = [prefix(0, table.len() as u16), table].concat();
    assert_eq!(
        shown(r"%r(pointer=0x%4x, string='%ps'\n)", &data),
        "pointer=0x80123445, string='this is an example string'\npointer=0x80223445, string='this is another example string'\n"
    );
}

#[test]
fn the_seeds_prefixed_string_and_its_two_readings_of_us() {
    assert_eq!(shown("%ps", b"\x01\x05\x00hello"), "hello");
    assert_eq!(shown("%4us", &7u32.to_le_bytes()), "7s");
    assert_eq!(shown("%4u%s", b"\x07\0\0\0text\0more"), "7text");
}

#[test]
fn the_seeds_dump() {
    // The bytes of the paper's first row, twice, since a row has 0x20 of them; its last row as it
    // is.
    let half = b"\x21\x22\x23\x24\x25\x26\x27\x28\x20\xc4\xa8\xfe\xae\xef\xff\xbb";
    let data = [half, half, half, half, &half[..6]].concat();
    let bytes =
        "21 22 23 24 25 26 27 28 20 c4 a8 fe ae ef ff bb 21 22 23 24 25 26 27 28 20 c4 a8 fe ae ef ff bb";
    let text = "!\"#$%&'( .......!\"#$%&'( .......";
    let end = format!("{:95} *!\"#$%&*", "21 22 23 24 25 26");
    let dump = format!("+00000000 {bytes} *{text}*\n+00000020 {bytes} *{text}*\n+00000040 {end}");
    assert_eq!(shown("%z", &data), dump);
    // And the characters that it shows for these bytes.
    assert!(shown("%z", b"abcdefgh \xc4\xa8\xfe\xae\xef\xff\xbb").ends_with(" *abcdefgh .......*"));
    // The same without a template, after the header.
    let directory = tempfile::tempdir().expect("room");
    std::fs::write(directory.path().join("none.fmt"), "major=9").expect("room");
    let templates = Templates::open(directory.path()).expect("it is there");
    let mut out = Vec::new();
    let formatted = templates.format(Items::DEFAULT, &record(&data), &mut out);
    assert!(!formatted.by_template);
    assert_eq!(String::from_utf8_lossy(&out), format!("DProbes(1,2) cpu=0 pid=0\n{dump}\n"));
}

#[test]
fn the_seeds_literals_and_escapes() {
    assert_eq!(shown("%% %( %)", b""), "% ( )");
    assert_eq!(shown(r#"a\tb\n\"\\\x41\101\?\'"#, b""), "a\tb\n\"\\AA?'");
}

#[test]
fn a_string_ends_as_its_token_says() {
    // Token 1: ends at its NUL, where the next item begins, or with its length. Token 0: the rest
    // of its length is skipped.
    assert_eq!(shown("%ps|%s", b"\x01\x08\x00one\0two\0"), "one|two");
    assert_eq!(shown("%ps|%s", b"\x01\x03\x00onetwo\0"), "one|two");
    assert_eq!(shown("%ps|%s", b"\x00\x08\x00one\0xxxxtwo\0"), "one|two");
    assert_eq!(shown("%ps|%u", b"\x01\x00\x00\x05"), "|5");
}

#[test]
fn control_characters_never_reach_the_terminal() {
    assert_eq!(shown("%s", "a\x1b[2Jb\u{85}é\n".as_bytes()), "a.[2Jb.é.");
    assert_eq!(shown("%s", b"\xff\xfeok"), "..ok");
    assert_eq!(shown("%4c", b"\x1b\x7f~ "), "..~ ");
}

#[test]
fn numbers_have_their_width_and_sign() {
    assert_eq!(shown("%8d %8u", &[0xff; 16]), format!("-1 {}", u64::MAX));
    assert_eq!(shown("%3d %3u %3x", &[0xff, 0xff, 0x7f, 1, 0, 0, 1, 2, 3]), "8388607 1 030201");
    assert_eq!(shown("%d %d", &[0x80, 0x7f]), "-128 127");
    assert_eq!(
        shown("%16x", &(0..16).collect::<Vec<u8>>()),
        "0f0e0d0c0b0a09080706050403020100",
        "a wide register"
    );
    let numbers = [0.0, 1e-7, 123456.75, f64::NAN, f64::NEG_INFINITY].map(f64::to_le_bytes).concat();
    assert_eq!(shown("%8f %8f %8f %8f %8f", &numbers), "0 1e-7 123456.75 NaN -inf");
    let tenth = [0xcd, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xfb, 0x3f];
    assert_eq!(shown("%10f", &tenth), "0.1", "an x87 number");
}

#[test]
fn counted_words_are_as_wide_as_the_programs() {
    let template = template("%r(%wx )%u");
    for (word, data) in [(8, [prefix(7, 2), vec![0; 16], vec![5]]), (4, [prefix(5, 2), vec![0; 8], vec![5]])]
    {
        let record = Record { word, data: data.concat(), ..Record::default() };
        let mut out = Vec::new();
        let formatted = template.format(&record, &mut out);
        let zero = "0".repeat(word * 2);
        assert_eq!(String::from_utf8_lossy(&out), format!("{zero} {zero} 5"));
        assert!(!formatted.is_short && formatted.unused == 0);
    }
}

#[test]
fn groups_hold_groups() {
    let inner = |bytes: &[u8]| [prefix(0, bytes.len() as u16), bytes.to_vec()].concat();
    let rows = [inner(&[1, 2]), inner(&[]), inner(&[3])].concat();
    let data = [inner(&rows), vec![9]].concat();
    assert_eq!(shown("%r([%r(%u,)])%u", &data), "[1,2,][][3,]9");
    assert_eq!(shown("%rru %u", &data), "123 9");
    assert_eq!(
        template("%r([%r(%u,)])%u").values(&record(&data)).collect::<Vec<_>>(),
        [
            Value::List(vec![
                Value::List(vec![Value::Unsigned(1), Value::Unsigned(2)]),
                Value::List(vec![]),
                Value::List(vec![Value::Unsigned(3)]),
            ]),
            Value::Unsigned(9),
        ]
    );
}

#[test]
fn values_are_typed_and_as_many_as_fields() {
    let template = template("fd=%4d, at 0x%8x%2i '%ps' %3c %r(a=%u b=%u) %9x %rps");
    let names: Vec<_> = template.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["fd", "at", "field3", "field4", "field5", "field6", "field7"]);
    let byte = |name: &str| Field {
        name: name.to_owned(),
        label: name.to_owned(),
        kind: FieldType::Unsigned(Width::Bytes(1)),
        is_conditional: false,
    };
    assert_eq!(
        template.fields()[4].kind,
        FieldType::List(Box::new(FieldType::Struct(vec![byte("a"), byte("b")])))
    );
}

#[test]
fn a_template_without_its_major_code_is_not_used_and_the_right_ones_are() {
    let right = |text: &str| {
        let file = TemplateFile::parse(Path::new("test.fmt"), text);
        let told: Vec<String> = file.problems.iter().map(|problem| problem.message.clone()).collect();
        (file.templates.iter().map(|template| (template.major, template.minor)).collect::<Vec<_>>(), told)
    };
    assert_eq!(
        right("minor=1 desc=\"\""),
        (vec![], vec!["the file does not begin with its major code".to_owned()])
    );
    assert_eq!(right("major=x1 minor=1 desc=\"\"").0, []);
    assert_eq!(right("MAJOR=0x10, Minor=1, desc=\"\", minor=2 desc=\"%\" // end").0, [(16, 1), (16, 2)]);
    assert_eq!(right("").1, ["the file does not begin with its major code"]);
    assert_eq!(right("major=1 /* minor=1"), (vec![], vec!["this comment does not end".to_owned()]));
    assert_eq!(
        right("major=1 minor=1 desc=\"\" fmt=\"%q\" minor=2 desc=\"\" ? minor=3 desc=\"\"").0,
        [(1, 3)]
    );
}

#[test]
fn what_is_not_there_is_a_missing_value() {
    let template = template("%4d %8x %ps %3c %r(a=%u b=%u) %9x");
    let data = [
        (-5i32).to_le_bytes().to_vec(),
        0x1000u64.to_le_bytes().to_vec(),
        [prefix(0xff, 8), 0x42u64.to_le_bytes().to_vec()].concat(),
        b"abc".to_vec(),
        [prefix(0, 3), vec![1, 2, 3]].concat(),
    ]
    .concat();
    let record = record(&data);
    assert_eq!(
        template.values(&record).collect::<Vec<_>>(),
        [
            Value::Signed(-5),
            Value::Unsigned(0x1000),
            Value::Fault(0x42),
            Value::Text(b"abc"),
            Value::List(vec![
                Value::Struct(vec![Value::Unsigned(1), Value::Unsigned(2)]),
                Value::Struct(vec![Value::Unsigned(3), Value::Missing]),
            ]),
            Value::Missing,
        ]
    );
}

#[test]
fn a_template_is_compiled_again_from_its_format() {
    let template = template(r"a\t%% %r(%2u %( )%s");
    assert_eq!(template.format.as_deref(), Some("a\t%% %r(%2u %( )%s"));
    let again = Template::compile(1, 2, "", template.format.as_deref()).expect("it is right");
    assert_eq!(again, template);
    let wrong = Template::compile(1, 2, "", Some("a\nb %q")).expect_err("no control");
    assert_eq!((wrong.len(), wrong[0].line, wrong[0].column), (1, 2, 3));
}

#[test]
fn an_array_of_many_large_texts_is_cut() {
    let text = "x".repeat(60_000);
    let data = [prefix(0, 30_000), vec![0; 30_000]].concat();
    let shown = shown(&format!("%r({text}%u)"), &data);
    assert!(shown.len() < 1_200_000 && shown.ends_with("<the text is cut here: it would be too long>"));
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_with_their_places() {
    let text = "\
minor=1 desc=\"before\"
major=010
/* a comment */ minor=2 desc=\"a\\nb\" fmt=\"%\"
minor=2 desc=\"again\" fmt=\"%r(text)\" desc=\"third\"
fmt=\"%pu %pr %r( %u\"
minor desc=12 what=3 minor=99999999999
minor=4 desc=\"open
minor=5 desc=\"fine\" fmt=\"%u\"
minor=6 desc=\"z\" fmt=\"%z%u \\q \\0 %9u %0x %4s ( )\"
desc
";
    let file = TemplateFile::parse(Path::new("wrong.fmt"), text);
    let told: Vec<String> = file
        .problems
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message))
        .collect();
    assert_eq!(
        told,
        [
            "2:1 the major code must be the first statement of the file",
            "2:7 `010` would be octal in C; codes are decimal or hexadecimal",
            "3:30 a description is one line",
            "3:42 the text ends within a control",
            "4:7 minor code 2 has a template already",
            "4:27 nothing in this group takes data: it would be repeated without end",
            "4:37 this template has a description already",
            "5:6 `%p` cannot be combined with `u`",
            "5:10 `%p` cannot be combined with `r`",
            "5:14 this group does not end",
            "6:7 `minor` has no value",
            "6:12 `desc` has no value",
            "6:15 `what` is not a keyword",
            "6:22 this template has no description",
            "6:28 `99999999999` is not a code",
            "7:14 this string does not end",
            "9:25 the `%z` before leaves no data",
            "9:28 `\\q` is not an escape",
            "9:31 a text cannot contain a NUL",
            "9:35 `%u` cannot have this width",
            "9:39 no control has this width",
            "9:43 `%s` takes no width",
            "9:46 this `(` begins no group",
            "9:48 this `)` ends no group",
            "10:5 `desc` has no value",
        ]
    );
}

#[test]
fn large_files_and_hostile_records_take_no_longer_than_their_size() {
    const SIZE: usize = 1 << 18;
    let head = "major=1 minor=1 desc=\"\" fmt=\"";
    let files = [
        format!("{head}{}\"", "%q".repeat(SIZE / 2)),
        format!("{head}{}\"", "%c".repeat(SIZE / 2)),
        format!("{head}{}\"", "(".repeat(SIZE)),
        format!("{head}{}", "%r(".repeat(SIZE / 3)),
        format!("{head}{}%r({}%c%r(%c{}))\"", "x".repeat(1000), "%rc".repeat(1000), "%c".repeat(SIZE / 3)),
        format!("{head}%r(%r(%c{}{}))\"", "%s".repeat(SIZE / 4), "%z"),
        format!("major=1 {}", "minor=1 desc=\"\" ".repeat(SIZE / 16)),
        format!(
            "major=1 {}",
            (0..SIZE / 24).map(|minor| format!("minor={minor} desc=\"%\"\n")).collect::<String>()
        ),
        "\\\"=,\n".repeat(SIZE / 5),
        "/*".repeat(SIZE / 2),
    ];
    // Prefixes of one byte each, which make the most groups.
    let inner: Vec<u8> = [prefix(0, 1), vec![7]].concat().repeat(8000);
    let record = record(&[prefix(0, inner.len() as u16), inner].concat());
    for (number, text) in files.iter().enumerate() {
        let start = std::time::Instant::now();
        let file = TemplateFile::parse(Path::new("large.fmt"), text);
        assert!(file.problems.len() <= 100);
        file.problems.iter().take(2).for_each(|problem| assert!(problem.line > 0));
        for template in file.templates.iter().take(10) {
            let mut out = Vec::new();
            template.format(&record, &mut out);
            assert!(out.len() < 4 << 20, "{}", out.len());
            assert_eq!(template.values(&record).len(), template.fields().len());
        }
        assert!(start.elapsed().as_secs() < 30, "file {number}: {:?}", start.elapsed());
    }
}

/// Parts of templates, valid and invalid.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z =,]{0,4}",
        "%[0-9]{0,2}[cdfipruxsz]",
        "%p?[0-9w]?[cdfixsz]",
        "%[pr]\\(",
        "%p?[0-9w]?m\\([A-C=,0-9:-]{0,8}\\)?",
        "%m\\(A=[0-7],B=0-[1-7]\\)",
        "a=%[1-8][dux]",
        "%\\?(a|field1|b)!?[=<>&][0-9],?[0-9]?\\(",
        "\\)",
        "%[%()]",
        "\\\\[nt\\\\x0-7]{1,3}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Logged data, with prefixes that are mostly valid.
fn logs() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        (prop::sample::select(vec![0u8, 1, 5, 7, 0xff, 0xfe, 9]), 0u16..40)
            .prop_map(|(token, length)| prefix(token, length)),
        any::<[u8; 3]>().prop_map(Vec::from),
    ];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_template_and_no_record_can_do_harm(format in pieces(), data in logs(), word in prop::sample::select(vec![0usize, 4, 8])) {
        let text = format!("major=1 minor=1 desc=\"x\" fmt=\"{format}\" minor=2 desc=\"two\" fmt=\"%u\"");
        let file = TemplateFile::parse(Path::new("any.fmt"), &text);
        for problem in &file.problems {
            prop_assert!(problem.line >= 1 && problem.column >= 1 && !problem.to_string().is_empty());
        }
        prop_assert_eq!(file.templates.len() < 2, !file.problems.is_empty());
        let record = Record { word, data, ..Record::default() };
        for template in &file.templates {
            let mut out = b"before".to_vec();
            let formatted = template.format(&record, &mut out);
            prop_assert!(out.starts_with(b"before") && formatted.unused <= record.data.len());
            prop_assert_eq!(template.values(&record).len(), template.fields().len());
        }
    }

    #[test]
    fn any_file_is_read_and_its_mistakes_told(text in any::<String>()) {
        for problem in TemplateFile::parse(Path::new("any.fmt"), &text).problems {
            prop_assert!(problem.to_string().starts_with("error: "));
        }
    }

    #[test]
    fn what_is_logged_is_shown_and_typed(numbers in prop::collection::vec(any::<u64>(), 0..50), text in "[ -~]{0,40}", last in any::<i16>()) {
        let array = numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let data = [
            prefix(0, array.len() as u16), array,
            prefix(1, text.len() as u16), text.clone().into_bytes(),
            last.to_le_bytes().to_vec(),
        ].concat();
        let wanted: String = numbers.iter().map(|number| format!("{number},")).collect();
        prop_assert_eq!(shown("%r(%8u,) '%ps' %2d", &data), format!("{wanted} '{text}' {last}"));
        let record = record(&data);
        let values: Vec<Value<'_>> = template("%r(%8u,) '%ps' %2d").values(&record).collect();
        let list = numbers.iter().map(|&number| Value::Unsigned(number)).collect();
        prop_assert_eq!(values, vec![Value::List(list), Value::Text(text.as_bytes()), Value::Signed(last.into())]);
    }
}
