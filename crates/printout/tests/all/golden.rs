//! Byte by byte what bpftrace prints.
//!
//! `tests/golden` has scripts and what bpftrace 0.17 prints for each of them, written by the
//! program `update` there. Each test builds what such a script logs and stores; `whole` has it
//! compiled and run.

use ::maps::{Kind, MapInfo, Value};
use printout::Output;
use script::{Action, Aggregate, Opaque, Type};

use crate::expected::expected;
use crate::support::{I64, Logged, Scene, alone, info, integer, last, part, powers, tuple, words};

/// Compares what a scene prints, in both forms.
fn check(scene: impl Fn() -> Scene, text: &str, json: &str) {
    assert_eq!(scene().run(Output::Text), text);
    assert_eq!(scene().run(Output::Json), json);
}

fn number(value: i64) -> Value {
    Value::Number(value.cast_unsigned())
}

fn plain(value: i64) -> Value {
    Value::Bytes(words(&[value]))
}

fn aggregate(kind: Aggregate) -> Type {
    Type::Aggregate(kind)
}

#[test]
fn numbers() {
    let (text, json) = expected("numbers");
    let scene = || {
        let mut scene = Scene::default();
        let entries = vec![(words(&[1]), plain(10)), (words(&[2]), plain(5)), (words(&[3]), plain(-7))];
        scene.map("a", Some(I64), I64, info(Kind::Plain), entries);
        let key = |text, number| [part(text), words(&[number])].concat();
        let entries = vec![(key("x", 2), plain(4)), (key("a b", -1), plain(3))];
        scene.map("b", Some(tuple(&[Type::Text, I64])), I64, info(Kind::Plain), entries);
        // Maps are printed by name, not as the script has them.
        scene.map("u", None, integer(1, false), info(Kind::Plain), vec![(vec![], plain(200))]);
        scene.map("n", None, I64, info(Kind::Plain), vec![(vec![], plain(5))]);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn strings() {
    let (text, json) = expected("strings");
    let scene = || {
        let mut scene = Scene::default();
        let string = |text: &str| Value::Bytes(alone(text.as_bytes()));
        let entries = vec![
            ([part("b"), words(&[2])].concat(), string("v")),
            ([part("a"), words(&[9])].concat(), string("w")),
            ([part("a"), words(&[3])].concat(), string("u w")),
        ];
        scene.map("s", Some(tuple(&[Type::Text, I64])), Type::Text, info(Kind::Plain), entries);
        scene.map("t", None, Type::Text, info(Kind::Plain), vec![(vec![], string("abc"))]);
        let entries = vec![(last("z"), string("last")), (last("(a)"), string("first"))];
        scene.map("k", Some(Type::Text), Type::Text, info(Kind::Plain), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn tuples() {
    let (text, json) = expected("tuples");
    let scene = || {
        let mut scene = Scene::default();
        let inner = tuple(&[I64, I64]);
        let three = tuple(&[I64, I64, Type::Text]);
        scene.event(Action::Print, &[(three, Logged::Stored([words(&[1, 2]), part("string")].concat()))]);
        scene.event(Action::Print, &[(tuple(&[inner.clone(), I64]), Logged::Stored(words(&[1, 2, 3])))]);
        let value = Value::Bytes([words(&[1]), part("x"), words(&[2, 3])].concat());
        scene.map("t", None, tuple(&[I64, Type::Text, inner]), info(Kind::Plain), vec![(vec![], value)]);
        let value = Value::Bytes([words(&[-1]), part("y")].concat());
        let entries = vec![(words(&[7]), value)];
        scene.map("v", Some(I64), tuple(&[I64, Type::Text]), info(Kind::Plain), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn aggregates() {
    let (text, json) = expected("aggregates");
    let scene = || {
        let mut scene = Scene::default();
        let scalar = |value| vec![(vec![], number(value))];
        let unsigned = MapInfo { signed: 0, ..info(Kind::Count) };
        scene.map("c", None, aggregate(Aggregate::Count), unsigned, scalar(2));
        let entries = vec![(last("l"), number(2)), (last("k"), number(-7))];
        scene.map("s", Some(Type::Text), aggregate(Aggregate::Sum), info(Kind::Sum), entries);
        scene.map("lo", None, aggregate(Aggregate::Min), info(Kind::Min), scalar(-5));
        scene.map("hi", None, aggregate(Aggregate::Max), info(Kind::Max), scalar(9));
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn averages() {
    let (text, json) = expected("averages");
    let scene = || {
        let mut scene = Scene::default();
        let entries = vec![
            (words(&[1]), Value::Avg { count: 2, sum: 21 }),
            (words(&[2]), Value::Avg { count: 1, sum: 5 }),
        ];
        scene.map("a", Some(I64), aggregate(Aggregate::Avg), info(Kind::Avg), entries);
        let entries = vec![
            (words(&[1]), Value::Stats { count: 2, sum: 21 }),
            (words(&[2]), Value::Stats { count: 1, sum: 5 }),
        ];
        scene.map("s", Some(I64), aggregate(Aggregate::Stats), info(Kind::Stats), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn negative_averages() {
    let (text, json) = expected("average");
    let scene = || {
        let mut scene = Scene::default();
        let sum = (-21i64).cast_unsigned();
        let entries = vec![(vec![], Value::Avg { count: 2, sum })];
        scene.map("a", None, aggregate(Aggregate::Avg), info(Kind::Avg), entries);
        let entries = vec![(vec![], Value::Stats { count: 2, sum })];
        scene.map("s", None, aggregate(Aggregate::Stats), info(Kind::Stats), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn histograms() {
    let (text, json) = expected("histogram");
    let scene = || {
        let mut scene = Scene::default();
        let numbers: Vec<i64> = (0..20).chain([-1, 5000]).collect();
        let entries = vec![(vec![], powers(&numbers))];
        scene.map("h", None, aggregate(Aggregate::Hist), info(Kind::Hist), entries);
        scene
    };
    check(scene, &text, &json);

    let (text, json) = expected("histograms");
    let scene = || {
        let mut scene = Scene::default();
        let key = |number, text| [words(&[number]), last(text)].concat();
        let entries = vec![(key(1, "x"), powers(&[5, 100])), (key(0, "y"), powers(&[3]))];
        let ty = tuple(&[I64, Type::Text]);
        scene.map("h", Some(ty), aggregate(Aggregate::Hist), info(Kind::Hist), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn linear_histograms() {
    let (text, json) = expected("linear");
    let scene = || {
        let mut scene = Scene::default();
        let buckets = Value::Buckets(vec![1, 0, 0, 1, 2, 0, 1]);
        let bounds = MapInfo { a: 0, b: 10, c: 2, ..info(Kind::Lhist) };
        scene.map("l", None, aggregate(Aggregate::Lhist), bounds, vec![(vec![], buckets)]);
        scene
    };
    check(scene, &text, &json);

    let (text, json) = expected("linears");
    let scene = || {
        let mut scene = Scene::default();
        let bounds = MapInfo { a: 0, b: 10240, c: 1024, ..info(Kind::Lhist) };
        let with = |bucket: usize, count| {
            let mut buckets = vec![0; 12];
            buckets[bucket] = count;
            Value::Buckets(buckets)
        };
        let entries = vec![(words(&[2]), with(9, 2)), (words(&[1]), with(5, 1))];
        scene.map("l", Some(I64), aggregate(Aggregate::Lhist), bounds, entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn the_greatest_entries_can_be_selected_and_divided() {
    let (text, json) = expected("selection");
    let scene = || {
        let mut scene = Scene::default();
        let entries = (0..7).map(|number| (words(&[number]), plain(number * 10))).collect();
        scene.map("a", Some(I64), I64, info(Kind::Plain), entries);
        let entries = vec![(words(&[1]), powers(&[5, 5])), (words(&[0]), powers(&[3]))];
        scene.map("h", Some(I64), aggregate(Aggregate::Hist), info(Kind::Hist), entries);
        for (map, top, divisor) in [(0, 3, 0), (0, 3, 10), (0, 100, 0), (1, 1, 0), (1, 0, 2)] {
            scene.event(Action::PrintMap { map, top, divisor }, &[]);
        }
        scene.event(Action::Clear(0), &[]);
        scene.event(Action::Clear(1), &[]);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn formats() {
    let (text, json) = expected("printf");
    let scene = || {
        let mut scene = Scene::default();
        let numbers = |numbers: &[i64]| -> Vec<(Type, Logged<'static>)> {
            numbers.iter().map(|number| (I64, Logged::Number(*number))).collect()
        };
        let values = numbers(&[-1, 42, 42, 42, 42, 42, 255, 255, 8]);
        scene.printf("%d|%5d|%-5d|%05d|%.5d|%u|%x|%X|%o|\n", &values);
        let values = numbers(&[300, 70000, -1, -1, -1, 65, 66, 255]);
        scene.printf("%hhd|%hd|%ld|%lld|%lx|%c|%5c|%p|\n", &values);
        let values: Vec<_> = (0..4).map(|_| (Type::Text, Logged::Text("abc"))).collect();
        scene.printf("%s|%10s|%-10s|%.2s|\n", &values);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn bytes() {
    let (text, json) = expected("bytes");
    let scene = || {
        let mut scene = Scene::default();
        let value = || (Type::Bytes, Logged::Text("a\u{1}b"));
        scene.printf("%r|%rx|%rh|\n", &[value(), value(), value()]);
        let entries = vec![(vec![], Value::Bytes(alone(b"ok\x07")))];
        scene.map("b", None, Type::Bytes, info(Kind::Plain), entries);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn addresses() {
    let (text, json) = expected("addresses");
    let inet = || [words(&[2]), vec![127, 0, 0, 1], vec![0; 12]].concat();
    let scene = || {
        let mut scene = Scene::default();
        let [inet_type, user, kernel] =
            [Opaque::Inet, Opaque::UserSymbol, Opaque::KernelSymbol].map(Type::Opaque);
        let values = [
            (inet_type.clone(), Logged::Stored(inet())),
            (user.clone(), Logged::Stored(words(&[1, 42]))),
            (kernel.clone(), Logged::Number(2)),
        ];
        scene.printf("%s %s %s\n", &values);
        scene.event(Action::Print, &values[..1]);
        scene.event(Action::Print, &values[1..2]);
        scene.map("", Some(user), I64, info(Kind::Plain), vec![(words(&[1, 42]), plain(5))]);
        let entries = vec![([words(&[2]), inet()].concat(), plain(3))];
        scene.map("k", Some(tuple(&[kernel.clone(), inet_type])), kernel, info(Kind::Plain), entries);
        // Stacks are kept in a map without a name, which is not printed.
        scene.map("", None, I64, info(Kind::Stacks), vec![]);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn values() {
    let (text, json) = expected("values");
    let scene = || {
        let mut scene = Scene::default();
        let byte = |signed| integer(1, signed);
        for (ty, number) in [(I64, 5), (I64, -5)] {
            scene.event(Action::Print, &[(ty, Logged::Number(number))]);
        }
        scene.event(Action::Print, &[(Type::Text, Logged::Text("text"))]);
        for (ty, number) in [(byte(true), -1), (byte(false), 255)] {
            scene.event(Action::Print, &[(ty, Logged::Number(number))]);
        }
        scene.printf("end\n", &[]);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn empty_maps() {
    let (text, json) = expected("empty");
    let scene = || {
        let mut scene = Scene::default();
        scene.map("e", Some(I64), I64, info(Kind::Plain), vec![]);
        scene.map("n", None, I64, info(Kind::Plain), vec![(vec![], plain(3))]);
        scene
    };
    check(scene, &text, &json);
}

#[test]
fn files() {
    let (text, json) = expected("files");
    let scene = || {
        let mut scene = Scene::default();
        scene.world.files.insert(b"/proc/sys/kernel/ostype".to_vec(), b"Linux\n".to_vec());
        let value = (Type::Text, Logged::Text("ostype"));
        scene.event(Action::Cat(b"/proc/sys/kernel/%s".to_vec()), &[value]);
        scene
    };
    check(scene, &text, &json);
}

/// The golden texts are what bpftrace prints.
#[test]
fn golden_texts_are_those_of_bpftrace() {
    const NAME: &str = "optional: printout: bpftrace";
    let bpftrace = testing::need!(NAME, testing::find_program("bpftrace"), "bpftrace 0.17");
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(&bpftrace).args(arguments).output().expect("bpftrace runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    if !run(&["--version"]).contains("v0.17") || run(&["-q", "-e", "BEGIN { exit(); }"]).is_empty() {
        return testing::skipped(NAME, "bpftrace 0.17 and the right to load eBPF programs");
    }
    let directory = testing::repository().join("crates/printout/tests/golden");
    let files = std::fs::read_dir(directory).expect("the scripts").flatten().map(|entry| entry.path());
    let scripts: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "bt")).collect();
    assert!(scripts.len() > 10);
    for script in scripts {
        for (end, format) in [("txt", "text"), ("json", "json")] {
            let kept = std::fs::read_to_string(script.with_extension(end)).expect("a golden text");
            let path = script.to_str().expect("UTF-8");
            assert_eq!(run(&["-q", "-f", format, path]), kept, "{path}");
        }
    }
}
