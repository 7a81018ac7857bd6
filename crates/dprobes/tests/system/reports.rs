//! Calls in reports: as a table, a graph and a tree, as another program finds them in the records.

use std::process::Command;

use crate::stores::first_processor;
use crate::support::{Scratch, dprobes, find_program, need, run, target};

/// Probes at both ends of these functions, and what they log.
fn at_both_ends(functions: &[&str]) -> Vec<String> {
    let points = functions.iter().flat_map(|name| [format!("a.out:{name}"), format!("a.out:{name}:return")]);
    points.flat_map(|point| ["--at".to_owned(), point]).collect()
}

#[track_caller]
fn report(scratch: &Scratch, words: &[&str]) -> (String, String) {
    let mut command = dprobes();
    let (status, text, stderr) =
        run(command.args(["report", "trace.dpt"]).args(words).current_dir(scratch.path()));
    assert!(status.success(), "{words:?}: {stderr}");
    (text, stderr)
}

/// Puts the calls together anew, from the records as JSON, and prints them: `function name calls
/// total self`, `way names calls total`, and `call depth name duration`, in nanoseconds. Total
/// times of functions leave out calls within the same function.
const CALLS: &str = r#"
import json
stack, functions, ways, calls = [], {}, {}, []
for line in open('trace.json'):
    record = json.loads(line)
    name = record['symbol'].split('+')[0]
    if not record['probe'].endswith(':return'):
        stack.append([name, record['time'], 0, len(calls)])
        calls.append([len(stack) - 1, name, None])
        continue
    entered, start, inner, number = stack.pop()
    assert entered == name
    length = record['time'] - start
    if stack: stack[-1][2] += length
    outermost = all(other[0] != name for other in stack)
    function = functions.setdefault(name, [0, 0, 0])
    function[0] += 1; function[1] += length * outermost; function[2] += length - inner
    way = ways.setdefault('/'.join([each[0] for each in stack] + [name]), [0, 0])
    way[0] += 1; way[1] += length
    calls[number][2] = length
assert not stack
for name, numbers in functions.items(): print('function', name, *numbers)
for way, numbers in ways.items(): print('way', way, *numbers)
for call in calls: print('call', *call)
"#;

/// A duration as reports show it.
fn shown(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

#[test]
fn tables_graphs_and_trees_have_the_calls_of_the_records() {
    let module = need!("reports", target("deep"), "gcc");
    let python = need!("reports", find_program("python3"), "python3");
    let scratch = Scratch::new();
    let mut command = dprobes();
    command.arg("run").args(at_both_ends(&["deep_recurse", "deep_sort", "deep_compare", "deep_leaf"]));
    command.args(["-o", "trace.dpt", "--"]).arg(&module).current_dir(scratch.path());
    let (status, said, stderr) = run(&mut command);
    assert!(status.success(), "{stderr}");
    let leaves: u64 = said.split_whitespace().nth(1).and_then(|calls| calls.parse().ok()).expect("a number");
    let (status, _, stderr) = run(dprobes()
        .args(["convert", "trace.dpt", "--to", "json", "-o", "trace.json"])
        .current_dir(scratch.path()));
    assert!(status.success(), "{stderr}");
    let (status, expected, stderr) =
        run(Command::new(python).args(["-c", CALLS]).current_dir(scratch.path()));
    assert!(status.success(), "{stderr}");
    let expected: Vec<Vec<&str>> = expected.lines().map(|line| line.split(' ').collect()).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");

    let (table, _) = report(&scratch, &["--functions"]);
    let rows: Vec<&str> = table.lines().skip(1).collect();
    let functions = expected.iter().filter(|words| words[0] == "function");
    assert_eq!(rows.len(), functions.clone().count(), "{table}");
    for words in functions {
        let row = rows.iter().find(|row| row.ends_with(words[1])).expect("a row");
        let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
        let [total, own] = [words[3], words[4]].map(|time| shown(number(time)));
        let calls = number(words[2]);
        assert!(row.starts_with(&format!("{total} {own} {calls} ")), "{words:?}: {row}");
        assert!(words[1] != "deep_leaf" || calls == leaves, "as the program itself counts: {row}");
    }
    let (sorted, _) = report(&scratch, &["--functions", "--sort", "name"]);
    let names: Vec<&str> = sorted.lines().skip(1).filter_map(|row| row.split_whitespace().last()).collect();
    assert_eq!(names, ["deep_compare", "deep_leaf", "deep_recurse", "deep_sort"]);

    let (graph, _) = report(&scratch, &["--graph", "-n", "1000"]);
    let mut way: Vec<String> = Vec::new();
    let mut ways = Vec::new();
    for row in graph.lines().skip(1) {
        let numbers: String = row.chars().take(39).collect();
        let tree: String = row.chars().skip(41).collect();
        let name = tree.rsplit(' ').next().expect("a name").to_owned();
        let level = (tree.chars().count() - name.chars().count()) / 3 - 1;
        way.truncate(level);
        way.push(name.clone());
        let words: Vec<&str> = numbers.split_whitespace().collect();
        ways.push((way.join("/"), words[words.len() - 1].to_owned(), words[..2].join(" ")));
    }
    let mut wanted: Vec<(String, String, String)> = expected
        .iter()
        .filter(|words| words[0] == "way")
        .map(|words| (words[1].to_owned(), words[2].to_owned(), shown(number(words[3]))))
        .collect();
    ways.sort();
    wanted.sort();
    assert_eq!(ways, wanted, "{graph}");

    let (tree, _) = report(&scratch, &["--replay"]);
    let calls: Vec<&Vec<&str>> = expected.iter().filter(|words| words[0] == "call").collect();
    let begun = tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(" | "))
        .filter(|(_, call)| call.contains("()"));
    let begun: Vec<(&str, &str)> = begun.collect();
    assert_eq!(begun.len(), calls.len());
    for ((head, call), words) in begun.iter().zip(&calls) {
        let name = call.trim_start();
        assert_eq!(call.len() - name.len(), 2 * number(words[1]) as usize, "{call}: {words:?}");
        assert!(name.starts_with(&format!("{}()", words[2])), "{call}: {words:?}");
        let is_right = name.ends_with(" {") || head.trim_start().starts_with(&shown(number(words[3])));
        assert!(is_right, "{head}{call}: {words:?}");
    }
    // Each call that has others in it has an end, with a time.
    let ends = tree.lines().filter(|line| line.contains("} /*")).collect::<Vec<_>>();
    assert_eq!(ends.len(), begun.iter().filter(|(_, call)| call.ends_with(" {")).count());
    assert!(ends.iter().all(|line| !line.starts_with("          ")), "{tree}");
    let (flat, notes) = report(&scratch, &["--replay", "--depth", "1"]);
    assert!(flat.lines().skip(1).all(|line| line.ends_with("| deep_recurse();")), "{flat}");
    assert!(notes.contains("deeper than --depth"), "{notes}");
}

