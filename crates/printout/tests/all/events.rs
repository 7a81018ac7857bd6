//! What each event does.

use std::rc::Rc;

use ::maps::{Kind, Value};
use printout::{Error, Inlined, Next, Output, Reader, StackMode, Symbol, Wrong};
use script::{Action, Bits, Member, Opaque, RecordLayout, Tag, Type};

use crate::support::{I64, Logged, Scene, U64, alone, info, integer, last, part, tuple, words};

fn text(scene: &mut Scene) -> String {
    let (text, next) = scene.record(Output::Text);
    assert_eq!(next.expect("a well-formed log"), Next::GoOn);
    text
}

#[test]
fn exit_ends_the_record() {
    let mut scene = Scene::default();
    scene.printf("a\n", &[]);
    scene.event(Action::Exit, &[(I64, Logged::Number(3))]);
    scene.printf("b\n", &[]);
    let (text, next) = scene.record(Output::Text);
    assert_eq!((text.as_str(), next.expect("well-formed")), ("a\n", Next::Exit(3)));
}

#[test]
fn errors_are_shown_with_their_place() {
    let mut scene = Scene::default();
    let values = [(I64, Logged::Number(10)), (Type::Text, Logged::Text("arg2"))];
    scene.event(Action::Errorf(b"bad: %d, %s".to_vec()), &values);
    assert_eq!(text(&mut scene), "");
    assert_eq!(scene.world.reports, ["stdin:1:9-62: ERROR: bad: 10, arg2"]);
    let (json, _) = scene.record(Output::Json);
    let expected =
        r#"{"type": "print_error", "msg": "bad: 10, arg2", "filename": "stdin", "line": 1, "col": 9}"#;
    assert_eq!(json.trim_end(), expected);
}

