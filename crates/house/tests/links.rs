//! Links of the documentation lead to files, and to headings in them, that are there.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What a page links to, and the anchors of its headings.
#[derive(Debug, Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let text = heading.take().unwrap_or_default();
                // Of several headings with one text, those behind the first have a number.
                let first = anchor(&text);
                let numbered = (1..).map(|number| format!("{first}-{number}"));
                let free = std::iter::once(first.clone()).chain(numbered).find(|a| !page.anchors.contains(a));
                page.anchors.extend(free);
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page
}

/// A heading's anchor, as the usual sites that show Markdown make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The links of a page that lead nowhere.
fn broken(path: &Path, pages: &BTreeMap<PathBuf, Page>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for link in &pages[path].links {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => path.to_owned(),
            file => plain(&path.parent().unwrap_or(Path::new("")).join(file)),
        };
        let has_anchor = || pages.get(&target).is_none_or(|page| page.anchors.contains(anchor));
        if !exists(&target) || !(anchor.is_empty() || has_anchor()) {
            broken.push(format!("{}: {link}", path.display()));
        }
    }
    broken
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# A page\n\n## What `it` is: 5%\n\n## What it is 5\n\n[a](#what-it-is-5-1) [b](other.md) \
                [c](#none) [d](../x.rs#L5) [e](https://none.example/#x) [f](none.md)\n";
    let pages = BTreeMap::from([(PathBuf::from("docs/a.md"), page(text))]);
    let exists =
        |path: &Path| ["docs/a.md", "docs/other.md", "x.rs"].iter().any(|name| path == Path::new(name));
    let found = broken(Path::new("docs/a.md"), &pages, exists);
    assert_eq!(found, ["docs/a.md: #none", "docs/a.md: none.md"]);
}

#[test]
fn links_lead_somewhere() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = BTreeMap::new();
    for folder in ["", "docs", "fuzz", "packaging"] {
        let Ok(entries) = std::fs::read_dir(repository.join(folder)) else { continue };
        for entry in entries.flatten().filter(|entry| entry.path().extension().is_some_and(|e| e == "md")) {
            let text = std::fs::read_to_string(entry.path()).expect("a page");
            pages.insert(Path::new(folder).join(entry.file_name()), page(&text));
        }
    }
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    assert!(pages.len() > 30 && links > 200, "{links} links of {} pages", pages.len());
    let exists = |path: &Path| repository.join(path).exists();
    let broken: Vec<String> = pages.keys().flat_map(|path| broken(path, &pages, exists)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
