//! Points of functions: their positions; every entry and every return is counted, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::oracle;
use crate::support::{
    Outcome, Run, Scratch, Server, address_of_offset, dprobes, find_program, need, run, symbol_address,
    target, text_differences, variant,
};
use crate::support::{Session, becomes_traced, start_server as start};

/// Builds of the target `points`: their names, and flags of gcc.
const VARIANTS: &[(&str, &[&str])] = &[
    ("points", &[]),
    ("points-fixed", &["-no-pie"]),
    ("points-cet", &["-O3", "-fcf-protection"]),
    ("points-plain", &["-O0"]),
    ("points-small", &["-Os"]),
    ("points-frames", &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"]),
    ("points-static", &["-static"]),
];

/// How often each function was entered and left.
type Counts = BTreeMap<String, (u64, u64)>;

/// The program's own counts.
fn own_counts(stdout: &str) -> Counts {
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let name = fields.next()?.to_owned();
        Some((name, (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)))
    };
    let counts: Counts = stdout.lines().filter_map(line).collect();
    assert!(counts.len() == 16 && counts["t_recursive"].0 == 41, "{stdout}");
    counts
}

/// The hits of two probes, by function, in the form of the program's own counts.
fn probed_counts(outcome: &Outcome) -> Counts {
    let mut counts = Counts::new();
    let [entries, returns] = outcome.stats.probes.as_slice() else { panic!("{outcome:#?}") };
    for place in entries.places.as_ref().expect("they are points") {
        counts.entry(place.function.clone()).or_default().0 += place.hits;
    }
    for place in returns.places.as_ref().expect("they are points") {
        counts.entry(place.function.clone()).or_default().1 += place.hits;
    }
    counts
}

/// The lines of `dprobes list FILE PATTERN --points POINT`: address (it says the offset in the
/// file), function, instruction.
fn listed(program: &Path, pattern: &str, point: &str) -> Vec<(u64, String, String)> {
    let (status, stdout, stderr) =
        run(dprobes().arg("list").arg(program).arg(pattern).args(["--points", point]));
    assert!(status.success(), "{stderr}");
    let line = |line: &str| {
        let (offset, rest) = line.split_once("  ")?;
        let (place, text) = rest.split_once("  ")?;
        let offset = u64::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
        Some((address_of_offset(program, offset)?, place.split_once(':')?.1.to_owned(), text.to_owned()))
    };
    let lines: Vec<_> = stdout.lines().map(|text| line(text).unwrap_or_else(|| panic!("{text}"))).collect();
    assert!(!lines.is_empty());
    lines
}

#[test]
fn every_entry_and_every_return_is_counted_however_it_was_compiled() {
    for (name, flags) in VARIANTS {
        let program = need!("points", variant("points", name, flags), "gcc");
        let outcome = Run::at(["a.out:t_*:entry", "a.out:t_*:return"]).on([&program]).ended_with(0);
        let own = own_counts(&outcome.stdout);
        assert_eq!(probed_counts(&outcome), own, "{name}: {outcome:#?}");
    }
}

