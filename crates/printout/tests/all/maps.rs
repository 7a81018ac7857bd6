//! Maps that bpftrace 0.17 cannot show, or shows otherwise.

use ::maps::{Kind, MapInfo, Value};
use printout::{Error, Output, Wrong};
use script::{Action, Aggregate, Tag, Type};

use crate::support::{I64, Scene, U64, info, powers, words};

fn aggregate(kind: Aggregate) -> Type {
    Type::Aggregate(kind)
}

fn plain(number: i64) -> Value {
    Value::Bytes(words(&[number]))
}

#[test]
fn a_power_of_2_can_have_several_buckets() {
    let mut scene = Scene::default();
    let mut buckets = vec![0; 20];
    (buckets[8], buckets[9], buckets[11]) = (4, 2, 1);
    let hist = MapInfo { a: 2, ..info(Kind::Hist) };
    scene.map("h", None, aggregate(Aggregate::Hist), hist, vec![(vec![], Value::Buckets(buckets))]);
    let expected = "\n\n@h:
[7]                    4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[8, 10)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[10, 12)               0 |                                                    |
[12, 14)               1 |@@@@@@@@@@@@@                                       |

";
    assert_eq!(scene.run(Output::Text), expected);
    let expected = concat!(
        r#"{"type": "hist", "data": {"@h": [{"min": 7, "max": 7, "count": 4},"#,
        r#"{"min": 8, "max": 9, "count": 2},{"min": 10, "max": 11, "count": 0},"#,
        r#"{"min": 12, "max": 13, "count": 1}]}}"#,
        "\n"
    );
    assert_eq!(scene.run(Output::Json), expected);
}

/// 0.17 shortens numbers in histograms to 32 bits.
#[test]
fn great_numbers_have_their_own_buckets() {
    let mut scene = Scene::default();
    let entries = vec![(vec![], powers(&[10 << 30, i64::MAX]))];
    scene.map("h", None, aggregate(Aggregate::Hist), info(Kind::Hist), entries);
    let text = scene.run(Output::Text);
    assert!(text.contains("\n[8G, 16G)              1 |@@@"), "{text}");
    assert!(text.contains("\n[4E, 8E)               1 |@@@"), "{text}");
    assert!(scene.run(Output::Json).ends_with(concat!(
        r#"{"min": 4611686018427387904, "max": "9223372036854775807", "count": 1}]}}"#,
        "\n"
    )));
}

#[test]
fn time_series_are_graphs() {
    let tseries = MapInfo { a: 1_000_000_000, b: 3, ..info(Kind::Tseries) };
    let scene = || {
        let mut scene = Scene::default();
        let second = 1_000_000_000;
        let series = |points: &[(i64, Option<i64>)]| {
            let points = points.iter().map(|(at, value)| (at * second, value.map(i64::cast_unsigned)));
            Value::Series(points.collect())
        };
        let entries = vec![
            (words(&[2]), series(&[(10, Some(1)), (12, Some(3))])),
            // What is older than the last interval of all is left out.
            (words(&[1]), series(&[(9, Some(100)), (11, Some(-2))])),
        ];
        scene.map("t", Some(I64), aggregate(Aggregate::Tseries), tseries, entries);
        scene
    };
    let expected = "\n\n@t[1]:
         -3                                                 -1
hh:mm:ss |___________________________________________________|
00:00:11 |                         *                         | -2
00:00:12 |                                                   | -
         v___________________________________________________v
         -3                                                 -1

@t[2]:
         1                                                   3
hh:mm:ss |___________________________________________________|
00:00:10 *                                                   | 1
00:00:11 |                                                   | -
00:00:12 |                                                   * 3
         v___________________________________________________v
         1                                                   3

";
    assert_eq!(scene().run(Output::Text), expected);
    let json = scene().run(Output::Json);
    let expected = concat!(
        r#"{"type": "tseries", "data": {"@t": {"1": "#,
        r#"[{"interval_start":"1970-01-01T00:00:11.000000000","value":-2},"#,
        r#"{"interval_start":"1970-01-01T00:00:12.000000000","value":null}], "2": "#,
    );
    assert!(json.starts_with(expected), "{json}");
}

