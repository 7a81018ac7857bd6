//! Scripts and what their handlers do: `tests/running/*.case`, each case a test of its own:
//! `cargo test -p dprobes-script --test running -- 'part of its name'`.
//!
//! A block begins with `NAME`. Indented lines, by four spaces, belong to the keyword above them.
//!
//! | keyword | what |
//! |---|---|
//! | `NAME text` | what the case shows |
//! | `WITH` | `$1 = text`, `--name = text`, `child = pid`, `starts`, `unsafe`, `site ...`: what the script gets |
//! | | `nodes = numbers`, `cgroup PATH = number`: what the system tells |
//! | `THREAD` | `rdi = 1`, `pid = 1`, `name = cat`, `at ADDRESS: bytes`: a word, a text in quotes |
//! | `SCRIPT` | the script |
//! | `HITS numbers` | the handlers that run, in this order; without it each one once |
//! | `EVENTS` | what they log |
//! | `MAPS` | what the maps have then |
//! | `SAYS` | why the script is not compiled |
//!
//! `UPDATE_CASES=1` rewrites `EVENTS`, `MAPS` and `SAYS`. Read the difference.
//!
//! Besides, all scripts of `tests/cases` compile, or are refused with a message of their own; and
//! random scripts do what an evaluator of their tree does. None raises an exception.

mod bounds;
mod case;
mod evaluate;
mod generate;
mod machine;
mod random;
mod reader;
mod run;
mod sites;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use testing::Trials;

fn main() -> ExitCode {
    let mut trials = Trials::new();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/running");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "case"))
        .collect();
    files.sort();
    assert!(files.len() >= 3, "the files are there");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let (head, cases) = case::parse(&text);
        if update {
            let seen: Vec<case::Case> = cases.iter().map(case::seen).collect();
            std::fs::write(&file, case::print(&head, &seen)).expect("the cases can be rewritten");
            continue;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for case in cases {
            trials.check(format!("{stem}: {}", case.name), move || case::check(&case));
        }
    }
    if !update {
        trials.check("every script of the other cases compiles or is refused", bounds::all_cases);
        trials.check("changed scripts run without an exception", bounds::changed_cases);
        trials.check("random scripts do what they say", random::scripts);
    }
    trials.run()
}