#[test]
fn the_target_has_what_is_hard_about_it() {
    let program = need!("points", target("points"), "gcc");
    let returns = listed(&program, "t_*", "return");
    let is_of = |name: &str, function: &str| name.split('+').next() == Some(function);
    let of = |function: &str| returns.iter().filter(|(_, name, _)| is_of(name, function)).collect::<Vec<_>>();
    for (at, name, _) in &returns {
        let Some((function, offset)) = name.split_once("+0x") else { continue };
        let start = symbol_address(&program, function).expect("it is a function");
        assert_eq!(u64::from_str_radix(offset, 16), Ok(at - start), "where in it: {name}");
    }
    assert!(of("t_switch").len() >= 3, "several returns: {returns:?}");
    assert!(of("t_tail").iter().all(|(.., text)| text.starts_with("jmp")), "a tail call: {returns:?}");
    assert!(of("t_pointer").iter().all(|(.., text)| text.starts_with("jmp *")), "{returns:?}");
    assert!(
        of("t_table").iter().all(|(.., text)| text.starts_with("jmpq *") || text.starts_with("jmp *")),
        "{returns:?}"
    );
    assert!(of("t_threaded").iter().all(|(.., text)| text == "ret"), "{returns:?}");
    assert!(of("t_branch").iter().any(|(.., text)| text.starts_with("je")), "{returns:?}");
    let cold = symbol_address(&program, "t_cold.cold").expect("gcc has moved the unlikely path");
    assert!(of("t_cold").iter().any(|(at, ..)| (cold..cold + 0x100).contains(at)), "{returns:?}");
    assert!(listed(&program, "t_*", "entry").iter().all(|(at, ..)| *at != cold), "a part is no function");
    let objdump = need!("points", oracle::disassemble(&program, ".text"), "objdump");
    let jumps =
        objdump.iter().filter(|it| it.text.starts_with("jmp *") || it.text.starts_with("notrack jmp *"));
    assert!(jumps.count() > 6, "switches and threaded code jump through registers");
}

#[test]
fn i386_programs_are_counted_too() {
    let program = need!("points", m32("points", "points-32"), "gcc -m32");
    let outcome = Run::at(["a.out:t_*:entry", "a.out:t_*:return"]).on([&program]).ended_with(0);
    // The functions in assembly are not in this build.
    let mut own = own_counts(&outcome.stdout);
    own.retain(|_, counts| *counts != (0, 0));
    assert_eq!(probed_counts(&outcome), own, "{outcome:#?}");
}

/// A 32-bit build, where gcc can make one.
fn m32(name: &str, output: &str) -> Option<PathBuf> {
    let scratch = Scratch::new();
    let empty = scratch.file("empty.c", "#include <stdio.h>\nint main(void) { return 0; }\n");
    let mut gcc = Command::new(find_program("gcc")?);
    gcc.arg("-m32").arg(empty).arg("-o").arg(scratch.path().join("empty"));
    gcc.output().ok().filter(|output| output.status.success())?;
    variant(name, output, &["-m32"])
}

/// Functions without symbols are found in the unwind table.
#[test]
fn a_stripped_program_is_counted_by_address() {
    let program = need!("points", target("points"), "gcc");
    let scratch = Scratch::new();
    let stripped = scratch.path().join("stripped");
    let strip = need!("points", find_program("strip"), "strip");
    assert!(run(Command::new(strip).arg("-o").arg(&stripped).arg(&program)).0.success());
    let outcome = Run::at(["a.out:sub_*:entry", "a.out::return"]).on([&stripped]).ended_with(0);
    let probed = probed_counts(&outcome);
    for (name, counts) in own_counts(&outcome.stdout) {
        let address = symbol_address(&program, &name).expect("the function has a symbol");
        assert_eq!(probed.get(&format!("sub_{address:x}")), Some(&counts), "{name}: {outcome:#?}");
    }
    // One of them by its name.
    let leaf = symbol_address(&program, "t_leaf").expect("it has a symbol");
    let outcome = Run::at([&*format!("a.out:sub_{leaf:x}:entry")]).on([&stripped]).ended_with(0);
    assert_eq!(outcome.stats.probes[0].hits, own_counts(&outcome.stdout)["t_leaf"].0);
}

