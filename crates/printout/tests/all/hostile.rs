//! Logs and maps of a process that wants to do harm.

use ::maps::{Entry, Kind, MapInfo, Value};
use printout::{Context, Error, Next, Output, Reader, StackMode, Wrong};
use proptest::prelude::*;
use script::{Action, Aggregate, Opaque, Tag, Type};

use crate::support::{I64, Logged, Memory, Scene, U64, info, integer, tuple, words};

/// A script with all kinds of events and types.
fn scene() -> Scene {
    let mut scene = Scene::default();
    let array = |inner: Type, length| Type::Array(std::rc::Rc::new(inner), length);
    let opaque = [
        Opaque::KernelStack,
        Opaque::UserStack,
        Opaque::KernelSymbol,
        Opaque::UserSymbol,
        Opaque::Inet,
        Opaque::Mac,
        Opaque::Timestamp,
        Opaque::CgroupPath,
        Opaque::User,
        Opaque::Process,
    ];
    let mut types: Vec<Type> = opaque.map(Type::Opaque).into();
    types.extend([I64, U64, Type::Bool, Type::Void, Type::Unknown, Type::Text, Type::Bytes]);
    types.extend([tuple(&[Type::Text, Type::Bytes, I64]), tuple(&[])]);
    types.extend([array(integer(4, true), Some(3)), array(I64, Some(u32::MAX)), array(I64, None)]);
    types.extend([Type::Named(Tag::Enum, "e".into()), Type::Named(Tag::Struct, "s".into())]);
    types.extend([Aggregate::Count, Aggregate::Max, Aggregate::Hist].map(Type::Aggregate));
    let mut add = |action, types: &[Type]| {
        let arguments = types.to_vec();
        scene.script.events.push(script::Event { action, arguments, at: script::At::default() });
    };
    for ty in &types {
        add(Action::Print, std::slice::from_ref(ty));
    }
    add(Action::Printf(b"%d %s %r %c %5.3s %p %gr\n".to_vec()), &[I64, Type::Text, Type::Bytes, U64]);
    add(Action::Errorf(b"%s".to_vec()), &[Type::Text]);
    add(Action::Warnf(b"%s".to_vec()), &[Type::Text]);
    add(Action::Exit, &[I64]);
    add(Action::Assert, &[Type::Text]);
    add(Action::Time(b"%c".to_vec()), &[]);
    add(Action::Cat(b"%s".to_vec()), &[Type::Text]);
    add(Action::System(b"%s".to_vec()), &[Type::Text]);
    add(Action::Join(b" ".to_vec()), &[U64]);
    for map in 0..2 {
        add(Action::PrintEntry(map), &[I64]);
        add(Action::PrintMap { map, top: 1, divisor: u64::MAX }, &[]);
    }
    add(Action::Zero(0), &[]);
    add(Action::Clear(0), &[]);
    scene.script.constants = vec![b"%Y %f".to_vec()];
    scene.map("a", Some(I64), I64, info(Kind::Plain), vec![(words(&[1]), Value::Number(1))]);
    scene.map("b", None, Type::Aggregate(Aggregate::Hist), info(Kind::Hist), vec![]);
    scene
}

fn read(scene: &Scene, log: &[u8], output: Output) -> (Vec<u8>, Result<Next, Error>) {
    let reader = Reader::new(&scene.script, output, StackMode::Bpftrace);
    let mut world = Memory { maps: scene.world.maps.clone(), ..Memory::default() };
    let mut out = Vec::new();
    let next = reader.record(Context::default(), log, &mut out, &mut world);
    (out, next)
}

