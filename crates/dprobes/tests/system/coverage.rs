//! `coverage`: the lines that are reached are those that gcov says, in children and libraries too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Scratch, Server, dprobes, find_program, need, run, text_differences};

/// The lines of a source file, and whether they are reached.
type Lines = BTreeMap<u64, bool>;

/// What a tracefile has of one source file.
#[derive(Debug, Default)]
struct Record {
    lines: Lines,
    functions: BTreeMap<String, bool>,
    /// For each line, what is said of the ways of its jumps.
    branches: BTreeMap<u64, Vec<String>>,
}

/// Parses a tracefile, and checks its sums.
#[track_caller]
fn tracefile(path: &Path) -> BTreeMap<String, Record> {
    let text = std::fs::read_to_string(path).expect("the tracefile is written");
    let (mut all, mut name, mut record) = (BTreeMap::new(), String::new(), Record::default());
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("TN:"));
    for line in lines {
        let (kind, value) = line.split_once(':').unwrap_or((line, ""));
        let fields: Vec<&str> = value.split(',').collect();
        let number = |place: usize| fields[place].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        match kind {
            "SF" => value.clone_into(&mut name),
            "FN" => drop(record.functions.insert(fields[1].to_owned(), false)),
            "FNDA" => drop(record.functions.insert(fields[1].to_owned(), number(0) == 1)),
            "BRDA" => record.branches.entry(number(0)).or_default().push(fields[3].to_owned()),
            "DA" => assert!(record.lines.insert(number(0), number(1) == 1).is_none(), "twice: {line}"),
            "FNF" | "FNH" | "BRF" | "BRH" | "LF" | "LH" => drop(sums.insert(kind, number(0))),
            "end_of_record" => {
                let count = |states: &mut dyn Iterator<Item = bool>| {
                    states.fold((0, 0), |(all, hit), is_hit| (all + 1, hit + u64::from(is_hit)))
                };
                let Record { lines, functions, branches } = &record;
                let mut ways = branches.values().flatten().map(|taken| taken == "1");
                let of = |all: &str, hit: &str| {
                    (sums.get(all).copied().unwrap_or(0), sums.get(hit).copied().unwrap_or(0))
                };
                assert_eq!(of("LF", "LH"), count(&mut lines.values().copied()), "{name}");
                assert_eq!(of("FNF", "FNH"), count(&mut functions.values().copied()), "{name}");
                assert_eq!(of("BRF", "BRH"), count(&mut ways), "{name}");
                sums.clear();
                all.insert(std::mem::take(&mut name), std::mem::take(&mut record));
            }
            _ => panic!("an unknown line: {line}"),
        }
    }
    assert!(name.is_empty(), "a record without an end");
    all
}

/// A source of `tests/targets`, compiled twice: as it is, and for gcov.
struct Built {
    scratch: Scratch,
    source: PathBuf,
    plain: PathBuf,
    counting: PathBuf,
}

impl Built {
    /// `None` without gcc and gcov.
    fn new(name: &str, flags: &[&str]) -> Option<Built> {
        let gcc = find_program("gcc").filter(|_| find_program("gcov").is_some())?;
        let scratch = Scratch::new();
        let source = testing::repository().join(format!("tests/targets/{name}.c"));
        let copy = scratch.path().join(format!("{name}.c"));
        std::fs::copy(&source, &copy).expect("the source is copied");
        let build = |name: &str, more: &[&str]| {
            let program = scratch.path().join(name);
            let mut command = Command::new(&gcc);
            command.current_dir(scratch.path()).args(["-g", "-O0"]).args(flags).args(more);
            testing::output(command.arg("-o").arg(&program).arg(&copy));
            program
        };
        let (plain, counting) = (build("plain", &[]), build("counting", &["--coverage"]));
        Some(Built { source: copy, plain, counting, scratch })
    }

    /// What gcov says, after the counting program has run: the lines, and their texts.
    fn gcov(&self) -> (Lines, BTreeMap<u64, String>) {
        let stem = self.source.file_stem().expect("a name").to_string_lossy();
        let mut command = Command::new("gcov");
        command.current_dir(self.scratch.path()).args(["--stdout", &format!("counting-{stem}.gcda")]);
        let (mut lines, mut texts) = (Lines::new(), BTreeMap::new());
        for row in testing::output(&mut command).lines() {
            let fields: Vec<&str> = row.splitn(3, ':').map(str::trim).collect();
            let [count, line, text] = fields[..] else { continue };
            let Ok(line @ 1..) = line.parse::<u64>() else { continue };
            texts.insert(line, text.to_owned());
            match count {
                "-" => {}
                "#####" | "=====" => drop(lines.insert(line, false)),
                _ => drop(lines.insert(line, true)),
            }
        }
        assert!(!lines.is_empty());
        (lines, texts)
    }