#[test]
fn every_instruction_is_counted_as_stepping_counts_it() {
    let program = need!("points", variant("points", "points-fixed", &["-no-pie"]), "gcc");
    let all = need!("points", oracle::disassemble(&program, ".text"), "objdump");
    let functions = ["t_recursive", "t_switch", "t_cold", "t_threaded", "t_branch"];
    let wanted: Vec<oracle::Instruction> = functions
        .iter()
        .flat_map(|function| listed(&program, function, "*"))
        .map(|(address, _, text)| oracle::Instruction { address, text })
        .collect();
    for instruction in &wanted {
        assert!(all.iter().any(|it| it.address == instruction.address), "{:#x}", instruction.address);
    }
    let stepped = oracle::count_by_stepping(&program, &wanted);
    let points: Vec<String> = functions.iter().map(|function| format!("a.out:{function}:*")).collect();
    let outcome = Run::at(points.iter().map(String::as_str)).on([&program]).ended_with(0);
    for (function, probe) in functions.iter().zip(&outcome.stats.probes) {
        let places = probe.places.as_ref().expect("they are points");
        let instructions = listed(&program, function, "*");
        assert_eq!(places.len(), instructions.len(), "{function}");
        for (address, name, text) in instructions {
            let place = places.iter().find(|place| place.function == name);
            let hits = place.unwrap_or_else(|| panic!("{name} is not probed")).hits;
            assert_eq!(hits, stepped.get(&address).copied().unwrap_or(0), "{name} `{text}`");
        }
    }
}

/// A C++ program with names that are mangled, overloaded, in templates, and of operators.
const CPLUSPLUS: &str = r#"
#include <cstdio>
namespace shop {
struct Item {
    long price;
    __attribute__((noipa)) Item(long price) : price(price) {}
    __attribute__((noipa)) long operator[](int n) const { return price * n; }
    __attribute__((noipa)) Item &operator*=(long by) { price *= by; return *this; }
};
__attribute__((noipa)) long add(int a) { return a; }
__attribute__((noipa)) long add(int a, int b) { return a + b; }
template <class T> __attribute__((noipa)) T most(T a, T b) { return a < b ? b : a; }
}
int main() {
    long sum = 0;
    for (int i = 0; i < 5; i++) {
        shop::Item item(i);
        item *= 3;
        sum += shop::add(i) + shop::add(i, i) + shop::add(i, 1) + item[i] + shop::most(i, 3) + shop::most(2L, 3L);
    }
    std::printf("%ld\n", sum);
}
"#;

#[test]
fn names_of_cplusplus_are_compared_in_every_form() {
    let compiler = need!("points", find_program("g++"), "g++");
    let scratch = Scratch::new();
    let source = scratch.file("shop.cc", CPLUSPLUS);
    let program = scratch.path().join("shop");
    assert!(run(Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(source)).0.success());
    for (function, hits) in [
        ("shop::add", 15),
        ("shop::add(int, int)", 10),
        ("_ZN4shop3addEi", 5),
        ("shop::a*", 15),
        ("_ZN4shop3add*", 15),
        ("shop::*", 40),
        ("shop::Item::*", 15),
        ("shop::Item::operator[]", 5),
        ("shop::Item::operator*=", 5),
        ("shop::most<*>", 10),
        ("*most<int>*", 5),
        ("*::add(*, *)", 10),
    ] {
        let point = format!("a.out:{function}:entry");
        let outcome = Run::at([&*point]).on([&program]).ended_with(0);
        assert_eq!(outcome.stats.probes[0].hits, hits, "{point}: {outcome:#?}");
    }
}

#[test]
fn arguments_and_results_are_those_of_the_call() {
    let program = need!("points", target("points"), "gcc");
    let handler = "push arg, 0; log 1";
    let outcome = Run::at(["a.out:t_recursive:entry"]).option("--do").option(handler).on([&program]);
    let words = |outcome: &Outcome| -> Vec<u64> {
        let rows = outcome.records.lines().filter(|line| line.contains("0x00000000 :"));
        let word = |line: &str| {
            let bytes: String = line.split(" : ").nth(1)?.split_whitespace().collect();
            u64::from_str_radix(&bytes, 16).ok().map(u64::swap_bytes)
        };
        rows.map(|line| word(line).unwrap_or_else(|| panic!("{line}"))).collect()
    };
    let arguments = words(&outcome);
    // In the order of the calls, from the definition of the numbers.
    fn calls(n: u64, into: &mut Vec<u64>, results: &mut Vec<u64>) -> u64 {
        into.push(n);
        let result = if n < 2 { n } else { calls(n - 1, into, results) + calls(n - 2, into, results) };
        results.push(result);
        result
    }
    let (mut entered, mut left) = (Vec::new(), Vec::new());
    calls(7, &mut entered, &mut left);
    assert_eq!(arguments, entered);
    let outcome =
        Run::at(["a.out:t_recursive:return"]).option("--do").option("push retval; log 1").on([&program]);
    assert_eq!(words(&outcome), left);
}

