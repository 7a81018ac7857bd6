//! Records: the same bytes as the trap engine's, with the header of the hit.

use crate::support::{
    Run, Scratch, copy, need, needs_kernel, repository, start, start_file, target, variant,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was logged: the codes, and the rows of bytes, of each record.
fn logged(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("DProbes("), line.split_once(" : ")) {
            (Some(rest), _) if line.contains(" cpu=") => {
                all.push((rest.split(')').next().unwrap_or_default().to_owned(), String::new()));
            }
            (_, Some((_, row))) => all.last_mut().expect("a row has a header").1.push_str(row.trim()),
            _ => {}
        }
    }
    all
}

/// The examples of the manual for the program `appln`.
const EXAMPLES: [&str; 6] = [
    "manual-log-str",
    "manual-sample-1-registers",
    "manual-sample-2-xchg",
    "manual-sample-3-variables",
    "manual-sample-4-arithmetic",
    "manual-sample-6-jumps-and-calls",
];

fn example(name: &str) -> PathBuf {
    repository().join("tests/seeds").join(format!("{name}.rpn"))
}

#[test]
fn the_manuals_examples_log_what_they_log_by_traps() {
    needs_kernel!("records");
    let scratch = Scratch::new();
    let built = std::panic::catch_unwind(|| variant("appln", "appln-m32-kernel", &["-m32"]));
    let built = need!("bpf: records: examples", built.ok().flatten(), "gcc -m32");
    // The examples name the program `appln`: only this copy is, while the test runs.
    let appln = copy(&scratch, &built, "appln");
    for name in EXAMPLES {
        let text = std::fs::read_to_string(example(name)).expect("the example is there");
        let text = text.replace("name = appln", &format!("name = \"{}\"", appln.display()));
        assert!(text.contains(&appln.display().to_string()), "{name}");
        let file = scratch.file(&format!("{name}.rpn"), &text);
        let trapped = Run::file(&file).option("--engine=trap").on([&appln]).ended_with(0);
        let mut session = start_file(&file, &[]);
        session.armed();
        assert!(Command::new(&appln).status().expect("it starts").success());
        let outcome = session.stop().ended_with(0);
        assert_eq!(logged(&outcome.records), logged(&trapped.records), "{name}: {outcome:#?}");
        assert!(!logged(&outcome.records).is_empty(), "{name}");
        assert_eq!(outcome.stats.locals, trapped.stats.locals, "{name}");
    }
}

#[test]
fn a_program_of_many_kinds_of_logs_logs_what_it_logs_by_traps() {
    needs_kernel!("records");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: records", target("words"), "gcc"), "words");
    // The last record is of an exception, with its stack trace.
    let text = format!(
        "name = \"{}\"\nmajor = 5\nvars = 4\nlogmax = 256\nautostacktrace = yes\noffset = t_word\nminor = 6\n\
         push 20\npush r, rdi\nlog str\npush r, rsi\nlog 1\ninc lv, 1\npush lv, 1\nlog 1\n\
         push 2\npush r, rdi\nlog mrf\nsetmin 7\npush 5\npush lv, 1\nsub\njz last\nexit\n\
         last: push 10\npush 0\ndiv\nlog 1\nexit\n",
        program.display()
    );
    let words = ["one", "two", "a longer word", "x", "end"];
    let file = scratch.file("p.rpn", &text);
    let of_traps = Run::file(&file).option("--engine=trap");
    let trapped =
        of_traps.on(std::iter::once(program.as_os_str()).chain(words.map(AsRef::as_ref))).ended_with(0);
    let mut session = start(&text, &["--log", "ALL"]);
    session.armed();
    assert!(Command::new(&program).args(words).status().expect("it starts").success());
    let outcome = session.stop().ended_with(0);
    assert_eq!(logged(&outcome.records), logged(&trapped.records), "{outcome:#?}");
    assert!(logged(&outcome.records).len() > words.len(), "{outcome:#?}");
    assert_eq!(outcome.stats.locals, trapped.stats.locals);
    for header in outcome.headers() {
        assert!(header.contains(" name=words ") && header.contains(" uid=0 "), "{header}");
    }
}

#[test]
fn a_store_knows_where_the_sites_were() {
    needs_kernel!("records");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: records", target("server"), "gcc"), "server");
    let store = scratch.path().join("trace.dpt");
    let text =
        format!("name = \"{}\"\noffset = server_work\nminor = 1\npush 1\nlog 1\nexit\n", program.display());
    let target = format!("store:{}", store.display());
    let mut session = start(&text, &["--log-target", &target]);
    session.armed();
    assert_eq!(
        Command::new(&program).args(["leaf", "4"]).output().expect("it starts").status.code(),
        Some(5)
    );
    session.stop().ended_with(0);
    let shown = testing::output(crate::support::dprobes().args(["show", "--info"]).arg(&store));
    assert!(shown.contains("server_work"), "{shown}");
}

#[test]
fn records_of_several_programs_come_in_the_order_of_time() {
    needs_kernel!("records");
    let scratch = Scratch::new();
    let built = need!("bpf: records", target("server"), "gcc");
    let (one, two) = (copy(&scratch, &built, "one"), copy(&scratch, &built, "two"));
    let points = [&one, &two].map(|program| format!("{}:server_work:entry", program.display()));
    let options =
        ["--at", &points[0], "--at", &points[1], "--do", "push pid; log 1", "--log", "TSC", "PROCNAME"];
    let mut session = start_file(Path::new(""), &options);
    session.armed();
    session.until(&format!("armed in {}", two.display()));
    for _ in 0..20 {
        for program in [&one, &two] {
            let leaf = Command::new(program).args(["leaf", "2"]).output().expect("it starts");
            assert_eq!(leaf.status.code(), Some(5));
        }
    }
    let outcome = session.stop().ended_with(0);
    let headers = outcome.headers();
    let names: Vec<&str> =
        headers.iter().map(|header| if header.contains("name=one") { "one" } else { "two" }).collect();
    let expected: Vec<&str> = (0..20).flat_map(|_| ["one", "one", "two", "two"]).collect();
    assert_eq!(names, expected, "{outcome:#?}");
}