/// What store_read returns for a number, as the program calculates it.
fn returned(at: u64) -> u64 {
    let state: u64 = 2 + (0..at).map(|before| (before & 3) + 1).sum::<u64>();
    state.wrapping_mul(at).wrapping_add(7)
}

/// A number as records show it.
fn value(text: &str) -> u64 {
    let number = text.split_whitespace().next().expect("a number").trim_end_matches(';');
    match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
        None => number.parse().expect("a number"),
    }
}

#[test]
fn no_call_is_put_together_across_a_loss() {
    let module = need!("reports", target("store"), "gcc");
    need!("reports", find_program("taskset"), "taskset");
    let scratch = Scratch::new();
    let calls = 300_000_u64;
    let program = scratch.file(
        "program.rpn",
        &format!(
            "name = \"{}\"\nmodtype = user\nmajor = 7\n\
             offset = store_read\nminor = 1\npush r, rdi\nlog 1\nexit\n\
             offset = \"store_read\":return\nminor = 2\npush r, rax\nlog 1\nexit\n",
            module.display()
        ),
    );
    let mut command = dprobes();
    command.args(["run", "--engine=jump", "--buffer=256K", "-o", "trace.dpt"]).arg(program).arg("--");
    // On one processor, no reader keeps up through the smallest buffer.
    command.args(["taskset", "-c", &first_processor()]).arg(&module).arg(calls.to_string());
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(3), "{stderr}");
    let (tree, _) = report(&scratch, &["--replay"]);
    let told = tree.lines().filter_map(|line| line.trim_start().strip_prefix("-- LOST "));
    let told: u64 =
        told.map(|rest| rest.split(' ').next().map_or(0, |count| value(&count.replace(',', "")))).sum();
    let leaves = tree.lines().filter_map(|line| line.split_once("| store_read(")?.1.split_once(") = "));
    let leaves: Vec<(u64, u64)> = leaves.map(|(at, result)| (value(at), value(result))).collect();
    let entries = tree.matches("store_read(").count() as u64;
    let returns = leaves.len() + tree.matches("/* store_read = ").count();
    assert!(told > 0 && leaves.len() > 1000, "{told} lost, {} whole", leaves.len());
    assert_eq!(entries + returns as u64 + told, 2 * calls, "each record is shown, or told to be lost");
    // The states of the program up to a number, not added up anew for each.
    let mut state = 2_u64;
    let mut results = Vec::new();
    for at in 0..calls {
        results.push(state.wrapping_mul(at).wrapping_add(7));
        state += (at & 3) + 1;
    }
    assert_eq!(results[1000], returned(1000));
    for (at, result) in leaves {
        assert_eq!(result, results[at as usize], "the call with {at}");
    }
}

#[test]
fn without_calls_it_says_what_to_probe() {
    let module = need!("reports", target("store"), "gcc");
    let scratch = Scratch::new();
    let mut command = dprobes();
    command.args(["run", "--at", "a.out:store_read", "-o", "trace.dpt", "--"]).arg(&module);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(3), "{stderr}");
    for option in ["--functions", "--graph"] {
        let mut command = dprobes();
        let (status, stdout, stderr) =
            run(command.args(["report", "trace.dpt", option]).current_dir(scratch.path()));
        assert!(status.code() == Some(1) && stdout.is_empty(), "{stdout}");
        assert!(stderr.contains("of no function both entry and return were probed"), "{stderr}");
    }
    // What was hit is shown nevertheless.
    let (tree, _) = report(&scratch, &["--replay"]);
    assert_eq!(tree.matches("| * a.out:store_read").count(), 10, "{tree}");
}
