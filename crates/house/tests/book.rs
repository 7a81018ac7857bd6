//! The book (`book.toml`, `docs/SUMMARY.md`) has every page of docs/, by its title.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The links of a summary: file and title, in their order.
fn chapters(summary: &str) -> Vec<(String, String)> {
    let mut chapters = Vec::new();
    let mut open: Option<(String, String)> = None;
    for event in Parser::new(summary) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => open = Some((dest_url.into_string(), String::new())),
            Event::End(TagEnd::Link) => chapters.extend(open.take()),
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, title)) = &mut open {
                    title.push_str(&text);
                }
            }
            _ => {}
        }
    }
    chapters
}

/// The title of a page: its first heading, without marks of code.
fn title(page: &str) -> String {
    let heading = page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    heading.replace('`', "")
}

/// What a summary has that are not the pages, each once and by its title.
fn differences(chapters: &[(String, String)], pages: &BTreeMap<String, String>) -> Vec<String> {
    let mut told = Vec::new();
    for (page, title) in pages {
        match chapters.iter().filter(|(file, _)| file == page).collect::<Vec<_>>()[..] {
            [(_, own)] if own == title => {}
            [(_, own)] => told.push(format!("{page} is called {own:?}, its heading is {title:?}")),
            [] => told.push(format!("{page} is not in the book")),
            _ => told.push(format!("{page} is in the book more than once")),
        }
    }
    let unknown = chapters.iter().filter(|(file, _)| !pages.contains_key(file));
    told.extend(unknown.map(|(file, _)| format!("{file} is no page")));
    told
}

#[test]
fn what_a_summary_lacks_is_found() {
    let pages = [("a.md", "A"), ("b.md", "B"), ("c.md", "C")];
    let pages = pages.map(|(file, title)| (file.to_owned(), title.to_owned())).into();
    let summary = "# Summary\n\n- [A](a.md)\n  - [Other](b.md)\n- [D](d.md)\n";
    assert_eq!(
        differences(&chapters(summary), &pages),
        ["b.md is called \"Other\", its heading is \"B\"", "c.md is not in the book", "d.md is no page"]
    );
    assert_eq!(title("text\n# The `--stats` file\n# Other\n"), "The --stats file");
}

#[test]
fn every_page_is_in_the_book() {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(docs()).expect("the documentation is there").flatten() {
        let name = entry.file_name().into_string().expect("text");
        if name.ends_with(".md") && name != "SUMMARY.md" {
            let text = std::fs::read_to_string(entry.path()).expect("a page");
            pages.insert(name, title(&text));
        }
    }
    assert!(pages.len() > 30, "{} pages", pages.len());
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).expect("the book has a summary");
    let told = differences(&chapters(&summary), &pages);
    assert!(told.is_empty(), "docs/SUMMARY.md:\n{}", told.join("\n"));
}