#[test]
fn warnings_are_shown_with_their_place() {
    let mut scene = Scene::default();
    scene.event(Action::Warnf(b"odd: %d".to_vec()), &[(I64, Logged::Number(10))]);
    assert_eq!(text(&mut scene), "");
    assert_eq!(scene.world.reports, ["stdin:1:9-62: WARNING: odd: 10"]);
    let (json, _) = scene.record(Output::Json);
    assert!(json.starts_with(r#"{"type": "print_warning", "msg": "odd: 10", "#), "{json}");
}

#[test]
fn an_assertion_that_fails_ends_tracing() {
    let mut scene = Scene::default();
    scene.event(Action::Assert, &[(Type::Text, Logged::Text("x is 1"))]);
    let (text, next) = scene.record(Output::Text);
    assert_eq!((text.as_str(), next.expect("well-formed")), ("", Next::Exit(1)));
    assert_eq!(scene.world.reports, ["stdin:1:9-62: ERROR: Assertion failed. Msg: x is 1"]);
}

#[test]
fn times_are_formatted_in_the_zone() {
    let mut scene = Scene::default();
    scene.event(Action::Time(b"%H:%M:%S\n".to_vec()), &[]);
    // A constant of the script is the format; the time counts from the system's start.
    scene.script.constants = vec![b"unused".to_vec(), b"%m/%d/%y %T.%f".to_vec()];
    let timestamp = || Type::Opaque(Opaque::Timestamp);
    scene.printf("%s\n", &[(timestamp(), Logged::Stored(words(&[1, 2_000_001_000])))]);
    // The clock stands above the constant: that since the system's start, and that since 1970.
    scene.printf("%s\n", &[(timestamp(), Logged::Stored(words(&[1 | 2 << 32, 2_000_001_000])))]);
    scene.printf("%s\n", &[(timestamp(), Logged::Stored(words(&[1 | 3 << 32, 1_000])))]);
    let expected = "22:13:25\n11/14/23 22:13:27.000043\n11/14/23 22:13:26.000043\n01/01/70 00:00:00.000001\n";
    assert_eq!(text(&mut scene), expected);
    let (json, _) = scene.record(Output::Json);
    assert!(json.starts_with("{\"type\": \"time\", \"data\": \"22:13:25\\n\"}\n"), "{json}");

    let mut scene = Scene::default();
    scene.event(Action::Time(Vec::new()), &[]);
    assert_eq!(text(&mut scene), "");
    assert_eq!(scene.world.reports.len(), 1);
}

#[test]
fn commands_and_files_are_the_worlds() {
    let mut scene = Scene::default();
    scene.script.settings.max_cat_bytes = 3;
    scene.world.files.insert(b"/a".to_vec(), b"12345".to_vec());
    let number = (I64, Logged::Number(1));
    scene.event(Action::System(b"echo %d".to_vec()), std::slice::from_ref(&number));
    scene.event(Action::System(b"forbidden".to_vec()), &[]);
    scene.event(Action::System(b"silent".to_vec()), &[]);
    scene.event(Action::Cat(b"/a".to_vec()), &[]);
    scene.event(Action::Cat(b"/%d".to_vec()), &[number]);
    assert_eq!(text(&mut scene), "ran echo 1\n\n123");
    assert_eq!(scene.world.commands, ["echo 1", "silent"]);
    assert_eq!(scene.world.reports[0], "ERROR: the command was not run: not allowed");
    assert!(scene.world.reports[1].starts_with("ERROR: failed to open file '/1': "));
    let (json, _) = scene.record(Output::Json);
    assert!(json.starts_with("{\"type\": \"syscall\", \"data\": \"ran echo 1\\n\"}\n"), "{json}");
}

#[test]
fn strings_are_joined() {
    let mut scene = Scene::default();
    let texts = ["/bin/echo", "", "A"].map(|text| alone(text.as_bytes())).concat();
    // How many strings follow is the event's argument.
    scene.event(Action::Join(b",".to_vec()), &[(U64, Logged::Number(3))]);
    scene.log.extend(texts);
    assert_eq!(text(&mut scene), "/bin/echo,,A\n");
    let (json, _) = scene.record(Output::Json);
    assert_eq!(json, "{\"type\": \"join\", \"data\": \"/bin/echo,,A\"}\n");
}

#[test]
fn strings_that_were_cut_have_a_trailer() {
    let mut scene = Scene::default();
    scene.script.settings.max_strlen = 5;
    for string in ["abcd", "abcde"] {
        scene.printf("%s|", &[(Type::Text, Logged::Text(string))]);
    }
    // Members of a tuple have a fixed size.
    let padded = [b"abcde\0\0\0".to_vec(), b"x\0\0\0\0\0\0\0".to_vec()].concat();
    scene.event(Action::Print, &[(tuple(&[Type::Text, Type::Text]), Logged::Stored(padded))]);
    assert_eq!(text(&mut scene), "abcd|abcde..|(abcde.., x)\n");
}

#[test]
fn enums_bools_and_pointers_are_shown_by_name() {
    let mut scene = Scene::default();
    scene.script.enums.insert("kind".into(), vec![("LEAF".into(), -1), ("INNER".into(), 5)]);
    let kind = || Type::Named(Tag::Enum, "kind".into());
    let values = [
        (kind(), Logged::Number(5)),
        (kind(), Logged::Number(5)),
        (kind(), Logged::Number(6)),
        (Type::Bool, Logged::Number(1)),
        (Type::Pointer(Rc::new(I64)), Logged::Number(255)),
    ];
    scene.printf("%s %d %s %s %p\n", &values);
    for value in &values[1..] {
        scene.event(Action::Print, std::slice::from_ref(value));
    }
    assert_eq!(text(&mut scene), "INNER 5 6 true 0xff\nINNER\n6\ntrue\n0xff\n");
    let (json, _) = scene.record(Output::Json);
    let data: Vec<&str> = json.lines().skip(1).map(|line| line.split(": ").last().unwrap_or("")).collect();
    assert_eq!(data, ["5}", "6}", "true}", "255}"]);
}

#[test]
fn structs_and_arrays_are_shown_by_their_layout() {
    let mut scene = Scene::default();
    let character = Rc::new(integer(1, true));
    let member = |name: &str, offset, ty, bits: Option<(u8, u8)>| {
        let bits = bits.map(|(first, count)| Bits { first, count });
        Member { name: name.into(), offset, ty, bits }
    };
    let inner = vec![member("n", 0, integer(2, false), None)];
    let outer = vec![
        member("m", 0, integer(4, true), None),
        member("low", 4, integer(4, false), Some((0, 3))),
        member("high", 4, integer(4, true), Some((3, 2))),
        member("name", 5, Type::Array(character, Some(5)), None),
        member("inner", 10, Type::Array(Rc::new(Type::Named(Tag::Struct, "inner".into())), Some(2)), None),
        member("flag", 14, Type::Bool, None),
    ];
    scene.script.records.insert("inner".into(), RecordLayout { size: 2, members: inner });
    scene.script.records.insert("outer".into(), RecordLayout { size: 16, members: outer });
    let bytes = [&[0xfe, 0xff, 0xff, 0xff, 0b1_1101][..], b"ab\0xx", &[1, 0, 2, 0, 1, 0]].concat();
    // 16 bytes: the struct is as aligned as its first field.
    let outer = Type::Named(Tag::Struct, "outer".into());
    scene.event(Action::Print, &[(outer, Logged::Stored(bytes))]);
    let numbers = Type::Array(Rc::new(integer(2, true)), Some(3));
    scene.event(Action::Print, &[(numbers, Logged::Stored(vec![1, 0, 0xff, 0xff, 3, 0, 0, 0]))]);
    let expected =
        "{ .m = -2, .low = 5, .high = -1, .name = ab, .inner = [{ .n = 1 },{ .n = 2 }], .flag = true }";
    assert_eq!(text(&mut scene), format!("{expected}\n[1,-1,3]\n"));
    let (json, _) = scene.record(Output::Json);
    let expected =
        r#"{"m": -2, "low": 5, "high": -1, "name": "ab", "inner": [{"n": 1},{"n": 2}], "flag": true}"#;
    assert_eq!(json.lines().next(), Some(format!(r#"{{"type": "value", "data": {expected}}}"#).as_str()));

    let unknown = Type::Named(Tag::Struct, "unknown".into());
    let mut scene = Scene::default();
    scene.event(Action::Print, &[(unknown, Logged::Stored(vec![0; 64]))]);
    assert!(matches!(scene.record(Output::Text).1, Err(Error::Malformed { why: Wrong::NoLayout, .. })));
}

#[test]
fn stacks_have_a_line_for_each_frame() {
    let mut scene = Scene::default();
    let symbol = |name: &str, offset, inlined: &[&str]| Symbol {
        name: name.into(),
        offset,
        module: Some("/bin/app".into()),
        inlined: inlined.iter().map(|name| Inlined { name: (*name).to_owned(), line: None }).collect(),
        line: None,
    };
    scene.world.stacks.insert(7, vec![0x1004, 0x2010, 0x3000]);
    scene.world.symbols.insert(0x1004, symbol("work", 4, &["helper"]));
    scene.world.symbols.insert(0x2010, symbol("main", 16, &[]));
    let stack = Type::Opaque(Opaque::UserStack);
    scene.event(Action::Print, &[(stack.clone(), Logged::Stored(words(&[7, 42])))]);
    let user = Type::Opaque(Opaque::UserSymbol);
    scene.printf(
        "%s|%s\n",
        &[
            (user, Logged::Stored(words(&[0x2010, 42]))),
            // The number of no stack: it could not be taken, or there was no room for it.
            (stack.clone(), Logged::Stored(words(&[0, 42]))),
        ],
    );
    let count = Value::Bytes(words(&[1]));
    let key = tuple(&[stack, I64]);
    scene.map("on", Some(key), I64, info(Kind::Plain), vec![(words(&[7, 42, 9]), count)]);

    let frames = "\n        helper (inlined)\n        work+4\n        main+16\n        0x3000\n";
    let expected = format!("{frames}\nmain|\n\n\n@on[{frames}, 9]: 1\n");
    assert_eq!(scene.run(Output::Text), expected);
    let json = scene.run(Output::Json);
    let escaped = frames.replace('\n', "\\n");
    assert!(json.starts_with(&format!("{{\"type\": \"value\", \"data\": \"{escaped}\"}}\n")), "{json}");
    assert!(json.ends_with(&format!("{{\"@on\": {{\"{escaped},9\": 1}}}}}}\n")), "{json}");

    scene.stacks = StackMode::Perf;
    let app = "(/bin/app)";
    let frames = format!(
        "\n\t1004 helper (inlined)\n\t1004 work+4 {app}\n\t2010 main+16 {app}\n\t3000 0x3000 ([unknown])\n\n"
    );
    assert!(text(&mut scene).starts_with(&frames));
    scene.stacks = StackMode::Raw;
    assert!(text(&mut scene).starts_with("\n1004\n2010\n3000\n\n"));

    // What a call of ustack() states stands above the process, and is stronger.
    scene.log[20..24].copy_from_slice(&1u32.to_le_bytes());
    assert!(text(&mut scene).starts_with(&frames));
    scene.log[20..24].copy_from_slice(&9u32.to_le_bytes());
    assert!(matches!(scene.record(Output::Text).1, Err(Error::Malformed { why: Wrong::NoMode(9), .. })));
}

#[test]
fn networks_and_groups_have_addresses() {
    let mut scene = Scene::default();
    scene.script.constants = vec![b"unified".to_vec()];
    let values = [
        (Type::Opaque(Opaque::Inet), Logged::Stored([words(&[10]), vec![0; 15], vec![1]].concat())),
        (Type::Opaque(Opaque::Mac), Logged::Stored(vec![5, 4, 3, 2, 1, 0xab, 0, 0])),
        (Type::Opaque(Opaque::CgroupPath), Logged::Stored(words(&[0, 7]))),
        (Type::Opaque(Opaque::KernelStack), Logged::Stored(words(&[0, 0]))),
        (Type::Opaque(Opaque::User), Logged::Number(3)),
        (Type::Opaque(Opaque::Process), Logged::Number(8)),
        (U64, Logged::Number(-1)),
    ];
    scene.printf("%s %s %s %s %s %s %u\n", &values);
    assert_eq!(text(&mut scene), "::1 05:04:03:02:01:AB unified:/7  user3 process8 18446744073709551615\n");
}

#[test]
fn an_entry_is_printed_by_its_value() {
    let mut scene = Scene::default();
    let key = tuple(&[I64, Type::Text]);
    let of = |number, text| [words(&[number]), last(text)].concat();
    let entries = vec![
        (of(1, "a"), Value::Stats { count: 1, sum: 3 }),
        (of(1, "b"), Value::Stats { count: 2, sum: 8 }),
    ];
    let stats = Type::Aggregate(script::Aggregate::Stats);
    scene.map("s", Some(key.clone()), stats, info(Kind::Stats), entries);
    scene.map("n", Some(Type::Text), I64, info(Kind::Plain), vec![]);
    scene.map(
        "m",
        None,
        Type::Aggregate(script::Aggregate::Max),
        info(Kind::Max),
        vec![(vec![], Value::Number(9))],
    );
    let hist = Type::Aggregate(script::Aggregate::Hist);
    scene.map("h", None, hist, info(Kind::Hist), vec![]);
    // An aggregate is looked up by its key; in the log, all strings of a tuple have the full size.
    let logged = |text| (key.clone(), Logged::Stored([words(&[1]), part(text)].concat()));
    scene.event(Action::PrintEntry(0), &[logged("b")]);
    scene.event(Action::PrintEntry(0), &[logged("c")]);
    // A plain value is logged behind its key.
    scene.event(Action::PrintEntry(1), &[(Type::Text, Logged::Text("k")), (I64, Logged::Number(5))]);
    scene.event(Action::PrintEntry(2), &[]);
    scene.event(Action::PrintEntry(3), &[]);
    scene.map("p", None, I64, info(Kind::Plain), vec![(vec![], Value::Bytes(words(&[1])))]);
    scene.event(Action::PrintEntry(4), &[(I64, Logged::Number(6))]);
    assert_eq!(text(&mut scene), "count 2, average 4, total 8\n0\n5\n@m: 9\n@p: 6\n");
    let (json, _) = scene.record(Output::Json);
    let first = r#"{"type": "value", "data": {"count": 2, "average": 4, "total": 8}}"#;
    assert_eq!(json.lines().next(), Some(first));
}

#[test]
fn maps_are_cleared_and_zeroed_by_the_world() {
    let mut scene = Scene::default();
    let entries = || vec![(words(&[1]), Value::Number(5))];
    let count = Type::Aggregate(script::Aggregate::Count);
    scene.map("a", Some(I64), count.clone(), info(Kind::Count), entries());
    scene.map("b", Some(I64), count, info(Kind::Count), entries());
    scene.event(Action::Zero(0), &[]);
    scene.event(Action::Clear(1), &[]);
    assert_eq!(scene.run(Output::Text), "\n\n@a[1]: 0\n");
}

#[test]
fn a_script_can_print_no_maps_at_the_end() {
    let mut scene = Scene::default();
    scene.map("a", None, Type::Text, info(Kind::Plain), vec![(vec![], Value::Bytes(alone(b"x")))]);
    assert_eq!(scene.run(Output::Text), "\n\n@a: x\n");
    scene.script.settings.print_maps_on_exit = false;
    assert_eq!(scene.run(Output::Text), "\n\n");
    assert_eq!(scene.run(Output::Json), "");
}

#[test]
fn counts_of_the_tracer_are_beside_the_text() {
    let mut scene = Scene::default();
    let mut out = Vec::new();
    let reader = Reader::new(&scene.script, Output::Text, StackMode::default());
    reader.attached(1, &mut out, &mut scene.world).expect("written");
    reader.attached(2, &mut out, &mut scene.world).expect("written");
    reader.lost(3, &mut out, &mut scene.world).expect("written");
    assert!(out.is_empty());
    assert_eq!(scene.world.reports, ["Attached 1 probe", "Attached 2 probes", "Lost 3 events"]);
    let reader = Reader::new(&scene.script, Output::Json, StackMode::default());
    reader.attached(1, &mut out, &mut scene.world).expect("written");
    reader.lost(3, &mut out, &mut scene.world).expect("written");
    let expected = b"{\"type\":\"attached_probes\", \"count\":1}\n{\"type\":\"lost_events\", \"count\":3}\n";
    assert_eq!(out, expected);
}
