//! Checks the sources of every crate: no large circle of files, no long file.
//!
//! Files that were longer when the limit was set are in a table with their sizes. The table only
//! shrinks: if a size is less than its entry, the test fails until the entry is lowered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use house::{Graph, Module, circles};

/// The most files that may use each other in a circle.
const CIRCLE: usize = 3;

/// The most lines of a file.
const LINES: usize = 450;

/// How much shorter than its entry a file may be before the entry must be lowered.
const SLACK: usize = 25;

/// The longer files, and their lines.
const LONG: &[(&str, usize)] = &[];

fn repository() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repository.canonicalize().expect("the repository is there")
}

/// The Rust files under a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The `src` of each crate, by the crate's name.
fn sources() -> BTreeMap<String, PathBuf> {
    let crates = std::fs::read_dir(repository().join("crates")).expect("the crates").flatten();
    let sources =
        crates.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    sources.filter(|(_, source)| source.is_dir()).collect()
}

/// The circles of a crate, each with the lines that show it, the largest first.
fn circles_of(source: &Path) -> Vec<(usize, String)> {
    let roots = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().filter(|path| path.exists());
    let mut found = Vec::new();
    for root in roots.chain(files(&source.join("bin"))) {
        let graph = Graph::read(&root);
        let edges = graph.edges();
        let show = |module: &Module| {
            let path = graph.path(module).expect("an edge joins files");
            path.strip_prefix(source).unwrap_or(path).display().to_string()
        };
        for circle in circles(&edges) {
            let lines = circle.iter().map(|module| {
                let to = edges[module].iter().filter(|other| circle.contains(*other)).map(show);
                format!("    {} uses {}\n", show(module), to.collect::<Vec<_>>().join(", "))
            });
            found.push((circle.len(), lines.collect()));
        }
    }
    found.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    found
}

#[test]
fn no_crate_has_a_large_circle_of_files() {
    let mut wrong = Vec::new();
    let sources = sources();
    for (name, source) in &sources {
        let found = circles_of(source);
        println!("{name}: {:?}", found.iter().map(|(size, _)| size).collect::<Vec<_>>());
        for (size, files) in found.into_iter().filter(|(size, _)| *size > CIRCLE) {
            wrong.push(format!(
                "{name}: {size} files use each other in a circle; the limit is {CIRCLE}. Move what several of \
                 them need into a file that uses none of them.\n{files}"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(sources.len() > 10, "only {} crates", sources.len());
}

#[test]
fn no_file_is_long() {
    let repository = repository();
    let mut wrong = Vec::new();
    let mut known: BTreeMap<&str, usize> = LONG.iter().copied().collect();
    for path in sources().values().flat_map(|source| files(source)) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let name = path.strip_prefix(&repository).expect("it lies in the repository").display().to_string();
        let (lines, recorded) = (text.lines().count(), known.remove(&*name));
        let allowed = recorded.unwrap_or(LINES);
        if lines > allowed {
            wrong.push(format!("{name} has {lines} lines, and {allowed} may be: make two files of it"));
        } else if recorded.is_some_and(|recorded| lines <= LINES || lines + SLACK < recorded) {
            let entry = if lines > LINES { format!("lower it to {lines}") } else { "delete it".into() };
            wrong.push(format!("{name} has {lines} lines; LONG says {allowed}: {entry}"));
        }
    }
    wrong.extend(known.keys().map(|name| format!("LONG has {name}, which is not there: delete it")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
