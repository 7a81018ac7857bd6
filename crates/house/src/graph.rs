//! The graph of which files of a crate use which.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::source::Source;

/// A module of a crate, as the path behind `crate`.
pub type Module = Vec<String>;

/// A crate's files and their edges.
#[derive(Debug, Default)]
pub struct Graph {
    files: BTreeMap<Module, PathBuf>,
    sources: BTreeMap<Module, Source>,
    /// The names that each module imports or re-exports, and the paths they stand for.
    names: HashMap<Module, HashMap<String, Vec<Module>>>,
    /// Every module, including those inside files.
    modules: BTreeSet<Module>,
}

impl Graph {
    /// Reads a crate from its root: a `lib.rs`, a `main.rs` or a file in `bin`.
    ///
    /// # Panics
    /// If a module has no file, or a file cannot be read.
    pub fn read(root: &Path) -> Graph {
        let mut graph = Graph::default();
        let directory = root.parent().expect("a file lies in a directory");
        graph.file(Module::new(), root, directory);
        graph
    }

    /// Reads a file and the files of its modules, which are in `directory`.
    fn file(&mut self, module: Module, path: &Path, directory: &Path) {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let source = Source::read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (scope, name) in &source.files {
            let place = scope.iter().fold(directory.to_path_buf(), |place, inner| place.join(inner));
            let child = [&module[..], scope, std::slice::from_ref(name)].concat();
            let inner = place.join(name);
            let candidates = [place.join(format!("{name}.rs")), inner.join("mod.rs")];
            let found = candidates.iter().find(|path| path.exists());
            let found = found.unwrap_or_else(|| panic!("{}: no file is the module {name}", path.display()));
            self.file(child, found, &inner);
        }
        self.modules.insert(module.clone());
        for inside in &source.inside {
            self.modules.insert([&module[..], inside].concat());
        }
        for it in &source.uses {
            let scope = [&module[..], &it.scope].concat();
            let names = self.names.entry(scope).or_default();
            names.entry(it.name.clone()).or_default().push(it.path.clone());
        }
        self.files.insert(module.clone(), path.to_path_buf());
        self.sources.insert(module, source);
    }

    /// The file of a module.
    pub fn path(&self, module: &Module) -> Option<&Path> {
        self.files.get(module).map(PathBuf::as_path)
    }

    /// The file that contains a module, by its module.
    fn home(&self, module: &[String]) -> Module {
        let mut module = module.to_vec();
        while !self.files.contains_key(&module) {
            module.pop();
        }
        module
    }

