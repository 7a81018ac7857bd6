//! Checks the sources of every crate: no large circle of files, no long file, no type whose methods
//! are in many files, no struct of many fields that does not say why, no long line in a comment.
//!
//! Files that were longer when the limit was set are in a table with their sizes. The table only
//! shrinks: if a size is less than its entry, the test fails until the entry is lowered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use house::{Graph, Module, circles};

/// The most files that may use each other in a circle.
const CIRCLE: usize = 3;

/// The most lines of a file, tests included.
const LINES: usize = 449;

/// The most files that may contain methods of one type, trait implementations apart. A type with
/// more is an owner of too much: what uses a few of its fields can have a type of its own.
const SPREAD: usize = 6;

/// The most fields of a struct whose documentation does not say why it has more.
const FIELDS: usize = 15;

/// The most columns of a line of prose in a comment.
const COLUMNS: usize = 100;

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

/// The graphs of a crate's files, one for each root.
fn graphs(source: &Path) -> Vec<Graph> {
    let roots = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().filter(|path| path.exists());
    roots.chain(files(&source.join("bin"))).map(|root| Graph::read(&root)).collect()
}

/// The circles of a crate, each with the lines that show it, the largest first.
fn circles_of(source: &Path) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for graph in graphs(source) {
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
    let all = ["crates", "fuzz"].map(|directory| files(&repository.join(directory))).concat();
    let mut wrong = Vec::new();
    for path in &all {
        let lines = std::fs::read_to_string(path).expect("a source file").lines().count();
        if lines > LINES {
            let name = path.strip_prefix(&repository).expect("it lies in the repository").display();
            wrong.push(format!("{name} has {lines} lines, and {LINES} may be: make two files of it"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(all.len() > 1000, "only {} files", all.len());
}

/// The types of a crate with methods in more than [`SPREAD`] files: the name, how many files, and
/// which.
fn wide_types(source: &Path) -> Vec<(String, usize, String)> {
    let mut wide = Vec::new();
    for graph in graphs(source) {
        let show = |module: &Module| {
            let path = graph.path(module).expect("an impl is in a file");
            path.strip_prefix(source).unwrap_or(path).display().to_string()
        };
        for ((_, name), files) in graph.impls().into_iter().filter(|(_, files)| files.len() > SPREAD) {
            wide.push((name, files.len(), files.iter().map(show).collect::<Vec<_>>().join(" ")));
        }
    }
    wide
}

#[test]
fn no_type_has_methods_in_many_files() {
    let mut wrong = Vec::new();
    for (of, source) in sources() {
        for (name, count, files) in wide_types(&source) {
            wrong.push(format!(
                "{of}: {name} has methods in {count} files, and {SPREAD} may be: give what uses few of its \
                 fields a type of its own\n    {files}"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The structs in a source text that are not inside of anything: the name, how many fields it has,
/// and its documentation.
fn structs(text: &str) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let mut doc = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(more) = line.strip_prefix("///") {
            doc.push_str(more);
        } else if let Some(name) =
            invisible(line).strip_prefix("struct ").filter(|_| !line.ends_with([';', '}']))
        {
            let name =
                name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name).to_owned();
            let inside = lines.by_ref().take_while(|line| *line != "}" && *line != ");");
            let is_field = |line: &&str| {
                let field = line.strip_prefix("    ").filter(|field| !field.starts_with(' '));
                let name = field.and_then(|field| invisible(field).split_once(':')).map(|(name, _)| name);
                name.is_some_and(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
            };
            // A bound of a `where` looks like a field.
            let (mut count, mut bounds) = (0, false);
            for line in inside {
                bounds = line == "where" || bounds && line != "{";
                count += usize::from(!bounds && is_field(&line));
            }
            found.push((name, count, std::mem::take(&mut doc)));
        } else if !line.starts_with("#[") && !line.starts_with("    ") && !line.starts_with(")]") {
            doc.clear();
        }
    }
    found
}

/// A line without `pub`, `pub(crate)`, `pub(super)` or `pub(in path)` at its beginning.
fn invisible(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = match rest.strip_prefix('(') {
        Some(limit) => limit.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(line)
}

#[test]
fn structs_are_found_however_visible_they_are() {
    let text = "/// Why.\npub(in crate::a) struct A<T>\nwhere\n    T: Copy,\n{\n    pub(super) a: T,\n    b: u8,\n}\n\n\
                struct B(u8);\n\npub(super) struct C {\n    pub c: u8,\n}\n";
    let expected = [("A", 2, " Why."), ("C", 1, "")];
    assert_eq!(structs(text), expected.map(|(name, count, doc)| (name.to_owned(), count, doc.to_owned())));
}

#[test]
fn a_struct_of_many_fields_says_why() {
    let mut wrong = Vec::new();
    let (mut all, mut largest) = (0, 0);
    for path in sources().values().flat_map(|source| files(source)) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        for (name, count, doc) in structs(&text) {
            (all, largest) = (all + 1, largest.max(count));
            if count > FIELDS && !doc.contains("fields") {
                let path = path.strip_prefix(repository()).unwrap_or(&path).display();
                wrong.push(format!(
                    "{path}: {name} has {count} fields: group them, or say in its documentation why it has more \
                     than {FIELDS} fields"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(all > 300 && largest > FIELDS, "{all} structs, the largest of {largest} fields");
}

/// The prose in a comment, whatever mark it begins with: not a row of a table, not a drawing, not
/// code. A list's lines are indented by two or three columns, code by four.
fn prose(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text).strip_prefix(' ')?;
    let indent = text.len() - text.trim_start_matches(' ').len();
    let text = &text[indent..];
    let is_prose = indent < 4 && !text.starts_with('|') && text.contains(char::is_alphabetic);
    is_prose.then_some(text)
}

#[test]
fn prose_is_found_whatever_mark_it_begins_with() {
    for text in ["A word.", "`code` is", "- an item", "* an item", "[`Link`]s", "(so)", "\"so\"", "8 bytes"] {
        for comment in ["//", "///", "    //!"] {
            assert_eq!(prose(&format!("{comment} {text}")), Some(text), "{comment}");
        }
    }
    assert_eq!(prose("///   of an item"), Some("of an item"));
    for line in
        ["/// | a | row |", "//!     mov %rax, %rcx", "// ----", "///", "let a = b; // so", "/// 0 | 1"]
    {
        assert_eq!(prose(line), None, "{line}");
    }
}

#[test]
fn prose_in_comments_is_wrapped() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for path in sources().values().flat_map(|source| files(source)) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let path = path.strip_prefix(repository()).unwrap_or(&path).display();
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("//") && line.contains("```");
            let Some(_) = prose(line).filter(|_| !is_code) else { continue };
            all += 1;
            if line.chars().count() > COLUMNS {
                wrong.push(format!("{path}:{}: a comment has more than {COLUMNS} columns", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(all > 10_000, "{all} lines of prose");
}

/// The lines of a source, comments and tests apart, that name a file of the documentation. (Comments
/// that `--help` shows are tested with the command.)
fn file_names(text: &str) -> Vec<String> {
    let shown = text.split("#[cfg(test)]").next().unwrap_or(text).lines();
    let is_text = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("//") && !line.contains("include_str!") && !line.contains("strip_suffix(")
    };
    let names_a_file = |line: &&str| {
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c)));
        words.into_iter().any(|word| word.starts_with("docs/") || word.trim_end_matches('.').ends_with(".md"))
    };
    shown.filter(is_text).filter(names_a_file).map(str::to_owned).collect()
}

#[test]
fn no_message_points_to_a_file_that_an_install_lacks() {
    // Those are not installed.
    let others = ["bench", "house", "testing"];
    let mut found = Vec::new();
    for (_, source) in sources().iter().filter(|(name, _)| !others.contains(&name.as_str())) {
        for path in files(source) {
            // It is where the pages come from.
            let is_page = path.ends_with("help/pages.rs");
            let is_test = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"));
            if !is_page && !is_test {
                let text = std::fs::read_to_string(&path).expect("a file of the sources");
                found.extend(file_names(&text).iter().map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(found.is_empty(), "`dprobes help TOPIC` has the pages:\n{}", found.join("\n"));
    assert_eq!(file_names("let x = \"see docs/x.md\";\n// docs/y.md\n  \"in stats.md.\"").len(), 2);
}
