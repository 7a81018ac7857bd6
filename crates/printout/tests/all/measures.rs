//! Maps as numbers.

use ::maps::{Kind, MapInfo, Value};
use printout::{Measure, Measures, Output, Reader, bounds};
use script::{Aggregate, Opaque, Type};

use crate::support::{I64, Scene, U64, info, last, part, powers, tuple, words};

fn measures(scene: &mut Scene, map: usize) -> Option<Measures> {
    Reader::new(&scene.script, Output::Text, scene.stacks).measures(map, &mut scene.world)
}

fn rows(measures: &Measures) -> Vec<(String, i128)> {
    let row = |(key, value): &(Vec<String>, Measure)| match value {
        Measure::Number(number) => (key.join("|"), *number),
        other => panic!("{other:?}"),
    };
    measures.rows.iter().map(row).collect()
}

#[test]
fn numbers_come_by_their_values_and_then_by_their_keys() {
    let mut scene = Scene::default();
    let key = tuple(&[Type::Text, I64]);
    let entry =
        |name: &str, number: i64, value: u64| ([part(name), words(&[number])].concat(), Value::Number(value));
    let entries = vec![entry("b", 1, 7), entry("a", -1, 7), entry("c", 2, u64::MAX)];
    let count = Type::Aggregate(Aggregate::Count);
    scene.map("c", Some(key.clone()), count.clone(), info(Kind::Count), entries.clone());
    scene.map("u", Some(key), count, MapInfo { signed: 0, ..info(Kind::Sum) }, entries);
    let signed = measures(&mut scene, 0).expect("a map");
    assert_eq!(rows(&signed), [("a|-1".into(), 7), ("b|1".into(), 7), ("c|2".into(), -1)]);
    let unsigned = measures(&mut scene, 1).expect("a map");
    assert_eq!(rows(&unsigned)[0], ("c|2".into(), i128::from(u64::MAX)));
    assert_eq!(measures(&mut scene, 2), None);
}

#[test]
fn sums_keep_what_an_average_loses() {
    let mut scene = Scene::default();
    let entries = vec![(vec![], Value::Avg { count: 3, sum: -10_i64 as u64 })];
    scene.map("a", None, Type::Aggregate(Aggregate::Avg), info(Kind::Avg), entries);
    let found = measures(&mut scene, 0).expect("a map");
    assert_eq!(found.rows, [(vec![], Measure::Sum { count: 3, sum: -10 })]);
}

#[test]
fn what_is_no_number_is_counted() {
    let mut scene = Scene::default();
    let entries = vec![
        (last("text"), Value::Bytes(crate::support::alone(b"value"))),
        (last("wrong"), Value::Bytes(vec![1])),
    ];
    scene.map("t", Some(Type::Text), Type::Text, info(Kind::Plain), entries);
    let points = Value::Series(vec![(1, Some(2))]);
    scene.map("s", None, Type::Aggregate(Aggregate::Tseries), info(Kind::Tseries), vec![(vec![], points)]);
    scene.map("stacks", None, U64, info(Kind::Stacks), vec![]);
    assert_eq!(measures(&mut scene, 0), Some(Measures { rows: vec![], others: 2 }));
    assert_eq!(measures(&mut scene, 1).map(|found| found.others), Some(1));
    assert_eq!(measures(&mut scene, 2), None);
}

#[test]
fn a_stack_is_one_line_and_bytes_are_visible() {
    let mut scene = Scene::default();
    scene.world.stacks.insert(5, vec![0x10, 0x20]);
    let entries = vec![(words(&[5, 0]), Value::Number(1))];
    let stack = Type::Opaque(Opaque::KernelStack);
    scene.map("k", Some(stack), Type::Aggregate(Aggregate::Count), info(Kind::Count), entries);
    let found = measures(&mut scene, 0).expect("a map");
    let shown = rows(&found);
    let [(key, 1)] = &*shown else { panic!("{found:?}") };
    assert!(!key.contains('\n') && key.matches(';').count() == 1, "{key:?}");
    let entries = vec![(b"\xff\0\0\0\0\0\0\0".to_vec(), Value::Number(1))];
    scene.map("b", Some(Type::Text), Type::Aggregate(Aggregate::Count), info(Kind::Count), entries);
    let found = measures(&mut scene, 1).expect("a map");
    assert_eq!(rows(&found), [("\\xff".into(), 1)]);
}

#[test]
fn buckets_have_the_bounds_that_are_printed() {
    let mut scene = Scene::default();
    let numbers = [-5, 0, 1, 3, 4, 7, 8, i64::MAX];
    scene.map(
        "h",
        None,
        Type::Aggregate(Aggregate::Hist),
        info(Kind::Hist),
        vec![(vec![], powers(&numbers))],
    );
    let lhist = MapInfo { a: 10, b: 30, c: 10, ..info(Kind::Lhist) };
    scene.map(
        "l",
        None,
        Type::Aggregate(Aggregate::Lhist),
        lhist,
        vec![(vec![], Value::Buckets(vec![1; 4]))],
    );
    let found = measures(&mut scene, 0).expect("a map");
    let [(_, Measure::Buckets(counts))] = &*found.rows else { panic!("{found:?}") };
    let bounds_of = |map: usize, buckets| bounds(&scene.script.maps[map], buckets);
    let ranges = bounds_of(0, counts.len());
    // Each number lies in a bucket that has a count.
    for number in numbers.map(i128::from) {
        let holds = |&(low, most): &(Option<i128>, Option<i128>)| {
            low.is_none_or(|low| low <= number) && most.is_none_or(|most| number <= most)
        };
        let place = ranges.iter().position(holds).expect("a bucket");
        assert!(counts[place] > 0, "{number}");
    }
    let expected = [(None, Some(9)), (Some(10), Some(19)), (Some(20), Some(29)), (Some(30), None)];
    assert_eq!(bounds_of(1, 4), expected);
}
