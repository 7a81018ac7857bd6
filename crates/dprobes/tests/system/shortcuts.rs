//! `count`, `latency` and `stacks`, on a program that calls a function five times.

use std::process::Command;

use crate::support::{dprobes, need, target};

/// Runs one of them on the program; what it writes to both outputs, apart.
#[track_caller]
fn asked(words: &[&str]) -> (String, String) {
    let program = target("places").expect("it was there");
    let output = dprobes().args(words).arg("--").arg(program).output().expect("dprobes starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (said, told) = (text(output.stdout), text(output.stderr));
    // That of the program, except where it is a script's.
    assert!(matches!(output.status.code(), Some(0 | 9)), "{words:?}: {said}{told}");
    (said, told)
}

#[test]
fn the_three_questions_are_answered() {
    let program = need!("shortcuts", target("places"), "gcc");
    assert_eq!(Command::new(program).status().expect("it starts").code(), Some(9));
    let (_, told) = asked(&["count", "a.out:place_work"]);
    let line = told.lines().find(|line| line.starts_with("a.out:place_work:entry")).expect("it was counted");
    assert_eq!(line.split_whitespace().nth(2), Some("5"), "{told}");
    let (said, _) = asked(&["latency", "a.out:place_w*"]);
    let (_, stats) = said.split_once("@call_ns[place_work]: count 5, average ").expect("a summary");
    let stats = stats.lines().next().expect("a line");
    assert!(stats.split(", total ").all(|time| time.ends_with('s') && time.contains(' ')), "{said}");
    let (_, buckets) = said.split_once("@ns[place_work]:\n").expect("a histogram");
    let counts = buckets
        .lines()
        .filter_map(|line| line.split_once(')')?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 5, "{said}");
    let bounds = buckets.lines().next().and_then(|line| line.split_once(')')).expect("a bucket").0;
    assert!(bounds.contains("s, ") && bounds.ends_with('s'), "{said}");
    let percentiles = buckets.lines().find(|line| line.starts_with("p50 < ")).expect("percentiles");
    assert!(percentiles.contains("s, p90 < ") && percentiles.contains("s, p99 < "), "{said}");
    // Programs that read it get numbers.
    let (said, _) = asked(&["latency", "-f", "json", "a.out:place_work"]);
    let stats = said.lines().find(|line| line.contains("\"stats\"")).expect("JSON");
    assert!(stats.contains("\"count\": 5") && !stats.contains(" s\""), "{stats}");
    assert!(!said.contains("p50"), "{said}");
    let (said, _) = asked(&["stacks", "--depth", "1", "a.out:place_work"]);
    assert_eq!(said.trim(), "worked\n@calls[\n        place_work+0\n]: 5");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    for (words, why) in [
        (&["latency", "a.out:f:return", "--", "true"][..], "whole functions are measured"),
        (&["stacks", "a.out:f:*", "--", "true"], "every instruction"),
        (&["count", "a.out:f", "--for", "1s", "--", "true"], "until it ends"),
        (&["count", "a.out:f", "--engine", "kernel", "--", "true"], "kernel"),
        (&["latency", "a.out:f", "-p", "1", "--", "true"], "cannot be used with"),
        (&["latency", "handle"], "must be named"),
        (&["-p", "1", "count", "a.out:f"], "options stand behind the command: `dprobes count -p ...`"),
    ] {
        let output = dprobes().args(words).output().expect("dprobes starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{words:?}: {told}");
    }
}

#[test]
fn what_was_not_hit_is_named_if_asked() {
    let program = need!("shortcuts", target("tooled"), "gcc");
    let asked = |words: &[&str]| {
        let output = dprobes().args(words).arg("--").arg(&program).output().expect("dprobes starts");
        String::from_utf8(output.stderr).expect("text")
    };
    let told = asked(&["count", "libc:mem*"]);
    assert!(told.contains(" more without a hit; -v names them\n") && !told.contains("memfrob"), "{told}");
    let told = asked(&["count", "-v", "libc:mem*"]);
    let (_, silent) = told.split_once(" more without a hit\n").expect("the rest");
    let names: Vec<&str> = silent.lines().filter_map(|line| line.trim_start().strip_prefix("0 ")).collect();
    let counted = told.lines().find_map(|line| line.strip_suffix(" more without a hit")).expect("how many");
    assert_eq!(names.len(), counted.trim().parse::<usize>().expect("a number"), "{told}");
    assert!(names.iter().any(|name| name.trim_start() == "memfrob"), "{told}");
}

#[test]
fn a_function_that_is_named_and_not_hit_is_told() {
    let program = need!("shortcuts", target("tooled"), "gcc");
    let told = |words: &[&str]| {
        let mut command = dprobes();
        command.args(words).args(["libc:memfrob", "a.out:leaks", "--"]).arg(&program);
        let output = command.output().expect("dprobes starts");
        String::from_utf8(output.stderr).expect("text")
    };
    let counted = told(&["count"]);
    let silent: Vec<&str> = counted.lines().filter(|line| line.contains("no hit")).collect();
    assert_eq!(silent, ["libc:memfrob:entry: no hit"], "{counted}");
    // Of a function that was not called, nobody expects that it returns.
    for words in [&["latency"][..], &["stacks"]] {
        let said = told(words);
        let silent: Vec<&str> = said.lines().filter(|line| line.contains("no hit")).collect();
        assert_eq!(silent, ["dprobes: note: uprobe:libc:memfrob: no hit"], "{words:?}: {said}");
        let mut quiet = words.to_vec();
        quiet.push("--quiet");
        assert!(!told(&quiet).contains("no hit"), "{words:?}");
    }
}

/// Six calls: three of each kind, four of one name and two of the other.
const BY: &str = r#"#include <string.h>
__attribute__((noipa)) int serve(int kind, const char *name) { return kind + (int)strlen(name); }
int main(void)
{
    int sum = 0;
    for (int i = 0; i < 6; i++)
        sum += serve(i % 2, i % 3 == 0 ? "write" : "read");
    return sum == 0;
}
"#;

#[test]
fn latencies_are_apart_for_each_value_of_an_argument() {
    let gcc = need!("shortcuts", crate::support::find_program("gcc"), "gcc");
    let scratch = crate::support::Scratch::new();
    let (source, program) = (scratch.file("by.c", BY), scratch.path().join("by"));
    testing::output(Command::new(gcc).args(["-g", "-O1"]).arg(source).arg("-o").arg(&program));
    let counts = |by: &str| {
        let mut command = dprobes();
        command.args(["latency", "a.out:serve", "--by", by, "--"]).arg(&program);
        let said = testing::output(&mut command);
        let counted = said.lines().filter_map(|line| line.split_once(": count "));
        let mut counted: Vec<String> = counted
            .map(|(key, rest)| format!("{key} {}", rest.split(',').next().unwrap_or_default()))
            .collect();
        counted.sort();
        // A histogram with percentiles for each.
        let percentiles = said.lines().filter(|line| line.starts_with("p50 ") && line.contains(", p99 "));
        assert_eq!(percentiles.count(), counted.len(), "{said}");
        counted
    };
    for by in ["arg0", "kind"] {
        assert_eq!(counts(by), ["@call_ns[serve, 0] 3", "@call_ns[serve, 1] 3"], "{by}");
    }
    for by in ["name", "str(arg1)", "str(name)"] {
        assert_eq!(counts(by), ["@call_ns[serve, read] 4", "@call_ns[serve, write] 2"], "{by}");
    }
    // The address of a text tells little.
    let by = |by: &str| {
        crate::support::run(dprobes().args(["latency", "a.out:serve", "--by", by, "--"]).arg(&program)).2
    };
    assert!(by("arg1").contains("note: arg1 points to text: `--by name`, or `--by 'str(arg1)'`, shows it"));
    assert!(!by("arg0").contains("points to text"));
    for (by, why) in [("none", "none"), ("kind + 1", "an argument is expected")] {
        let mut command = dprobes();
        command.args(["latency", "a.out:serve", "--by", by, "--"]).arg(&program);
        let (status, _, said) = crate::support::run(&mut command);
        assert!(!status.success() && said.contains(why), "{by}: {said}");
    }
}

#[test]
fn stacks_name_the_program_if_there_are_several_and_what_waits_is_told_once() {
    let server = need!("shortcuts", target("server"), "gcc");
    let other = need!("shortcuts", crate::support::find_program("sleep"), "sleep");
    let mut server = crate::support::start_server(&server);
    let mut sleeper = Command::new(other).arg("600").spawn().expect("it starts");
    let script = |pids: &[u32]| {
        let mut command = dprobes();
        command.args(["stacks", "--show-script", "libc:malloc"]);
        pids.iter().for_each(|pid| {
            command.arg("-p").arg(pid.to_string());
        });
        String::from_utf8(command.output().expect("dprobes starts").stdout).expect("text")
    };
    let pids = [server.pid(), sleeper.id()];
    assert!(script(&pids).contains("@calls[comm, ustack(32)]"), "{}", script(&pids));
    assert!(script(&pids[..1]).contains("@calls[ustack(32)]"));
    let mut command = dprobes();
    command.args(["attach", "--at", "libnowhere:f", "--for", "100ms"]);
    pids.iter().for_each(|pid| {
        command.arg("-p").arg(pid.to_string());
    });
    let output = command.output().expect("dprobes starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches("`libnowhere` is not mapped").count(), 1, "{told}");
    assert_eq!(server.ask("call 3"), "done 3");
    let _ = sleeper.kill();
    let _ = sleeper.wait();
}