    /// Compares the lines with gcov's. The two differ in which lines have code: debug information
    /// has braces of functions, and gcov what stands before them, and labels.
    #[track_caller]
    fn compare(&self, ours: &Lines) {
        let (theirs, texts) = self.gcov();
        let both = ours.keys().filter(|line| theirs.contains_key(line));
        assert!(both.clone().count() >= 5);
        for line in both {
            assert_eq!(ours[line], theirs[line], "{line}: {}", texts[line]);
        }
        for line in ours.keys().filter(|line| !theirs.contains_key(line)) {
            assert!(matches!(&*texts[line], "{" | "}"), "only here: {line}: {}", texts[line]);
        }
        for line in theirs.keys().filter(|line| !ours.contains_key(line)) {
            let text = &texts[line];
            let is_head = texts.get(&(line + 1)).is_some_and(|next| next == "{");
            assert!(is_head || text.ends_with(':'), "only gcov: {line}: {text}");
        }
    }
}

/// Measures a command; what the tracefile has, and what it says on standard error.
#[track_caller]
fn measured(built: &Built, options: &[&str], words: &[&str]) -> (BTreeMap<String, Record>, String) {
    let file = built.scratch.path().join("out.info");
    let plain = run(Command::new(&built.plain).args(words));
    let mut command = dprobes();
    command.arg("coverage").args(options).arg("-o").arg(&file).arg("--").arg(&built.plain).args(words);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status, &stdout), (plain.0, &plain.1), "{stderr}");
    (tracefile(&file), stderr)
}

fn name(path: &Path) -> String {
    path.canonicalize().expect("it is there").to_string_lossy().into_owned()
}

#[test]
fn the_lines_that_are_reached_are_gcovs() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let (all, told) = measured(&built, &[], &["plain"]);
    run(Command::new(&built.counting).arg("plain"));
    assert_eq!(all.len(), 1, "{:?}", all.keys());
    let record = &all[&name(&built.source)];
    built.compare(&record.lines);
    let called = |name: &str| record.functions[name];
    assert!(called("main") && called("leaves") && !called("never") && !called("in_child"));
    let line = told.lines().find(|line| line.starts_with("total")).expect("a total");
    let (reached, all) = (record.lines.values().filter(|it| **it).count(), record.lines.len());
    assert!(line.contains(&format!(" {reached}/{all} ")), "{told}");
}

#[test]
fn children_are_measured_with_their_parent() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let (all, _) = measured(&built, &[], &["fork"]);
    run(Command::new(&built.counting).arg("fork"));
    let record = &all[&name(&built.source)];
    built.compare(&record.lines);
    assert!(record.functions["in_child"] && record.functions["loops"]);
    // What a shell starts is measured, and nothing of the shell is.
    let file = built.scratch.path().join("shell.info");
    let mut command = dprobes();
    command.args(["coverage", "-q", "-m"]).arg(&built.plain).arg("-o").arg(&file);
    let script = format!("{0} plain; {0} fork; exit 9", built.plain.display());
    let (status, stdout, stderr) = run(command.args(["--", "sh", "-c", &script]));
    assert_eq!(status.code(), Some(9), "{stderr}");
    assert!(stdout.starts_with("plain 7 ") && stdout.ends_with("ended with 6\n"), "{stdout}");
    run(Command::new(&built.counting).arg("plain"));
    built.compare(&tracefile(&file)[&name(&built.source)].lines);
    assert_eq!(stderr, "", "nothing is said with -q");
}

#[test]
fn a_library_that_is_loaded_later_is_measured() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let library = need!("coverage", Built::new("covered_plugin", &["-shared", "-fPIC"]), "gcc and gcov");
    let path = library.plain.to_str().expect("text");
    let (all, _) = measured(&built, &["-m", "a.out", "-m", path], &["plugin", path]);
    run(Command::new(&built.counting).arg("plugin").arg(&library.counting));
    assert_eq!(all.len(), 2, "{:?}", all.keys());
    built.compare(&all[&name(&built.source)].lines);
    library.compare(&all[&name(&library.source)].lines);
    let called = &all[&name(&library.source)].functions;
    assert_eq!((called["plugin"], called["twice"], called["unused"]), (true, true, false));
    // Only some of the files.
    let (all, _) =
        measured(&built, &["-m", "a.out", "-m", path, "--source", "*_plugin.c"], &["plugin", path]);
    assert_eq!(all.keys().collect::<Vec<_>>(), [&name(&library.source)]);
    // It is said if it is not loaded.
    let (all, told) = measured(&built, &["-m", path], &["plain"]);
    assert!(told.contains("was never loaded"), "{told}");
    assert!(all[&name(&library.source)].lines.values().all(|is_reached| !is_reached));
}

