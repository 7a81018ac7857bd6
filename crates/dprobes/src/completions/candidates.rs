//! What a word of a command line may become: the processes that may be probed, the modules of a
//! process or of the libraries installed, and the functions in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Command;
use image::Image;
use process::ImageCache;

use crate::arguments::ids_of;
use crate::scripts::program_named;

/// The most functions that are listed.
const MOST: usize = 10_000;

/// The commands whose `-p` is about running processes, not about those of a trace.
const OF_PROCESSES: [&str; 13] = [
    "run", "attach", "top", "count", "latency", "stacks", "coverage", "tools", "trace", "watch", "insert",
    "list", "doctor",
];

/// What the last word may become, sorted; `None` if other sources know. `words` are those behind
/// `dprobes`, up to the cursor.
pub(super) fn candidates(words: &[OsString], whole: &Command) -> Option<Vec<String>> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let (&name, rest) = words.split_first()?;
    let (&last, before) = rest.split_last()?;
    let command =
        whole.find_subcommand(name).filter(|_| OF_PROCESSES.contains(&name) && !before.contains(&"--"))?;
    let previous = before.last().copied().unwrap_or_default();
    let takes_value = command.get_arguments().any(|argument| {
        let long = argument.get_long().is_some_and(|long| previous == format!("--{long}"));
        let short = argument.get_short().is_some_and(|short| previous == format!("-{short}"));
        (long || short) && argument.get_action().takes_values()
    });
    let found = match previous {
        "-p" | "--pid" => processes(last),
        "--at" => points(last, &modules(before)),
        _ if takes_value || last.starts_with('-') => return None,
        _ if matches!(name, "count" | "latency" | "stacks") => points(last, &modules(before)),
        // With a process, a list is of its functions.
        _ if name == "list" && !ids(before).is_empty() => points(last, &modules(before)),
        _ => return None,
    };
    Some(found.into_iter().collect())
}

/// The processes that a line names.
fn ids(words: &[&str]) -> Vec<i32> {
    let values = words.windows(2).filter(|pair| matches!(pair[0], "-p" | "--pid")).map(|pair| pair[1]);
    values.flat_map(|value| value.split(',')).flat_map(ids_of).collect()
}

/// Names of running programs, or ids if a digit was written. Several are separated by commas.
fn processes(word: &str) -> BTreeSet<String> {
    let (others, start) = word.rsplit_once(',').map_or(("", word), |(others, start)| (others, start));
    let others = if others.is_empty() { String::new() } else { format!("{others},") };
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = numbers.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own);
    // Only the programs of processes that may be looked at can be read.
    let all = numbers.filter_map(|id| Some((std::fs::read_link(format!("/proc/{id}/exe")).ok()?, id)));
    let wants_ids = start.starts_with(|first: char| first.is_ascii_digit());
    let words = all.flat_map(|(program, id)| {
        if wants_ids {
            return vec![id];
        }
        // The file may be linked to by several names, of which the process's own is one.
        let thread = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let file = file.strip_suffix(" (deleted)").unwrap_or(&file);
        [file, thread.trim_end()].into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    });
    words
        .filter(|word| word.starts_with(start) && is_plain(word))
        .map(|word| others.clone() + &word)
        .collect()
}

/// A module as a probepoint names it.
struct Named {
    name: String,
    path: PathBuf,
}

/// The modules that probepoints of a line may be in: those of its processes, else usual ones.
fn modules(words: &[&str]) -> Vec<Named> {
    let (mut found, mut cache): (Vec<Named>, _) = (Vec::new(), ImageCache::new());
    let ids = ids(words);
    for &pid in &ids {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        for module in process::modules(pid, &mut cache).unwrap_or_default() {
            let Some(file) = module.path.file_name().map(|name| name.to_string_lossy()) else { continue };
            let name = match module.is_named(crate::points::PROGRAM, &root) {
                true => crate::points::PROGRAM,
                false => file.split(".so").next().unwrap_or(&file),
            };
            // What is not a file, as [vdso], is left out.
            let path = root.join(module.path.strip_prefix("/").unwrap_or(&module.path));
            if path.is_file() && !found.iter().any(|other| other.name == name) {
                found.push(Named { name: name.to_owned(), path });
            }
        }
    }
    if ids.is_empty() {
        found.push(Named { name: crate::points::PROGRAM.to_owned(), path: PathBuf::new() });
        let libc = process::libraries_named("libc").into_iter().next();
        found.extend(libc.map(|path| Named { name: "libc".to_owned(), path }));
    }
    found
}

/// Modules (`libc:`), functions of a module (`libc:malloc`), or points of a function.
fn points(word: &str, modules: &[Named]) -> BTreeSet<String> {
    let Some((module, function)) = word.split_once(':') else {
        let names = modules.iter().map(|module| format!("{}:", module.name));
        return names.filter(|name| name.starts_with(word) && is_plain(name)).collect();
    };
    if let Some((function, point)) = function.rsplit_once(':').filter(|(before, _)| !before.ends_with(':')) {
        let each = ["entry", "return"].into_iter().filter(|each| each.starts_with(point));
        return each.map(|each| format!("{module}:{function}:{each}")).collect();
    }
    let known = modules.iter().find(|known| known.name == module).map(|known| known.path.clone());
    let named = || process::libraries_named(module).into_iter().next();
    let program = || program_named(module.as_ref());
    let path = known.or_else(named).or_else(program).unwrap_or_else(|| Path::new(module).to_owned());
    let Ok(image) = Image::open(&path) else { return BTreeSet::new() };
    let functions = image.select_matching(&|name| name.starts_with(function) && is_plain(name));
    let names = functions.into_iter().map(|selected| selected.name).filter(|name| is_plain(name));
    names
        .filter(|name| name.starts_with(function))
        .take(MOST)
        .map(|name| format!("{module}:{name}"))
        .collect()
}

/// Whether a shell takes a word as it is.
fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+:@/,".contains(&byte))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    fn of(line: &str) -> Option<Vec<String>> {
        let mut whole = Arguments::command();
        whole.build();
        candidates(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), &whole)
    }

    #[test]
    fn modules_functions_and_points_follow_each_other() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let id = child.id();
        // It is this program until it has executed.
        while std::fs::read(format!("/proc/{id}/comm")).is_ok_and(|name| name != b"sleep\n") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let has = |line: String, word: &str| {
            let found = of(&line).unwrap_or_default();
            assert!(found.iter().any(|found| found == word), "{line}: {found:?}");
        };
        has(format!("attach -p {id} --at a"), "a.out:");
        has("attach --at li".to_owned(), "libc:");
        has(format!("count -p {id} li"), "libc:");
        has(format!("count -p {id} libc:mallo"), "libc:malloc");
        has(format!("list -p {id} libc:callo"), "libc:calloc");
        has("run --at libc:mallo".to_owned(), "libc:malloc");
        has(format!("attach -p {id} --at libc:malloc:"), "libc:malloc:return");
        has("attach -p slee".to_owned(), "sleep");
        has("top --pid 1,slee".to_owned(), "1,sleep");
        has(format!("doctor -p {id}"), &id.to_string());
        child.kill().expect("it is this process's");
        child.wait().expect("it is this process's");
    }

    #[test]
    fn what_the_parser_knows_is_left_to_it() {
        for line in [
            "",
            "attach",
            "attach ",
            "attach --a",
            "report -p 1",
            "run --at libc:f -- l",
            "count -o x",
            "help ",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
