//! Flame graphs: what they show is what the maps have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use testing::output;

use crate::support::{Scratch, dprobes, find_program, need, run};

/// A program that calls malloc and write from several functions.
const PROGRAM: &str = "
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void parse(int depth) { kept = malloc(depth + 1); if (depth > 0) parse(depth - 1); kept = malloc(9); }
__attribute__((noinline)) void answer(void) { parse(1); write(1, \"text\\n\", 5); kept = malloc(7); }
int main(void) { for (int turn = 0; turn < 5; turn++) { answer(); parse(3); } usleep(30000); answer(); return 0; }
";

/// The program, built in a directory.
fn program(scratch: &Scratch) -> Option<PathBuf> {
    let gcc = find_program("gcc")?;
    let source = scratch.file("calls.c", PROGRAM);
    let program = scratch.path().join("calls");
    output(
        Command::new(gcc).args(["-O1", "-fno-optimize-sibling-calls", "-w", "-o"]).arg(&program).arg(source),
    );
    Some(program)
}

/// A reader of XML, which nobody here wrote: the frames from the lowest on, with the whole page.
const READER: &str = "
import sys, xml.etree.ElementTree as tree
name = '{http://www.w3.org/2000/svg}'
frames = []
for group in tree.parse(sys.argv[1]).iter(name + 'g'):
    x, width, y = (float(group.get('data-' + it)) for it in 'xwy')
    frames.append((x, width, y, group.find(name + 'title').text))
frames.sort(key=lambda it: -it[2])
for x, width, y, title in frames:
    below = [it for it in frames if it[2] == y + 17 and it[0] <= x + 0.01 and x + width <= it[0] + it[1] + 0.01]
    assert len(below) == 1 or title.startswith('all ('), (title, below)
    path = ';'.join(it[3].rsplit(' (', 1)[0] for it in frames if it[2] > y and it[0] <= x + 0.01 and x + width <= it[0] + it[1] + 0.01)
    print(path + ';' + title.rsplit(' (', 1)[0], title.rsplit(' (', 1)[1].split(',')[0])
";

/// The frames of a graph, `all;main;f`, and what each counts.
fn frames(python: &Path, graph: &Path) -> BTreeMap<String, u64> {
    let text = output(Command::new(python).arg("-c").arg(READER).arg(graph));
    let pair = |line: &str| {
        let (path, count) = line.rsplit_once(' ').expect("a path and a count");
        (path.trim_start_matches(';').to_owned(), count.parse().expect("a number"))
    };
    text.lines().map(pair).collect()
}

/// What the frames of folded lines count.
fn expected(folded: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in folded.lines().filter(|line| !line.is_empty()) {
        let (stack, count) = line.rsplit_once(' ').expect("a stack and its count");
        let count: u64 = count.parse().expect("a number");
        let mut path = String::from("all");
        *all.entry(path.clone()).or_insert(0) += count;
        for frame in stack.split(';') {
            path = format!("{path};{frame}");
            *all.entry(path.clone()).or_insert(0) += count;
        }
    }
    all
}

#[test]
fn a_graph_has_every_frame_with_its_count() {
    let python = need!("flame", find_program("python3"), "python3");
    let scratch = Scratch::new();
    let target = need!("flame", program(&scratch), "gcc");
    let (graph, folded) = (scratch.path().join("a.svg"), scratch.path().join("a.folded"));
    let again = scratch.path().join("b.svg");
    let stacks = |folded: &Path, more: &[&str]| {
        let mut command = dprobes();
        command
            .args(["stacks", "libc:write", "libc:malloc", "--top", "1000", "-f", "folded", "-o"])
            .arg(folded);
        output(command.args(more).arg("--flame").arg(&graph).arg("--").arg(&target));
        frames(&python, &graph)
    };
    let drawn = stacks(&folded, &[]);
    let text = std::fs::read_to_string(&folded).expect("it was written");
    assert_eq!(drawn, expected(&text));
    assert_eq!(drawn["all"], 76, "{text}");
    output(dprobes().arg("report").arg(&folded).arg("--flame").arg(&again));
    assert_eq!(frames(&python, &again), drawn);
    // What the script itself clears is not forgotten.
    let script = "uprobe:libc:write, uprobe:libc:malloc { @[ustack(32)] = count(); } end { clear(@); }";
    output(dprobes().args(["trace", "-e", script, "--flame"]).arg(&graph).arg("--").arg(&target));
    assert_eq!(frames(&python, &graph), drawn);
}

#[test]
fn several_maps_are_side_by_side_and_names_do_no_harm() {
    let python = need!("flame", find_program("python3"), "python3");
    let scratch = Scratch::new();
    let target = need!("flame", program(&scratch), "gcc");
    let graph = scratch.path().join("a.svg");
    let script = "uprobe:libc:write { @calls[ustack(2), \"</g><script>&\"] = count(); @bytes[ustack(2)] = sum(arg2); @n = count(); }";
    output(dprobes().args(["trace", "-e", script, "--flame"]).arg(&graph).arg("--").arg(&target));
    let frames = frames(&python, &graph);
    let (calls, bytes) = (frames["all;@calls;</g><script>&"], frames["all;@bytes"]);
    assert!(calls > 0 && bytes >= calls && frames["all"] == calls + bytes, "{frames:?}");
}

#[test]
fn a_click_shows_a_frame_as_wide_as_the_page() {
    let chromium = need!("flame", find_program("chromium"), "chromium");
    let scratch = Scratch::new();
    let folded = scratch.file("a.folded", "main;read 6\nmain;parse;malloc 3\nmain;parse;free 1\n");
    let graph = scratch.path().join("a.svg");
    output(dprobes().arg("report").arg(folded).arg("--flame").arg(&graph));
    let svg = std::fs::read_to_string(graph).expect("it was written");
    let svg = svg.split_once("?>").map_or(&*svg, |(_, svg)| svg);
    let click = "document.querySelector('g[data-name=parse]').dispatchEvent(new MouseEvent('click'));";
    let page = scratch.file("a.html", &format!("<!DOCTYPE html><body>{svg}<script>{click}</script></body>"));
    let mut command = Command::new(chromium);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", scratch.path().join("profile").display()));
    let shown = output(command.arg(format!("file://{}", page.display())));
    let frame = |name: &str| {
        let start = shown.find(&format!("data-name=\"{name}\"")).expect("the frame is there");
        &shown[start..start + shown[start..].find("</g>").expect("it ends")]
    };
    for whole in ["all", "main", "parse"] {
        assert!(frame(whole).contains("width=\"1180\""), "{whole}: {}", frame(whole));
    }
    assert!(frame("malloc").contains("width=\"885\"") && frame("free").contains("width=\"295\""), "{shown}");
    assert!(frame("read").contains("display: none"), "{}", frame("read"));
}

#[test]
fn what_has_no_stacks_is_refused() {
    let scratch = Scratch::new();
    let graph = scratch.path().join("a.svg");
    let graph = graph.display().to_string();
    let no_lines = scratch.file("no.folded", "main;parse 3\nmain\n").display().to_string();
    let none = scratch.path().join("none/a.svg").display().to_string();
    for (words, expected) in [
        (["trace", "--flame", &graph, "begin { @ = count(); }"], "no map of the script has stacks as keys"),
        (["report", &no_lines, "--flame", &graph], "no.folded:2: no stack and its count"),
        (["stacks", "libc:read", "--flame", &none], "No such file or directory"),
    ] {
        let (status, _, said) = run(dprobes().args(words));
        assert!(!status.success() && said.contains(expected), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).expect("it is there").count(), 1, "nothing was written");
}