#[test]
fn entries_come_in_the_order_of_their_values() {
    let order = |value: Type, kind, signed, values: &[Value]| -> Vec<String> {
        let mut scene = Scene::default();
        let entries = values.iter().enumerate().map(|(index, value)| (words(&[index as i64]), value.clone()));
        scene.map("a", Some(I64), value, MapInfo { signed, ..info(kind) }, entries.collect());
        scene
            .run(Output::Text)
            .lines()
            .skip(2)
            .filter_map(|line| Some(line.split(']').next()?.into()))
            .collect()
    };
    let keys = |keys: &[usize]| -> Vec<String> { keys.iter().map(|key| format!("@a[{key}")).collect() };
    let numbers = [plain(-1), plain(3), plain(3), plain(2)];
    assert_eq!(order(I64, Kind::Plain, 1, &numbers), keys(&[0, 3, 1, 2]));
    assert_eq!(order(U64, Kind::Plain, 0, &numbers), keys(&[3, 1, 2, 0]));
    // Pointers and truth values come in the order of their keys.
    assert_eq!(order(Type::Pointer(std::rc::Rc::new(I64)), Kind::Plain, 0, &numbers), keys(&[0, 1, 2, 3]));
    assert_eq!(order(Type::Named(Tag::Enum, "e".into()), Kind::Plain, 0, &numbers), keys(&[3, 1, 2, 0]));
    let numbers = [-1, 3, 2].map(|number: i64| Value::Number(number.cast_unsigned()));
    assert_eq!(order(aggregate(Aggregate::Min), Kind::Min, 1, &numbers), keys(&[0, 2, 1]));
    assert_eq!(order(aggregate(Aggregate::Sum), Kind::Sum, 0, &numbers), keys(&[2, 1, 0]));
    let averages = [(1, 9), (3, 12), (0, 7)].map(|(count, sum)| Value::Avg { count, sum });
    assert_eq!(order(aggregate(Aggregate::Avg), Kind::Avg, 1, &averages), keys(&[2, 1, 0]));
}

#[test]
fn averages_and_sums_are_divided_and_selected() {
    let mut scene = Scene::default();
    let entries = [10u64, 20, 30, 40].map(|sum| (words(&[sum.cast_signed()]), Value::Avg { count: 1, sum }));
    scene.map("", Some(I64), aggregate(Aggregate::Avg), info(Kind::Avg), entries.into());
    scene.event(Action::PrintMap { map: 0, top: 2, divisor: 10 }, &[]);
    scene.event(Action::PrintMap { map: 0, top: 10, divisor: 3 }, &[]);
    let (text, _) = scene.record(Output::Text);
    assert_eq!(text, "@[30]: 3\n@[40]: 4\n@[10]: 3\n@[20]: 6\n@[30]: 10\n@[40]: 13\n");
    let (json, _) = scene.record(Output::Json);
    assert_eq!(json.lines().next(), Some(r#"{"type": "stats", "data": {"@": {"30": 3, "40": 4}}}"#));
}

/// A map without keys always has an entry, which bpftrace makes with the first update.
#[test]
fn aggregates_without_an_update_are_not_printed() {
    let mut scene = Scene::default();
    let mut add = |name: &str, kind, aggregated, value| {
        scene.map(name, None, aggregate(aggregated), info(kind), vec![(vec![], value)]);
    };
    add("a", Kind::Avg, Aggregate::Avg, Value::Avg { count: 0, sum: 0 });
    add("c", Kind::Count, Aggregate::Count, Value::Number(0));
    add("h", Kind::Hist, Aggregate::Hist, Value::Buckets(vec![0; 64]));
    add("s", Kind::Stats, Aggregate::Stats, Value::Stats { count: 0, sum: 0 });
    add("t", Kind::Tseries, Aggregate::Tseries, Value::Series(vec![]));
    assert_eq!(scene.run(Output::Text), "\n\n@c: 0\n");
}

#[test]
fn one_malformed_map_does_not_hide_the_others() {
    let mut scene = Scene::default();
    scene.map("a", None, Type::Text, info(Kind::Plain), vec![(vec![], Value::Bytes(words(&[99])))]);
    scene.map("b", Some(I64), I64, info(Kind::Plain), vec![(vec![1, 2], plain(1))]);
    scene.map("c", None, I64, info(Kind::Plain), vec![(vec![], plain(1))]);
    let reader = printout::Reader::new(&scene.script, Output::Text, scene.stacks);
    let mut out = Vec::new();
    let error = reader.end(&mut out, &mut scene.world).expect_err("two maps are malformed");
    assert!(matches!(&error, Error::MalformedEntry { map, why: Wrong::TooShort { .. } } if map == "a"));
    assert_eq!(out, b"\n\n@c: 1\n");
    assert_eq!(
        error.to_string(),
        "an entry of the map @a is not as the script stores it: 104 bytes are needed, 0 are left"
    );
}
