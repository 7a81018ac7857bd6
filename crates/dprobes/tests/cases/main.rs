//! Golden transcripts: `tests/cases/*.case` of the repository, run through the real binary, each
//! case a test of its own: `cargo test -p dprobes --test cases -- 'part of its name'`.
//!
//! A file holds blocks; a block begins with `NAME` and ends with the next. Indented lines, by four
//! spaces, belong to the keyword above them; lines that begin with `#` are comments.
//!
//! | keyword | what |
//! |---|---|
//! | `NAME text` | what the case shows |
//! | `NEEDS words` | programs, or `root`: without them the case is skipped |
//! | `FILE name` | a file in the case's directory, with the indented text |
//! | `ARGS words` | the arguments of dprobes, as a shell would split them |
//! | `SHELL line` | instead: a line for `sh`, in which `$DPROBES` is the command |
//! | `MENTIONS text` | standard error holds this; never rewritten |
//! | `EXIT status` | the exit status |
//! | `STDOUT`, `STDERR`, `RECORDS` | the whole output (or the file `records`), indented; absent: not compared (`STDERR`: must be empty) |
//!
//! `{targets}`, `{repository}` and `{server}` (the pid of a process to attach to) stand for
//! themselves in `ARGS`, `SHELL` and files, and paths and numbers that differ between runs are
//! written so in what is compared. In the bad cases nothing may be touched: a command line that
//! would start a program writes `ran`, which must not be there afterwards, and the server's text
//! must be as before.
//!
//! `UPDATE_CASES=1` rewrites `EXIT` and the outputs. Read the difference.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../system/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the cases use a part of it")]
mod support;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use support::{Scratch, Server, is_traced, repository, run, target, text_differences, variant};
use testing::Trials;

/// One block.
#[derive(Default, Clone)]
struct Case {
    name: String,
    /// Every entry of the block in order: keyword, rest of the line, indented text.
    entries: Vec<(String, String, String)>,
}

impl Case {
    fn first(&self, keyword: &str) -> Option<(&str, &str)> {
        let found = self.entries.iter().find(|(each, _, _)| each == keyword)?;
        Some((&found.1, &found.2))
    }

    fn all<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries
            .iter()
            .filter(move |(each, _, _)| each == keyword)
            .map(|(_, rest, text)| (&**rest, &**text))
    }

    fn set(&mut self, keyword: &str, rest: &str, text: &str) {
        let entry = (keyword.to_string(), rest.to_string(), text.to_string());
        match self.entries.iter_mut().find(|(each, _, _)| each == keyword) {
            Some(found) => *found = entry,
            None => self.entries.push(entry),
        }
    }
}

/// The comments before the first case, and the cases.
fn parse(text: &str) -> (String, Vec<Case>) {
    let mut head = String::new();
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            assert!(cases.is_empty(), "comments stand before the first case");
            writeln!(head, "{line}").expect("a string takes it");
        } else if let Some(indented) = line.strip_prefix("    ") {
            let case = cases.last_mut().expect("text belongs to a case");
            let (_, _, text) = case.entries.last_mut().expect("text belongs to a keyword");
            writeln!(text, "{indented}").expect("a string takes it");
        } else if line.trim().is_empty() {
            if let Some((_, _, text)) = cases.last_mut().and_then(|case| case.entries.last_mut())
                && !text.is_empty()
            {
                text.push('\n');
            }
        } else {
            let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
            match keyword {
                "NAME" => cases.push(Case { name: rest.to_string(), entries: Vec::new() }),
                "NEEDS" | "FILE" | "ARGS" | "SHELL" | "MENTIONS" | "EXIT" | "STDOUT" | "STDERR"
                | "RECORDS" => {
                    let case = cases.last_mut().expect("a case begins with NAME");
                    case.entries.push((keyword.to_string(), rest.to_string(), String::new()));
                }
                _ => panic!("unknown keyword {keyword:?}"),
            }
        }
    }
    // Blank lines between blocks are not text.
    for entry in cases.iter_mut().flat_map(|case| &mut case.entries) {
        let end = entry.2.trim_end_matches('\n').len();
        entry.2.truncate(end);
        if end > 0 {
            entry.2.push('\n');
        }
    }
    (head, cases)
}

fn print(head: &str, cases: &[Case]) -> String {
    let mut out = head.to_string();
    for case in cases {
        writeln!(out, "{}NAME {}", if out.is_empty() { "" } else { "\n" }, case.name)
            .expect("a string takes it");
        for (keyword, rest, text) in &case.entries {
            writeln!(out, "{}", format!("{keyword} {rest}").trim_end()).expect("a string takes it");
            for line in text.lines() {
                writeln!(out, "{}", format!("    {line}").trim_end()).expect("a string takes it");
            }
        }
    }
    out
}

