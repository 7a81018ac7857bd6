//! The pages and the examples in the program: `docs/` and `examples/` of its sources.

/// A page of the documentation.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) name: &'static str,
    /// What it is about, in a few words.
    pub(super) summary: &'static str,
    /// As Markdown.
    pub(super) text: &'static str,
}

macro_rules! pages {
    ($($name:literal: $summary:literal,)*) => {
        &[$(Page {
            name: $name,
            summary: $summary,
            text: include_str!(concat!("../../../../docs/", $name, ".md")),
        }),*]
    };
}

/// All pages, those first that most people need.
pub(super) const PAGES: &[Page] = pages! {
    "install": "the ways to install dprobes, and what is where",
    "tutorial": "three services with a fault, and how it is found",
    "cookbook": "a command for each of the usual questions, with its output",
    "tasks": "what people do with a tracer, one command each",
    "one-liners": "twelve lines for `dprobes trace`, from listing probes to structs",
    "faq": "questions and answers; what to do if something does not work",
    "how-it-works": "what happens to a probed program, in pictures",
    "comparison": "dprobes beside bpftrace, perf, Frida, uftrace, LTTng and gdb",
    "scripts": "the language of `dprobes trace`",
    "scripts-differences": "what scripts do otherwise than in bpftrace, and why",
    "language": "the language of probe programs (RPN)",
    "static-probes": "probes that programs have of their own (USDT)",
    "session": "probes that stay: insert, query, getvars, remove; as a service",
    "records": "what is logged, and traces on disk",
    "targets": "where records go: files, the kernel's log, the journal, CTF and others",
    "templates": "records as text",
    "format-library": "records as text in programs of your own, in C",
    "convert": "traces for other tools",
    "stats": "counts as JSON",
    "fleet": "many machines: metrics, spans, and tables",
    "watch": "who writes to a variable",
    "coverage": "which source lines and branches of a program are reached",
    "kernel-engine": "probes in all processes and in the kernel",
    "jump-engine": "how most probes fire: jumps inside the process",
    "trap-engine": "how the others fire: breakpoints",
    "tactics": "which places can have a jump, and why others cannot",
    "ppdf": "probes that are located in advance",
    "hooks": "plugins",
    "security": "who is trusted with what",
    "footprint": "what a probed process can notice",
    "soundness": "how it is known that programs run as before",
    "reliability": "what was tried to break it",
    "benchmarks": "what it costs",
    "glossary": "one word for one thing",
};

/// A file of the examples.
#[derive(Debug)]
pub(super) struct Example {
    /// Its path behind `examples/`.
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

macro_rules! examples {
    ($($path:literal)*) => {
        [$(Example { path: $path, text: include_str!(concat!("../../../../examples/", $path)) }),*]
    };
}

macro_rules! headers {
    ($($name:literal)*) => {
        [$(Example {
            path: concat!("plugins/", $name),
            text: include_str!(concat!("../../../hooks/include/", $name)),
        }),*]
    };
}

const FILES: [Example; 20] = examples!(
    "malloc.rpn" "malloc_dump.rpn" "count.rpn" "string.rpn" "register.rpn" "ignore.rpn" "proc.rpn" "open.rpn"
    "templates/malloc.fmt" "templates/string.fmt" "templates/register.fmt" "templates/ignore.fmt"
    "templates/open.fmt"
    "plugins/events.c"
    "services/slow.c" "services/leak.c" "services/lock.c" "services/svc.c" "services/g.go" "services/r.rs"
);

/// Of plugins: beside the example that includes them.
const HEADERS: [Example; 2] = headers!("dprobes_plugin.h" "dprobes_hooks.h");

/// All examples.
pub(super) fn examples() -> impl Iterator<Item = &'static Example> {
    FILES.iter().chain(&HEADERS)
}

/// A page by its name.
pub(super) fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// An example by its path, which begins with `examples/`.
pub(super) fn example(path: &str) -> Option<&'static Example> {
    let path = path.strip_prefix("examples/")?;
    examples().find(|example| example.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of the files under a folder of the repository.
    fn files(folder: &str) -> Vec<String> {
        let root = testing::repository();
        let mut found = Vec::new();
        let mut folders = vec![root.join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file")) {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => found.push(path.strip_prefix(root).expect("below").display().to_string()),
                }
            }
        }
        found
    }

    #[test]
    fn every_page_and_example_of_the_sources_is_there() {
        // The book's list of pages is none.
        let is_page = |path: &&String| path.ends_with(".md") && *path != "docs/SUMMARY.md";
        for path in files("docs").iter().filter(is_page) {
            let name = path.strip_prefix("docs/").and_then(|path| path.strip_suffix(".md"));
            assert!(name.and_then(page).is_some(), "{path} is not listed");
        }
        // A plugin in Rust is built in the sources only.
        for path in files("examples").iter().filter(|path| !path.starts_with("examples/plugins/unique/")) {
            assert!(example(path).is_some(), "{path} is not listed");
        }
        for path in files("crates/hooks/include") {
            let name = path.rsplit('/').next().expect("a name");
            assert!(example(&format!("examples/plugins/{name}")).is_some(), "{path} is not listed");
        }
    }
}
