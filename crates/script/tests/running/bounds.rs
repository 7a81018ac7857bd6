//! All scripts of `tests/cases`: none makes the compiler panic, and what it refuses it explains.

use std::path::{Path, PathBuf};

use dprobes_script::{Parameters, check_with, compile};
use source::MemoryFiles;

/// The scripts of the case files, with the files that they name.
fn scripts() -> Vec<(String, Vec<(PathBuf, String)>, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_none_or(|extension| extension != "case") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let mut keyword = String::new();
        for line in text.lines() {
            let Some(indented) = line.strip_prefix("    ").or(line.is_empty().then_some("")) else {
                let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
                keyword = word.to_string();
                match word {
                    "NAME" => all.push((rest.to_string(), Vec::new(), String::new())),
                    "FILE" => {
                        let (_, files, _) = all.last_mut().expect("a case has begun");
                        files.push((PathBuf::from(rest), String::new()));
                    }
                    _ => {}
                }
                continue;
            };
            let Some((_, files, script)) = all.last_mut() else { continue };
            let text = match keyword.as_str() {
                "SCRIPT" => script,
                "FILE" => &mut files.last_mut().expect("a file has a name").1,
                _ => continue,
            };
            text.push_str(indented);
            text.push('\n');
        }
    }
    all
}

pub(crate) fn all_cases() -> Result<(), String> {
    let (mut compiled, mut refused, mut wrong) = (0, 0, Vec::new());
    for (name, files, script) in scripts() {
        let checked = check_with(&MemoryFiles(files.into_iter().collect()), Path::new("a.bt"), &script, &[]);
        if checked.has_errors() {
            continue;
        }
        let parameters = Parameters { allow_unsafe: true, child: Some(7), ..Parameters::default() };
        match compile(&checked, &parameters) {
            Ok(done) => {
                compiled += 1;
                let shown = dprobes_script::listing(&done);
                if shown.contains('?') && shown.lines().any(|line| line.trim_end().ends_with('?')) {
                    wrong.push(format!("{name}: an instruction is unknown\n{shown}"));
                }
            }
            Err(messages) => {
                refused += 1;
                // What the checker says once it knows the parameters has its own form.
                let explained = |message: &source::Diagnostic| {
                    !message.message.is_empty()
                        && !message.label.is_empty()
                        && (message.help.is_some() || message.message.contains("unrolled"))
                };
                if messages.is_empty() || !messages.iter().all(explained) {
                    let all: Vec<String> =
                        messages.iter().map(|message| message.render(&checked.sources, false)).collect();
                    wrong.push(format!("{name}:\n{}", all.join("\n")));
                }
                if std::env::var_os("SHOW_REFUSED").is_some() {
                    for message in messages {
                        println!("{name}: {} [{}]", message.message, message.label);
                    }
                }
            }
        }
    }
    if compiled < 100 || refused < 10 {
        wrong.push(format!("{compiled} are compiled and {refused} refused"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}