#[test]
fn arguments_on_the_stack_are_found() {
    let compiler = need!("points", find_program("gcc"), "gcc");
    let scratch = Scratch::new();
    let source = scratch.file(
        "many.c",
        "__attribute__((noipa)) long many(long a, long b, long c, long d, long e, long f, long g, long h) {\n\
         return a + b + c + d + e + f + g + h; }\n\
         int main(void) { return many(1, 2, 3, 4, 5, 6, 7, 8) != 36; }\n",
    );
    let program = scratch.path().join("many");
    assert!(run(Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(source)).0.success());
    let handler = (0..8).rev().map(|number| format!("push arg, {number}; ")).collect::<String>() + "log 8";
    let outcome = Run::at(["a.out:many:entry"]).option("--do").option(handler).on([&program]).ended_with(0);
    let bytes: String = outcome
        .records
        .lines()
        .filter_map(|line| line.split(" : ").nth(1))
        .flat_map(str::split_whitespace)
        .collect();
    let expected: String = (1..=8u64).map(|argument| format!("{:016x}", argument.swap_bytes())).collect();
    assert_eq!(bytes, expected, "{outcome:#?}");
}

#[test]
fn points_of_several_modules_are_counted_by_module() {
    let program = need!("points", target("points"), "gcc");
    // The program by DTrace's name for it; a library without its version; any module.
    let outcome =
        Run::at(["a.out:t_leaf:entry", "libc:printf:entry", ":::entry"]).on([&program]).ended_with(0);
    let [leaf, printf, all] = outcome.stats.probes.as_slice() else { panic!("{outcome:#?}") };
    assert_eq!((leaf.hits, printf.hits), (own_counts(&outcome.stdout)["t_leaf"].0, 16), "{outcome:#?}");
    let places = all.places.as_ref().expect("they are points");
    let hits = |module: &str, function: &str| {
        let of = places.iter().filter(|place| place.module == module && place.function == function);
        of.map(|place| place.hits).sum::<u64>()
    };
    assert_eq!(
        (hits("points", "t_leaf"), hits("libc.so.6", "printf")),
        (leaf.hits, printf.hits),
        "{outcome:#?}"
    );
    assert!(
        places.iter().any(|place| place.module.starts_with("ld-linux") && place.hits > 0),
        "{outcome:#?}"
    );
}

#[test]
fn a_ppdf_has_all_sites() {
    let program = need!("points", target("points"), "gcc");
    let scratch = Scratch::new();
    let text = format!(
        "name = \"{}\"\noffset = \"t_*\":entry\nabort\noffset = \"t_*\":return\nabort\n",
        program.display()
    );
    let (source, ppdf) = (scratch.file("points.rpn", &text), scratch.path().join("points.ppdf"));
    let (status, _, stderr) = run(dprobes().arg("build-ppdf").arg(&source).arg("-o").arg(&ppdf));
    assert!(status.success() && stderr.contains("t_exit"), "{stderr}");
    let compiled = Run::file(&source).on([&program]).ended_with(0);
    let applied = Run::file(&ppdf).on([&program]).ended_with(0);
    assert_eq!(probed_counts(&applied), probed_counts(&compiled));
    assert_eq!(probed_counts(&applied), own_counts(&applied.stdout), "{applied:#?}");
    let (status, shown, _) = run(dprobes().arg("check").arg(&ppdf));
    assert!(
        status.success() && shown.contains("t_*:return") && shown.contains("\n    t_switch  offset"),
        "{shown}"
    );
}