#[test]
fn branches_are_told_where_control_flow_proves_them() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let (all, told) = measured(&built, &["--branches"], &["plain"]);
    let record = &all[&name(&built.source)];
    let source = std::fs::read_to_string(&built.source).expect("the source");
    let line = |text: &str| source.lines().position(|line| line.trim() == text).expect("a line") as u64 + 1;
    let ways = |text: &str| record.branches.get(&line(text)).cloned().unwrap_or_default();
    // `n` is never above 100: the way in is not taken, so the way past it is.
    assert_eq!(ways("if (n > 100)"), ["0", "1"]);
    assert_eq!(ways("if (how == 1)"), ["0", "1"]);
    // Both ways out of `leaves` are seen: one returns, the other never comes back.
    assert_eq!(ways("if (how == 0)").first().map(String::as_str), Some("1"));
    assert_eq!(ways("if (line[0] == 'l')"), ["-", "-"], "it is not reached");
    // Who skips the body of `if (i == 3)` cannot be told from who has executed it, where both meet.
    assert!(told.contains("of conditional jumps are undecided"), "{told}");
    assert!(record.branches.keys().all(|line| record.lines.contains_key(line)), "{record:?}");
    // Lines are the same with more sites.
    run(Command::new(&built.counting).arg("plain"));
    built.compare(&record.lines);
}

/// Starts to measure a process; returns when the sites are in.
fn measures(server: &Server, file: &Path) -> Child {
    let pid = server.pid().to_string();
    let mut command = dprobes();
    command.args(["coverage", "-p", &pid, "-o"]).arg(file);
    let mut measuring = command.stderr(Stdio::piped()).spawn().expect("dprobes starts");
    while text_differences(server.pid()).is_empty() {
        assert!(measuring.try_wait().expect("it can be asked").is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    measuring
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("it runs");
}

/// All sites are traps: whoever is left takes them out.
#[test]
fn a_killed_tracer_leaves_the_program_as_it_was() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let mut server = Server::start(&built.plain, ["wait"]);
    assert_eq!(server.line(), "ready");
    let mut measuring = measures(&server, &built.scratch.path().join("out.info"));
    assert!(server.ask("l").starts_with("loops "));
    let front = measuring.id();
    let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children"));
    let tracer = children.expect("the front lives").trim().parse().expect("its only child");
    signal(tracer, Signal::SIGKILL);
    measuring.wait().expect("it ends");
    assert_eq!(text_differences(server.pid()), Vec::<String>::new());
    assert!(server.ask("n").starts_with("never "));
    assert!(server.end().0.success());
}

#[test]
fn a_running_process_is_measured_from_then_on_and_left_as_it_was() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let mut server = Server::start(&built.plain, ["wait"]);
    assert_eq!(server.line(), "ready");
    let file = built.scratch.path().join("out.info");
    let mut measuring = measures(&server, &file);
    assert!(server.ask("l").starts_with("loops "));
    signal(measuring.id() as i32, Signal::SIGINT);
    assert!(measuring.wait().expect("it ends").success());
    assert_eq!(text_differences(server.pid()), Vec::<String>::new());
    let record = &tracefile(&file)[&name(&built.source)];
    assert_eq!((record.functions["loops"], record.functions["never"]), (true, false));
    assert!(!record.functions["main"], "it was called before");
    assert!(server.ask("n").starts_with("never "));
    assert!(server.end().0.success());
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_remedy() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let strip = need!("coverage", find_program("strip"), "strip");
    let stripped = built.scratch.path().join("stripped");
    testing::output(Command::new(strip).arg("-o").arg(&stripped).arg(&built.plain));
    let script = built.scratch.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").expect("a script");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let (plain, stripped, script) = (text(&built.plain), text(&stripped), text(&script));
    for (words, status, why) in [
        (vec!["--", &stripped], 125, "compile with -g"),
        (vec!["--", &script], 125, "with --module"),
        (vec!["-m", "./nowhere.so", "--", &plain], 125, "there is no such program or library"),
        (vec!["--", "./nowhere"], 127, "no such"),
        (vec!["--source", "nothing*", "--", &plain], 125, "covered.c"),
        (vec!["-o", "/nowhere/at/all", "--", &plain], 125, "/nowhere/at/all"),
        (vec!["--for", "1s", "--", &plain], 125, "until it ends"),
        (vec![], 1, "give a command"),
    ] {
        let (ended, stdout, stderr) = run(dprobes().arg("coverage").args(&words));
        assert_eq!((ended.code(), &*stdout), (Some(status), ""), "{words:?}: {stderr}");
        assert!(stderr.contains(why) && stderr.lines().count() == 1, "{words:?}: {stderr}");
    }
}

#[test]
fn a_full_disk_is_told_when_the_program_has_ended() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    let plain = run(Command::new(&built.plain).arg("threads"));
    let mut command = dprobes();
    command.args(["coverage", "-q", "-o", "/dev/full", "--"]).arg(&built.plain).arg("threads");
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout), (Some(125), plain.1));
    assert!(stderr.contains("/dev/full: No space left on device"), "{stderr}");
}

#[test]
fn threads_come_to_the_same_sites_at_once() {
    let built = need!("coverage", Built::new("covered", &["-pthread"]), "gcc and gcov");
    run(Command::new(&built.counting).arg("threads"));
    for _ in 0..testing::rounds(10, 200) {
        let (all, _) = measured(&built, &[], &["threads"]);
        built.compare(&all[&name(&built.source)].lines);
    }
}