    /// Each file, by its module, with the files that it uses.
    pub fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let edges = self.sources.iter().map(|(module, source)| {
            let uses = source.uses.iter().map(|it| (&it.scope, &it.path, true));
            let paths = source.paths.iter().map(|(scope, path)| (scope, path, false));
            let used = uses.chain(paths).flat_map(|(scope, path, brought)| {
                let scope = [&module[..], scope].concat();
                // Imported names are counted at their `use`.
                let known = self.names.get(&scope).is_some_and(|names| names.contains_key(&path[0]));
                if known && !brought { BTreeSet::new() } else { self.resolve(&scope, path, 0) }
            });
            (module.clone(), used.filter(|other| other != module).collect())
        });
        edges.collect()
    }

    /// The files that contain inherent `impl` blocks of each type. A type is known by the file that
    /// defines it, and its name.
    pub fn impls(&self) -> BTreeMap<(Module, String), BTreeSet<Module>> {
        let mut impls: BTreeMap<_, BTreeSet<Module>> = BTreeMap::new();
        for (module, source) in &self.sources {
            for (scope, path) in &source.impls {
                let scope = [&module[..], scope].concat();
                // The path behind an imported name.
                let brought = self.names.get(&scope).and_then(|names| names.get(&path[0])?.first());
                let whole = brought.map(|first| [&first[..], &path[1..]].concat());
                let path = whole.as_ref().unwrap_or(path);
                let name = path.last().cloned().unwrap_or_default();
                let found = self.resolve(&scope, path, usize::from(whole.is_some())).into_iter().next();
                let defined = found.unwrap_or_else(|| self.home(&scope));
                impls.entry((defined, name)).or_default().insert(module.clone());
            }
        }
        impls
    }

    /// The files that may define what a path names; none if it is not in this crate.
    fn resolve(&self, scope: &[String], path: &[String], depth: usize) -> BTreeSet<Module> {
        /// The most nested re-exports to follow.
        const DEPTH: usize = 8;
        let mut rest = path;
        let mut at = match rest.first().map(String::as_str) {
            Some("crate") => {
                rest = &rest[1..];
                Module::new()
            }
            Some("self" | "super") => {
                let mut at = scope.to_vec();
                while let Some((first, behind)) = rest.split_first()
                    && matches!(first.as_str(), "self" | "super")
                {
                    if first == "super" {
                        at.pop();
                    }
                    rest = behind;
                }
                at
            }
            // A module declared in the scope, or a name imported from one.
            Some(first) => {
                let child = [scope, &[first.to_string()]].concat();
                let brought = self.names.get(scope).is_some_and(|names| names.contains_key(first));
                if depth > DEPTH || !(self.modules.contains(&child) || (brought && depth > 0)) {
                    return BTreeSet::new();
                }
                scope.to_vec()
            }
            None => return BTreeSet::new(),
        };
        while let Some((first, behind)) = rest.split_first() {
            let child = [&at[..], std::slice::from_ref(first)].concat();
            if self.modules.contains(&child) {
                (at, rest) = (child, behind);
                continue;
            }
            if let Some(paths) = self.names.get(&at).and_then(|names| names.get(first))
                && depth <= DEPTH
            {
                let whole = paths.iter().map(|path| [&path[..], behind].concat());
                return whole.flat_map(|path| self.resolve(&at, &path, depth + 1)).collect();
            }
            break;
        }
        BTreeSet::from([self.home(&at)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The graph of a crate with these files.
    fn graph(test: &str, files: &[(&str, &str)]) -> Graph {
        let directory = std::env::temp_dir().join(format!("dprobes-house-{}-{test}", std::process::id()));
        for (name, text) in files {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().expect("in a directory")).expect("room");
            std::fs::write(path, text).expect("room");
        }
        let graph = Graph::read(&directory.join(files[0].0));
        let _ = std::fs::remove_dir_all(&directory);
        graph
    }

    fn name(module: &Module) -> String {
        if module.is_empty() { "crate".into() } else { module.join("::") }
    }

    fn names(modules: &BTreeSet<Module>) -> String {
        modules.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    /// The edges of a crate with these files, as `FROM > TO TO`; the root is `crate`.
    fn edges(test: &str, files: &[(&str, &str)]) -> Vec<String> {
        let edges = graph(test, files).edges();
        edges.iter().map(|(from, to)| format!("{} > {}", name(from), names(to))).collect()
    }

    #[test]
    fn paths_lead_to_the_file_in_which_they_end() {
        let files = [
            ("lib.rs", "mod a; mod b; fn f() { a::g() }"),
            ("a.rs", "mod c; use crate::b::Item; fn g() -> c::C {}"),
            ("a/c.rs", "use super::super::b; use super::g; struct C;"),
            ("b.rs", "use std::fmt::Write; pub struct Item;"),
        ];
        assert_eq!(edges("paths", &files), ["crate > a", "a > a::c b", "a::c > a b", "b > "]);
    }

    #[test]
    fn re_exports_are_seen_through() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::{Item, other as Other}; pub struct Own;"),
            ("a/mod.rs", "mod deep; pub use deep::{Item, other};"),
            ("a/deep.rs", "pub struct Item; pub mod other {}"),
            ("b.rs", "use crate::{Item, Other}; fn f(own: crate::Own, a: super::Item) {}"),
        ];
        assert_eq!(
            edges("exports", &files),
            ["crate > a::deep", "a > a::deep", "a::deep > ", "b > crate a::deep"]
        );
    }

    #[test]
    fn modules_inside_a_file_are_that_file() {
        let files = [
            ("main.rs", "mod a; mod b;"),
            ("a.rs", "pub mod inner { pub fn f() { super::super::b::g() } } fn own() { inner::f() }"),
            ("b.rs", "use crate::a::inner; pub fn g() { inner::f() }"),
        ];
        assert_eq!(edges("inside", &files), ["crate > ", "a > b", "b > a"]);
    }

    #[test]
    fn what_other_crates_export_is_no_edge() {
        let files = [
            ("lib.rs", "mod a; use libc::open; pub use vm::Op;"),
            ("a.rs", "use crate::Op; use crate::open; fn f() { Op::Nop; libc::read(); Self::x() }"),
        ];
        assert_eq!(edges("others", &files), ["crate > ", "a > "]);
    }

    #[test]
    fn the_impls_of_a_type_are_found_in_all_files() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::Item; struct Own; impl Own {}"),
            ("a.rs", "mod c; pub struct Item; impl Item {} impl Clone for Item {}"),
            ("a/c.rs", "use super::Item; impl Item {} impl crate::Own {}"),
            ("b.rs", "use crate::Item as Other; struct Item; impl Item {} impl Other {}"),
        ];
        let impls = graph("impls", &files).impls();
        let line = |((defined, type_name), files): (&(Module, String), &BTreeSet<Module>)| {
            format!("{} {type_name}: {}", name(defined), names(files))
        };
        let lines: Vec<String> = impls.iter().map(line).collect();
        assert_eq!(lines, ["crate Own: crate a::c", "a Item: a a::c b", "b Item: b"]);
    }
}