/// The environment of a case: directories, and the placeholders for them.
struct Place {
    scratch: Scratch,
    targets: PathBuf,
    server: u32,
}

impl Place {
    fn fill(&self, text: &str) -> String {
        text.replace("{targets}", &self.targets.to_string_lossy())
            .replace("{repository}", &root())
            .replace("{server}", &self.server.to_string())
    }

    /// Replaces text that differs between runs and machines by placeholders.
    fn blank(&self, text: &str) -> String {
        let text = text
            .replace(&*self.targets.to_string_lossy(), "{targets}")
            .replace(&*self.scratch.path().to_string_lossy(), "{dir}")
            .replace(&root(), "{repository}");
        let text = without_times(&text);
        let text = number_after(&text, "cpu=", "N");
        let text = number_after(&text, "places[", "N");
        let text = number_after(&text, "pid=", "N");
        let text = number_after(&text, "pid ", "N");
        let text = number_after(&text, "`dprobes list -p ", "N");
        // The summary's columns are as wide as the paths in them.
        let mut in_summary = false;
        let mut line_of = |line: &str| {
            in_summary |= line == "dprobes: summary";
            match in_summary {
                true => without_cost(without_tactics(&line.split_whitespace().collect::<Vec<_>>().join(" "))),
                false => line.trim_end().to_string() + "\n",
            }
        };
        number_after(&text, "process ", "N").lines().map(&mut line_of).collect()
    }
}

fn root() -> String {
    repository().canonicalize().expect("the repository is there").to_string_lossy().into_owned()
}

/// A summary line without the engine and tactic of its sites, which depend on where the program is
/// loaded.
fn without_tactics(line: &str) -> String {
    if line.split_once(' ').is_some_and(|(count, rest)| {
        count.parse::<u64>().is_ok()
            && (rest.starts_with("site trapped") || rest.starts_with("sites trapped"))
    }) {
        return String::new();
    }
    let states = ["armed", "disabled", "removed", "waiting", "refused"];
    let engines = states.into_iter().flat_map(|state| ["jump", "trap"].map(|engine| (state, engine)));
    let engine = engines.filter_map(|(state, engine)| {
        line.find(&format!(" {state} {engine}")).map(|at| at + state.len() + 1)
    });
    match engine.min() {
        Some(at) => format!("{} ENGINE\n", &line[..at]),
        None => format!("{line}\n"),
    }
}

/// The line that says what hits have cost, without the numbers.
fn without_cost(line: String) -> String {
    if line.starts_with("hits took about ") { "hits took about COST\n".to_owned() } else { line }
}

/// Replaces the times at the beginning of lines, and the blanks between their columns.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let is_time = line.len() > 15
            && line.is_char_boundary(15)
            && line.bytes().take(15).zip(*b"00:00:00.000000").all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            });
        match is_time {
            // The columns are as wide as the process's number.
            true => format!("TIME {}\n", line[15..].split_whitespace().collect::<Vec<_>>().join(" ")),
            false => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// Replaces every decimal number that follows a word.
fn number_after(text: &str, word: &str, with: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = rest.split_at(at + word.len());
        out.push_str(before);
        rest = after.trim_start_matches(|each: char| each.is_ascii_digit());
        out.push_str(if rest.len() < after.len() { with } else { "" });
    }
    out + rest
}

/// Plays a case; returns it with the actual output, and mistakes beyond the compared output.
fn play(case: &Case, place: &Place) -> (Case, Vec<String>) {
    let mut wrong = Vec::new();
    for (name, text) in case.all("FILE") {
        place.scratch.file(name, &place.fill(text));
    }
    let mut command = Command::new("sh");
    command.current_dir(place.scratch.path()).env("DPROBES", env!("CARGO_BIN_EXE_dprobes"));
    let line = match (case.first("ARGS"), case.first("SHELL")) {
        (Some((words, _)), None) => format!("exec \"$DPROBES\" {}", place.fill(words)),
        (None, Some((line, _))) => place.fill(line),
        _ => panic!("{}: one of ARGS and SHELL", case.name),
    };
    let (status, stdout, stderr) = run(command.arg("-c").arg(line));
    let stderr = place.blank(&stderr);
    for (text, _) in case.all("MENTIONS") {
        if !stderr.to_lowercase().contains(&text.to_lowercase()) {
            wrong.push(format!("standard error does not mention {text:?}:\n{stderr}"));
        }
    }
    let mut seen = case.clone();
    let status = status.code().map_or_else(|| status.to_string(), |code| code.to_string());
    seen.set("EXIT", &status, "");
    if case.first("STDOUT").is_some() {
        seen.set("STDOUT", "", &place.blank(&stdout));
    }
    if case.first("STDERR").is_some() || !stderr.is_empty() {
        seen.set("STDERR", "", &stderr);
    }
    if case.first("RECORDS").is_some() {
        let records = std::fs::read_to_string(place.scratch.path().join("records")).unwrap_or_default();
        seen.set("RECORDS", "", &place.blank(&records));
    }
    (seen, wrong)
}