#[test]
fn a_log_that_is_none_is_one_error() {
    let mut scene = Scene::default();
    scene.printf("%d\n", &[(I64, Logged::Number(1))]);
    let log = scene.log.clone();
    let (out, next) = read(&scene, &[&log[..], &words(&[77])].concat(), Output::Text);
    assert_eq!(out, b"1\n");
    let error = next.expect_err("there is no event 77");
    assert!(matches!(error, Error::NoSuchEvent { number: 77, offset: 16, events: 1, .. }));
    assert_eq!(
        error.to_string(),
        "the record of thread 0 of process 0 at 0 ns is skipped from byte 16 on: it has event 77, the script has 1"
    );
    let (_, next) = read(&scene, &log[..12], Output::Text);
    assert!(matches!(next, Err(Error::Malformed { why: Wrong::TooShort { wanted: 8, left: 4 }, .. })));
    let (_, next) = read(&scene, &[1, 2, 3], Output::Text);
    assert!(matches!(next, Err(Error::NoNumber { why: Wrong::TooShort { wanted: 8, left: 3 }, .. })));
    let (out, next) = read(&scene, &[], Output::Text);
    assert_eq!((out.len(), next.expect("nothing is a log")), (0, Next::GoOn));
}

#[test]
fn lengths_beyond_the_log_are_refused() {
    let mut scene = Scene::default();
    scene.printf("%s", &[(Type::Text, Logged::Stored(words(&[-1])))]);
    let (out, next) = read(&scene, &scene.log, Output::Text);
    assert!(out.is_empty());
    assert!(matches!(next, Err(Error::Malformed { number: 0, why: Wrong::TooShort { .. }, .. })));

    let mut scene = Scene::default();
    scene.printf("%s", &[(Type::Opaque(Opaque::Timestamp), Logged::Stored(words(&[5, 0])))]);
    let (_, next) = read(&scene, &scene.log, Output::Text);
    assert!(matches!(next, Err(Error::Malformed { why: Wrong::NoConstant(5), .. })));
}

/// Logs that begin as events do, and go on with anything.
fn logs() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![0u64..48, Just(u64::MAX), any::<u64>()];
    let words = proptest::collection::vec(word, 0..64);
    (words, proptest::collection::vec(any::<u8>(), 0..8)).prop_map(|(words, rest)| {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        words.chain(rest).collect()
    })
}

fn values() -> impl Strategy<Value = Value> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..64);
    let points = proptest::collection::vec((any::<i64>(), any::<Option<u64>>()), 0..8);
    prop_oneof![
        bytes.prop_map(Value::Bytes),
        any::<u64>().prop_map(Value::Number),
        any::<(u64, u64)>().prop_map(|(count, sum)| Value::Avg { count, sum }),
        any::<(u64, u64)>().prop_map(|(count, sum)| Value::Stats { count, sum }),
        proptest::collection::vec(any::<u64>(), 0..200).prop_map(Value::Buckets),
        points.prop_map(Value::Series),
    ]
}

proptest! {
    /// Whatever the log is, reading it ends, with as much output as there are events.
    #[test]
    fn any_log_is_read_or_refused(log in logs(), json: bool) {
        let scene = scene();
        let output = if json { Output::Json } else { Output::Text };
        let (out, _) = read(&scene, &log, output);
        prop_assert!(out.len() <= 200 * log.len(), "{} bytes of {}", out.len(), log.len());
        if json {
            let text = String::from_utf8(out).expect("JSON is UTF-8");
            let objects = text.lines().all(|line| line.starts_with('{') && line.ends_with('}'));
            prop_assert!(objects);
        }
    }

    /// Whatever a map holds, it is printed or refused.
    #[test]
    fn any_map_is_printed_or_refused(
        key in proptest::collection::vec(any::<u8>(), 0..32),
        value in values(),
        kind in 0u32..12,
        (a, b, c, signed) in any::<(i64, i64, i64, bool)>(),
        json in any::<bool>(),
    ) {
        let kind = MapInfo { kind, signed: signed.into(), a, b, c, ..MapInfo::default() };
        let mut scene = Scene::default();
        scene.script.maps.push(script::Map {
            name: "m".into(),
            key: Some(tuple(&[I64, Type::Text])),
            value: Type::Text,
            info: kind,
        });
        scene.world.maps = vec![vec![Entry { key, value }; 2]];
        let output = if json { Output::Json } else { Output::Text };
        let reader = Reader::new(&scene.script, output, StackMode::Bpftrace);
        let mut out = Vec::new();
        let _ = reader.end(&mut out, &mut scene.world);
    }
}