/// What callgrind counts as calls of libc's functions, in a program that uses the same ones in
/// every run.
#[test]
fn calls_are_as_many_as_callgrind_counts() {
    let program = need!("points", target("points"), "gcc");
    let valgrind = need!("points", find_program("valgrind"), "valgrind");
    let scratch = Scratch::new();
    let out = scratch.path().join("callgrind");
    let mut command = Command::new(valgrind);
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(&program);
    assert!(run(&mut command).0.success());
    let text = std::fs::read_to_string(&out).expect("callgrind has written it");
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    let mut called = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            called = name.split('\'').next().unwrap_or_default().to_owned();
        } else if let Some(count) = line.strip_prefix("calls=") {
            let count: u64 = count.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
            *calls.entry(called.clone()).or_default() += count;
        }
    }
    let outcome = Run::at(["a.out:t_*:entry"]).on([&program]).ended_with(0);
    let places = outcome.stats.probes[0].places.as_ref().expect("they are points");
    let mut compared = 0;
    for place in places {
        // Callgrind counts the jump at a function's end into the next one as a call only if it
        // leaves the function, and never a conditional jump.
        if place.function == "t_padded" {
            continue;
        }
        assert_eq!(calls.get(&place.function), Some(&place.hits), "{}: {calls:?}", place.function);
        compared += 1;
    }
    assert_eq!(compared, 15);
}

#[test]
fn a_session_keeps_points_and_shows_them_by_function() {
    let program = need!("points", target("server"), "gcc");
    let session = Session::new();
    let mut server: Server = start(&program);
    let pid = server.pid().to_string();
    let said = session.fails(&["insert", "--at", "a.out:server_*:entry"]);
    assert!(said.contains("a module of every process"), "{said}");
    let said = session.fails(&["insert", "-p", &pid, "--at", "::server_wrok:entry"]);
    assert!(said.contains("did you mean `server_work`"), "{said}");
    let points = ["--at", "a.out:server_*:entry", "--at", "a.out:server_*:return"];
    session.done(&[&["insert", "-p", &pid][..], &points].concat());
    assert_eq!(server.ask("call 50"), "done 50");
    let shown = session.done(&["query", "--all"]);
    assert!(shown.contains("server_*:entry") && shown.contains("server_*:return"), "{shown}");
    assert_eq!(shown.matches("hits 50 runs 50").count(), 2, "{shown}");
    session.done(&["remove", "--all"]);
    becomes_traced(server.pid(), false);
    assert!(text_differences(server.pid()).is_empty());
}

/// An empty field matches everything, also as a point; a pattern means the points that match; a
/// library may be named without its version.
#[test]
fn any_point_and_some_points_are_named() {
    let module = need!("points", target("server"), "gcc");
    let calls = |point: &str| {
        let at = format!("{}:server_work:{point}", module.display());
        let outcome =
            Run::at([at.as_str()]).on([module.as_os_str(), "leaf".as_ref(), "7".as_ref()]).ended_with(5);
        outcome.stats.probes.iter().map(|probe| probe.hits).collect::<Vec<_>>()
    };
    assert_eq!(calls("ent*"), [7]);
    assert_eq!(calls("*t*r*"), [7, 7]);
    assert_eq!(calls(""), calls("*"));
    let outcome = Run::at(["libc.so:getenv:entry"]).on([module.as_os_str(), "leaf".as_ref(), "7".as_ref()]);
    assert!(!outcome.stderr.contains("is not mapped"), "{}", outcome.stderr);
    let mut command = dprobes();
    command.args(["run", "--at", "pid4711:a.out:main:entry", "--"]).arg(&module);
    let (status, _, stderr) = run(&mut command);
    assert!(status.code() == Some(125) && stderr.contains("`pid4711:` names a process"), "{stderr}");
}
