//! Tests of templates with names of bits and with conditions.

use std::path::Path;

use dprobes_trace::Record;
use dprobes_trace::template::{Template, TemplateFile, Value};
use proptest::prelude::*;

/// The only template of a file with this `fmt`, as it is between the quotes.
#[track_caller]
fn template(format: &str) -> Template {
    Template::compile(1, 2, "", Some(format)).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn record(data: &[u8]) -> Record {
    Record { word: 8, data: data.to_vec(), ..Record::default() }
}

/// The text that a template makes of some data.
#[track_caller]
fn shown(format: &str, data: &[u8]) -> String {
    let mut out = Vec::new();
    template(format).format(&record(data), &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn bits_have_names_in_all_places_of_an_integer() {
    assert_eq!(shown("%4m(A=0,B=31)|%m(A=0)", &[1, 0, 0, 0x80, 2]), "A|B|0x2");
    assert_eq!(shown("%wm(A=63)", &[0, 0, 0, 0, 0, 0, 0, 0x80]), "A");
    assert_eq!(shown("%p2m(A=8)%u", b"\x00\x03\x00\x00\x01\x07"), "A7");
    assert_eq!(shown("%rm(A=0,B=1)", b"\x00\x02\x00\x03\x00"), "A|B0");
    let (template, record) =
        (template("flags=%2m(A=0,L=4-7) %p2m(A=0)"), record(b"\x51\x00\xff\x01\x00\x09"));
    assert_eq!(template.to_string(), "1,2 : flags m16, field2 m16");
    let values: Vec<Value<'_>> = template.values(&record).collect();
    assert_eq!(values, [Value::Names("A|L=5".to_owned()), Value::Fault(9)]);
}

#[test]
fn a_field_is_there_only_if_an_earlier_one_has_the_value() {
    let format = "kind=%u%?kind=1,2( port=%2u)%?kind=3( path='%ps')%?kind!=1,2,3( data=%z)";
    assert_eq!(shown(format, &[1, 80, 0]), "kind=1 port=80");
    assert_eq!(shown(format, b"\x03\x01\x04\x00/tmp"), "kind=3 path='/tmp'");
    assert!(shown(format, &[4, 9]).starts_with("kind=4 data=\n+00000000 09 "));
    let template = template(format);
    assert_eq!(template.to_string(), "1,2 : kind u8, port? u16, path? text, data? bytes");
    let record = record(&[2, 80, 0]);
    let values: Vec<Value<'_>> = template.values(&record).collect();
    assert_eq!(values, [Value::Unsigned(2), Value::Unsigned(80), Value::Missing, Value::Missing]);
}

#[test]
fn conditions_stand_in_conditions_and_see_the_groups_around_them() {
    let format = "kind=%u %p(%r(flags=%m(LONG=0)%?kind=1(%?flags&1(%2u)%?flags!&1(%u)) ))";
    assert_eq!(shown(format, &[1, 0, 8, 0, 0, 5, 0, 1, 5, 0, 0, 7]), "kind=1 flags=LONG5 flags=07 ");
    assert_eq!(
        shown(format, &[2, 0, 7, 0, 0, 4, 0, 1, 2, 1, 0]),
        "kind=2 flags=LONG flags=0x2 flags=LONG flags=0 "
    );
    // Each repetition has values of its own: that of the one before is not asked.
    let format = "%r(a=%u%?a=1(b=%u)%?b=5(!),)";
    assert_eq!(shown(format, &[0, 3, 0, 1, 5, 0]), "a=1b=5!,a=0,");
    // A value that could not be logged fulfils no condition.
    assert_eq!(shown("a=%p4d%?a=0( zero)%?a!=0( other)", b"\xff\x01\x00\x09"), "a=<fault at 0x09>");
    assert_eq!(shown("a=%p4d%?a=0( zero)%?a!=0( other)", b"\x00\x04\x00\x00\x00\x00\x00"), "a=0 zero");
    assert_eq!(shown("a=%d%?a<0( negative)%?a=-1( one)", &[0xff]), "a=-1 negative one");
}

#[test]
fn mistakes_in_names_and_conditions_are_told_with_their_places() {
    let told = |format: &str| {
        let text = format!("major=1 minor=2 desc=\"\" fmt=\"{format}\"");
        let problems = TemplateFile::parse(Path::new("wrong.fmt"), &text).problems;
        problems.iter().map(|each| format!("{} {}", each.column - 29, each.message)).collect::<Vec<_>>()
    };
    assert_eq!(told("%4m"), ["1 `%m` has no names"]);
    assert_eq!(told("%9m(A=0)")[0], "2 `%m` cannot have this width");
    assert_eq!(told("%4m(A=0"), ["1 these names do not end"]);
    assert_eq!(told("%4m(A=0,B=32)"), ["9 this integer has no bit 32"]);
    assert_eq!(told("%4m()"), ["5 this names no bit"]);
    assert_eq!(told("%?a=1 %u"), ["1 this condition has no group"]);
    assert_eq!(told("%?a(%u)%q"), ["4 this condition tests nothing", "8 this is not a control"]);
    assert_eq!(told("%?a=1(%u)"), ["1 no value before it is called `a`"]);
    assert_eq!(told("%?a=1(a=%u)"), ["1 no value before it is called `a`"]);
    assert_eq!(told("a=%s%?a=1(%u)"), ["5 `a` is no integer"]);
    assert_eq!(told("a=%u%?a=256(%u)"), ["5 `a` is never 256"]);
    assert_eq!(told("a=%u%?a=-1(%u)"), ["5 `a` is never -1"]);
    assert_eq!(
        told("a=%u%r(%?a=1(%u))"),
        ["5 nothing in this group takes data: it would be repeated without end"]
    );
    assert_eq!(told("%r(a=%u%u)%p(%?a=1(%u))"), ["14 no value before it is called `a`"], "of another group");
    let many = "a=%u".to_owned() + &"%?a=1(x)".repeat(257);
    assert_eq!(told(&many), [format!("{} this template has too many conditions", 5 + 256 * 8)]);
    let values: String = (0..17).map(|each| format!("v{each}=%u%?v{each}=1(x)")).collect();
    assert_eq!(told(&values).len(), 1);
    let names = Template::compile(1, 2, "", Some("a=%u b=%2x %?c=1(x)")).expect_err("there is no c");
    assert_eq!(names[0].expected, "`a` or `b` expected");
}

#[test]
fn hostile_conditions_and_names_keep_to_the_limits() {
    // Much that is not there in each of many repetitions, and long names.
    let absent = format!("%r(a=%u{})", format!("%?a=1({})", "%u".repeat(200)).repeat(200));
    let names = format!(
        "%rm({})",
        (0..8).map(|bit| format!("{}={bit}", "N".repeat(9000))).collect::<Vec<_>>().join(",")
    );
    for (format, byte) in [(absent, 0), (names, 0xff)] {
        let template = template(&format);
        let record = record(&[vec![0, 0x30, 0x75], vec![byte; 30_000]].concat());
        let mut out = Vec::new();
        template.format(&record, &mut out);
        assert!(out.len() < 2 << 20, "{}", out.len());
        let size = template.values(&record).map(|value| size(&value)).sum::<usize>();
        assert!(size < 32 << 20, "{size}");
    }
}

fn size(value: &Value<'_>) -> usize {
    size_of::<Value<'_>>()
        + match value {
            Value::List(values) | Value::Struct(values) => values.iter().map(size).sum(),
            Value::Names(names) => names.len(),
            _ => 0,
        }
}

proptest! {
    #[test]
    fn what_a_condition_skips_is_as_if_it_were_not_in_the_template(
        kind in any::<u8>(), asked in prop::collection::vec(any::<u8>(), 1..4), data in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let numbers: Vec<String> = asked.iter().map(u8::to_string).collect();
        let format = format!("kind=%u%?kind={}( %2x,)%?kind!={}( %d.)%c%s", numbers.join(","), numbers.join(","));
        let plain = match asked.contains(&kind) {
            true => "kind=%u %2x,%c%s",
            false => "kind=%u %d.%c%s",
        };
        let data = [vec![kind], data].concat();
        prop_assert_eq!(shown(&format, &data), shown(plain, &data));
    }
}