/// The directory of the programs that cases name, all of them built; `None` without gcc.
fn programs() -> Option<PathBuf> {
    for name in ["leaf", "places", "float", "silent", "tight"] {
        target(name)?;
    }
    variant("leaf", "leaf-stripped", &["-s"])?;
    Some(target("server")?.parent().expect("programs are in a directory").to_path_buf())
}

/// What a case needs and this machine lacks.
fn lacks(case: &Case) -> Option<&str> {
    let has = |need: &&str| match *need {
        "root" => testing::is_root(),
        program => testing::find_program(program).is_some(),
    };
    case.first("NEEDS")?.0.split_whitespace().find(|need| !has(need))
}

/// Plays a case in an empty directory. A bad case must touch nothing.
fn check(case: &Case, targets: &Path, bad: bool) -> Result<(), String> {
    if let Some(need) = lacks(case) {
        testing::skipped(&format!("cases: {}", case.name), need);
        return Ok(());
    }
    let (seen, mut wrong) = in_a_place(case, targets, bad);
    wrong.extend(compare(case, &seen));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Plays a case with a server of its own; returns it with the actual output, and mistakes beyond
/// the compared output.
fn in_a_place(case: &Case, targets: &Path, bad: bool) -> (Case, Vec<String>) {
    let mut server = Server::start(&targets.join("server"), [] as [&str; 0]);
    server.line();
    let place = Place { scratch: Scratch::new(), targets: targets.to_path_buf(), server: server.pid() };
    let (seen, mut wrong) = play(case, &place);
    if bad {
        if place.scratch.path().join("ran").exists() {
            wrong.push("the program was started all the same".to_string());
        }
        if is_traced(place.server) {
            wrong.push("the server is still traced".to_string());
        }
        wrong.extend(text_differences(place.server));
    }
    if !server.lives() {
        wrong.push("the server has ended".to_string());
    }
    (seen, wrong)
}

/// A case with what it prints here, if it can be played here.
fn updated(case: &Case, targets: &Path, bad: bool) -> Case {
    if lacks(case).is_some() { case.clone() } else { in_a_place(case, targets, bad).0 }
}

/// The case files of a directory.
fn files(directory: &str) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(repository().join("tests/cases").join(directory)).expect("there are cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files
}

fn compare(case: &Case, seen: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    for keyword in ["EXIT", "STDOUT", "STDERR", "RECORDS"] {
        let (wanted, is) = (case.first(keyword), seen.first(keyword));
        if wanted != is {
            let show = |what: Option<(&str, &str)>| {
                what.map_or("nothing".into(), |(rest, text)| format!("{rest}\n{text}"))
            };
            wrong.push(format!("{keyword} should be {}but is {}", show(wanted), show(is)));
        }
    }
    wrong
}

/// Wrong programs and command lines are refused with the expected messages; good sessions match
/// their transcripts.
fn main() -> ExitCode {
    let mut trials = Trials::new();
    let programs = programs();
    if programs.is_none() {
        testing::skipped("cases", "gcc");
    }
    for (directory, least) in [("bad", 40), ("good", 5)] {
        let bad = directory == "bad";
        let mut count = 0;
        for file in files(directory) {
            let text = std::fs::read_to_string(&file).expect("it can be read");
            let (head, cases) = parse(&text);
            count += cases.len();
            if let Some(targets) = programs.as_deref().filter(|_| std::env::var_os("UPDATE_CASES").is_some())
            {
                let seen: Vec<Case> = cases.iter().map(|case| updated(case, targets, bad)).collect();
                std::fs::write(&file, print(&head, &seen)).expect("the cases can be rewritten");
                continue;
            }
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for case in cases {
                let name = format!("{directory}/{stem}: {}", case.name);
                match programs.clone() {
                    Some(targets) => trials.check(name, move || check(&case, &targets, bad)),
                    None => trials.ignore(name),
                }
            }
        }
        assert!(count >= least, "{count} cases");
    }
    trials.run()
}
