//! All scripts of `tests/cases`: none makes the compiler panic, and what it refuses it explains.

use std::path::{Path, PathBuf};

use dprobes_script::{Compiled, Parameters, check_text, check_with, compile, listing};
use source::MemoryFiles;
use vm::{End, Exception};

use crate::generate::Random;
use crate::machine::Thread;
use crate::run::Run;

/// A name, the files that the script names, and the script.
type Named = (String, Vec<(PathBuf, String)>, String);

/// The scripts of the case files, with the files that they name.
fn scripts() -> Vec<Named> {
    let directories = ["tests/cases", "tests/running"];
    let mut all = Vec::new();
    let entries = directories.iter().flat_map(|directory| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        std::fs::read_dir(path).expect("the directory is there")
    });
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    for path in paths {
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
                if let Err(what) = runs(done) {
                    wrong.push(format!("{name}: {what}"));
                }
            }
            Err(messages) => {
                refused += 1;
                // What the checker says once it knows the parameters has its own form.
                let explained = |message: &source::Diagnostic| {
                    !message.message.is_empty()
                        && !message.label.is_empty()
                        && (message.help.is_some()
                            || ["unrolled", "divisor", "applied"]
                                .iter()
                                .any(|word| message.message.contains(word)))
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

/// Each handler keeps the laws of compiled code, and runs to its end without an exception.
fn runs(compiled: Compiled) -> Result<(), String> {
    crate::verify::handlers(&compiled)?;
    // The runtime refuses a script whose maps are too large.
    let Some(mut run) = Run::new(compiled) else { return Ok(()) };
    let mut thread =
        Thread { name: "prog".into(), pid: 1, tid: 2, stack: vec![1, 2, 3], ..Thread::default() };
    thread.memory.push((0x1000, (0..=255u8).collect()));
    for register in ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rsp", "rax"] {
        thread.registers.insert(register.into(), 0x1008);
    }
    let writes = vm::may(&run.compiled.code, vm::Word::W8, vm::Effects::WRITES_MEMORY);
    for handler in 0..run.compiled.handlers.len() {
        // The second time, what the first one left in its memory must not matter.
        for _ in 0..2 {
            let (outcome, _) = run.hit(handler, 0, &mut thread);
            match outcome.end {
                // `core()` ends its action.
                End::Exit | End::Abort | End::ExitTo(3) => {}
                End::Exception(exception) if exception.x_field() == Exception::JMP_MAX => {}
                End::Exception(exception) if exception.x_field() == Exception::LOG_OVERFLOW => {}
                // Memory that it sets, and that cannot be written.
                End::Exception(exception) if writes && exception.x_field() == Exception::INVALID_ADDR => {}
                end => return Err(format!("it ended with {end:?}\n{}", listing(&run.compiled))),
            }
        }
    }
    Ok(())
}

/// The pieces of a script: words, numbers, strings and signs.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            _ if first.is_alphanumeric() || "$@_".contains(first) => rest[1..]
                .find(|each: char| !each.is_alphanumeric() && each != '_')
                .map_or(rest.len(), |end| end + 1),
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            _ => first.len_utf8(),
        };
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces
}

/// Scripts of which pieces are exchanged for pieces of others.
pub(crate) fn changed_cases() -> Result<(), String> {
    let scripts: Vec<Named> = scripts()
        .into_iter()
        .filter(|(_, files, script)| files.is_empty() && script.len() < 2000 && script.is_ascii())
        .map(|(name, files, script)| (name, files, as_user_probes(&script)))
        .collect();
    let good: Vec<&str> = scripts
        .iter()
        .map(|(_, _, script)| script.as_str())
        .filter(|script| !script.is_empty() && !check_text("a.bt", script).has_errors())
        .collect();
    let all: Vec<&str> =
        good.iter().flat_map(|script| pieces(script)).filter(|piece| *piece != "\n").collect();
    let rounds = if std::env::var_os("DPROBES_THOROUGH").is_some() { 200_000 } else { 2_000 };
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..rounds, |seed: u64| seed..seed + 1);
    let mut compiled = 0;
    for seed in seeds {
        let mut random = Random::new(seed);
        let script = good[random.below(good.len() as u64) as usize];
        let mut parts = pieces(script);
        for _ in 0..1 + random.below(3) {
            let at = random.below(parts.len() as u64) as usize;
            // A piece of the same kind, more often than not.
            let kind = |piece: &str| match piece.as_bytes().first() {
                Some(byte) if byte.is_ascii_alphabetic() => b'a',
                Some(byte) if byte.is_ascii_digit() => b'0',
                first => first.copied().filter(|byte| b"$@\"".contains(byte)).unwrap_or(0),
            };
            for _ in 0..20 {
                let new = all[random.below(all.len() as u64) as usize];
                if kind(new) == kind(parts[at]) || random.below(20) == 0 {
                    parts[at] = new;
                    break;
                }
            }
        }
        let text = parts.concat();
        let checked = check_text("a.bt", &text);
        if checked.has_errors() {
            continue;
        }
        let parameters = Parameters { allow_unsafe: true, child: Some(7), ..Parameters::default() };
        if let Ok(done) = compile(&checked, &parameters) {
            compiled += 1;
            runs(done).map_err(|what| format!("seed {seed}: {what}\n{text}"))?;
        }
    }
    if first.is_none() && compiled < rounds / 20 {
        return Err(format!("only {compiled} of {rounds} scripts were compiled"));
    }
    Ok(())
}

/// Probes of the kernel as probes of a program: their actions are compiled too.
fn as_user_probes(script: &str) -> String {
    script.replace("kprobe:", "uprobe:x:").replace("kretprobe:", "uretprobe:x:")
}
