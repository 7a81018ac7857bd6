//! The commands that the documents show, run as a reader would run them, and what they print
//! compared with what is shown. Each section is a test of its own:
//! `cargo test -p dprobes --test documents -- 'part of its heading'`.
//!
//! A block of a document is a session if a line of it begins with `$ `, the shell's prompt; what
//! follows up to the next prompt is the output. The sessions before a document's first `##` heading
//! are run at the beginning of each of its sections: there services are started, by commands
//! that end in ` &`. The module [`session`] says how commands run, [`shape`] what is compared.
//!
//! Commands outside of sessions are run, too: [`mentioned`] says how.
//!
//! `UPDATE_DOCUMENTS=1` writes what was printed into the documents wherever it differs from what is
//! shown. Read the difference, and shorten what is long by a line `...`.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod claims;
mod document;
mod inline;
mod mentioned;
mod session;
mod shape;
mod synopsis;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use document::{Document, Section};
use session::{Outcome, Session};
use testing::Trials;

/// The documents, and which they are in the names of tests.
const DOCUMENTS: [&str; 5] =
    ["README.md", "docs/cookbook.md", "docs/one-liners.md", "docs/tasks.md", "docs/tutorial.md"];

/// Runs the sessions of a section behind those of the document's beginning, and returns what
/// differs: the lines shown, and what was printed instead.
///
/// # Errors
/// What was wrong, command by command.
fn check(beginning: &Section, section: &Section) -> Result<(), (String, Vec<(usize, String)>)> {
    let mut session = Session::new();
    let (mut complaints, mut printed) = (String::new(), Vec::new());
    for command in beginning.commands.iter().chain(&section.commands) {
        let Outcome { succeeded, text } = session.run(&command.words);
        let mut complaint = shape::differences(&command.output, &text);
        if !succeeded {
            complaint.push("it failed".to_string());
        }
        if !complaint.is_empty() {
            let list = complaint.join("\n    ");
            complaints += &format!("line {}: $ {}\n    {list}\n{text}\n", command.line, command.words);
            printed.push((command.line, text));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err((complaints, printed)) }
}

fn main() -> ExitCode {
    let updates = std::env::var_os("UPDATE_DOCUMENTS").is_some();
    let mut trials = Trials::new();
    trials.add("shape: what is compared", shape::examples);
    trials.add("inline: what is a command", inline::examples);
    trials.add("synopsis: what a command stands for", synopsis::examples);
    mentioned::add(&mut trials, &DOCUMENTS);
    let differing = Arc::new(Mutex::new(Vec::new()));
    for name in DOCUMENTS {
        let document = Document::read(name);
        let beginning = Arc::new(document.beginning);
        for section in document.sections {
            let test = format!("{name}: {}", section.heading);
            let beginning = beginning.clone();
            let differing = differing.clone();
            trials.check(test.clone(), move || {
                if let Some((skip, needs)) = session::lacks(&test, &[&beginning, &section]) {
                    testing::skipped(&skip, &needs);
                    return Ok(());
                }
                check(&beginning, &section).or_else(|(complaints, printed)| {
                    if !updates {
                        return Err(complaints);
                    }
                    let mut all = differing.lock().expect("no test panics while it holds this");
                    all.extend(printed.into_iter().map(|(line, text)| (name, line, text)));
                    Ok(())
                })
            });
        }
    }
    let result = trials.run();
    let differing = differing.lock().expect("all tests are over");
    for name in DOCUMENTS {
        let changes: Vec<_> =
            differing.iter().filter(|(of, ..)| *of == name).map(|(_, line, text)| (*line, &**text)).collect();
        document::update(name, &changes);
    }
    result
}
