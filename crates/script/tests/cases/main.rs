//! Scripts and what the checker says of them: `tests/cases/*.case`, each case a test of its own:
//! `cargo test -p dprobes-script --test cases -- 'part of its name'`.
//!
//! A block begins with `NAME`. Indented lines, by four spaces, belong to the keyword above them.
//!
//! | keyword | what |
//! |---|---|
//! | `NAME text` | what the case shows |
//! | `FILE name` | a file that the script can name |
//! | `SCRIPT` | the script |
//! | `SAYS` | all messages; empty: there are none |
//! | `TYPED` | the script with its types; only where it is of interest |
//!
//! Beyond that, the typed form of each good script is checked again: it must give itself.
//! `UPDATE_CASES=1` rewrites `SAYS` and `TYPED`. Read the difference.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dprobes_script::{Checked, TABLE, check_with, library};
use source::MemoryFiles;
use testing::Trials;

/// One block.
#[derive(Clone, Debug, Default)]
struct Case {
    name: String,
    /// Names and texts.
    files: Vec<(String, String)>,
    script: String,
    says: String,
    typed: Option<String>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn parse(text: &str) -> (String, Vec<Case>) {
    let mut head = String::new();
    let mut cases: Vec<Case> = Vec::new();
    let mut keyword = String::new();
    for line in text.lines() {
        if cases.is_empty() && line.starts_with('#') {
            writeln!(head, "{line}").expect("a string takes it");
            continue;
        }
        let indented = line.strip_prefix("    ").or(line.is_empty().then_some(""));
        let Some(indented) = indented else {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            keyword = word.to_string();
            if word == "NAME" {
                cases.push(Case { name: rest.to_string(), ..Case::default() });
            }
            let case = cases.last_mut().expect("a case begins with NAME");
            match word {
                "NAME" | "SCRIPT" | "SAYS" => {}
                "FILE" => case.files.push((rest.to_string(), String::new())),
                "TYPED" => case.typed = Some(String::new()),
                _ => panic!("unknown keyword {word:?}"),
            }
            continue;
        };
        let Some(case) = cases.last_mut() else { continue };
        let text = match keyword.as_str() {
            "FILE" => &mut case.files.last_mut().expect("a file has a name").1,
            "SCRIPT" => &mut case.script,
            "SAYS" => &mut case.says,
            "TYPED" => case.typed.as_mut().expect("it was begun"),
            _ => continue,
        };
        writeln!(text, "{indented}").expect("a string takes it");
    }
    // Blank lines between blocks are not text.
    let trim = |text: &mut String| {
        text.truncate(text.trim_end_matches('\n').len());
        if !text.is_empty() {
            text.push('\n');
        }
    };
    for case in &mut cases {
        case.files.iter_mut().for_each(|(_, text)| trim(text));
        trim(&mut case.script);
        trim(&mut case.says);
        case.typed.as_mut().map(trim);
    }
    (head, cases)
}

fn print(head: &str, cases: &[Case]) -> String {
    let mut out = head.to_string();
    let part = |out: &mut String, keyword: &str, text: &str| {
        writeln!(out, "{keyword}").expect("a string takes it");
        for line in text.lines() {
            writeln!(out, "{}", format!("    {line}").trim_end()).expect("a string takes it");
        }
    };
    for case in cases {
        part(&mut out, &format!("\nNAME {}", case.name), "");
        for (name, text) in &case.files {
            part(&mut out, &format!("FILE {name}"), text);
        }
        part(&mut out, "SCRIPT", &case.script);
        part(&mut out, "SAYS", &case.says);
        if let Some(typed) = &case.typed {
            part(&mut out, "TYPED", typed);
        }
    }
    out.trim_start_matches('\n').to_string()
}

fn play(case: &Case) -> Checked {
    let files = case.files.iter().map(|(name, text)| (PathBuf::from(name), text.clone())).collect();
    check_with(&MemoryFiles(files), Path::new("a.bt"), &case.script, &[])
}

/// The case with what is said now.
fn seen(case: &Case) -> Case {
    let checked = play(case);
    let says = checked.render(false);
    let says: String = says.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n");
    let typed = case.typed.as_ref().map(|_| checked.typed());
    Case { says, typed, ..case.clone() }
}

fn check(case: &Case) -> Result<(), String> {
    let now = seen(case);
    let expected = print("", std::slice::from_ref(case));
    let found = print("", std::slice::from_ref(&now));
    if expected != found {
        return Err(format!("expected:\n{expected}\nfound:\n{found}"));
    }
    let checked = play(case);
    if !checked.has_errors() {
        let typed = checked.typed();
        let again = check_with(&MemoryFiles::default(), Path::new("typed.bt"), &typed, &[]);
        if again.has_errors() {
            return Err(format!("the typed form is refused:\n{typed}\n{}", again.render(false)));
        }
        if again.typed() != typed {
            return Err(format!("the typed form gives another:\n{typed}\n{}", again.typed()));
        }
    }
    Ok(())
}

/// Every function and provider has a case of its name.
fn complete(names: &BTreeSet<String>) -> Result<(), String> {
    let functions = library::all().map(|entry| format!("function {}", entry.name));
    let providers = TABLE.iter().map(|row| format!("provider {}", row.names[0]));
    let missing: Vec<String> = functions.chain(providers).filter(|name| !names.contains(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("no case is called {}", missing.join(", "))) }
}

fn main() -> ExitCode {
    let mut trials = Trials::new();
    let mut names = BTreeSet::new();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory())
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "case"))
        .collect();
    files.sort();
    assert!(files.len() >= 4, "the files are there");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let (head, cases) = parse(&text);
        if update {
            let seen: Vec<Case> = cases.iter().map(seen).collect();
            std::fs::write(&file, print(&head, &seen)).expect("the cases can be rewritten");
            continue;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for case in cases {
            assert!(names.insert(case.name.clone()), "two cases are called {}", case.name);
            trials.check(format!("{stem}: {}", case.name), move || check(&case));
        }
    }
    if !update {
        trials.check("each function and each provider has a case", move || complete(&names));
    }
    trials.run()
}
