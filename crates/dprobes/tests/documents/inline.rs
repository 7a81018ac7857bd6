//! The commands that a document shows outside of its sessions: in tables, in prose, and in blocks
//! without a prompt.

use std::collections::BTreeSet;
use std::ops::Range;

use testing::repository;

/// A command outside of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    /// The line it begins in, from 1.
    pub(crate) line: usize,
    /// Its text, in one line.
    pub(crate) words: String,
    /// The section that its text links to: `cookbook.md#who-calls-it`.
    pub(crate) link: Option<String>,
    /// Whether it stands in a table of options.
    pub(crate) is_option: bool,
}

/// The commands that a document of the repository shows outside of its sessions, each once.
pub(crate) fn mentions(name: &str) -> Vec<Mention> {
    let text = std::fs::read_to_string(repository().join(name)).expect("it was read before");
    let mut all = parse(&text);
    let mut seen = BTreeSet::new();
    all.retain(|mention| seen.insert((mention.words.clone(), mention.link.clone(), mention.is_option)));
    all
}

/// What of a text is outside of sessions and is a command.
///
/// In a block without a prompt, each line of a shell's block (`sh`, or indented), and in others
/// each that begins with `dprobes`. In prose and in tables, what stands in code and begins with
/// `dprobes`; has several words and begins with one that may be the name of a program; is the
/// text of a link to a section; or is in a table whose first column is `option`.
fn parse(text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    // The paragraph so far, with the line that it begins in.
    let mut paragraph = (0, String::new());
    // The language of the block, and whether it is a session.
    let mut block: Option<(String, bool)> = None;
    let mut is_table_of_options = false;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(language) = content.strip_prefix("```") {
            prose(&std::mem::take(&mut paragraph), is_table_of_options, &mut found);
            block = if block.is_some() { None } else { Some((language.to_string(), false)) };
        } else if let Some((language, is_session)) = &mut block {
            *is_session |= content.starts_with("$ ") || content.starts_with("# ");
            let is_command = language == "sh" || content.starts_with("dprobes ");
            if is_command && !*is_session {
                found.push(of_block(line, content));
            }
        } else if content.starts_with("    ") && paragraph.1.is_empty() {
            found.push(of_block(line, content));
        } else if content.trim().is_empty() {
            prose(&std::mem::take(&mut paragraph), is_table_of_options, &mut found);
            is_table_of_options = false;
        } else {
            if paragraph.1.is_empty() {
                paragraph.0 = line;
                is_table_of_options = content.starts_with("| option |");
            }
            paragraph.1 += content;
            paragraph.1.push('\n');
        }
    }
    prose(&paragraph, is_table_of_options, &mut found);
    found
}

fn of_block(line: usize, content: &str) -> Mention {
    Mention { line, words: content.trim().to_string(), link: None, is_option: false }
}

/// Finds the commands in a paragraph or table.
fn prose((first, text): &(usize, String), is_table_of_options: bool, found: &mut Vec<Mention>) {
    let links = links(text);
    let mut at = 0;
    while let Some(begin) = text[at..].find('`').map(|begin| at + begin + 1) {
        let Some(end) = text[begin..].find('`').map(|length| begin + length) else { break };
        let words = text[begin..end].replace("\\|", "|").split_whitespace().collect::<Vec<_>>().join(" ");
        let line = first + text[..begin].matches('\n').count();
        let link = links.iter().find(|(of, _)| of.contains(&begin)).map(|(_, target)| target.clone());
        // A column of a row ends where the next bar is.
        let row = text[..begin].rsplit('\n').next().unwrap_or_default();
        let is_in_first_column = row.replace("\\|", "").matches('|').count() == 1;
        let is_option = is_table_of_options && is_in_first_column && words.starts_with('-');
        if link.is_some() || is_option || is_command(&words) {
            found.push(Mention { line, words, link, is_option });
        }
        at = end + 1;
    }
}

/// The texts of links to sections, with what they lead to.
fn links(text: &str) -> Vec<(Range<usize>, String)> {
    let ends = text.match_indices("](");
    let link = |(end, _): (usize, &str)| {
        let target = text[end + 2..].split(')').next().filter(|target| target.contains('#'))?;
        Some((text[..end].rfind('[')?..end, target.to_string()))
    };
    ends.filter_map(link).collect()
}

/// Whether code is a command: of dprobes, or several words the first of which may be a program.
fn is_command(words: &str) -> bool {
    let (first, behind) = words.split_once(' ').unwrap_or((words, ""));
    let is_name = |each: char| each.is_ascii_lowercase() || each.is_ascii_digit() || "_-.".contains(each);
    let may_be_program =
        first.starts_with(|each: char| each.is_ascii_lowercase()) && first.chars().all(is_name);
    match first {
        "dprobes" => !behind.is_empty(),
        _ => may_be_program && !behind.is_empty() && !behind.starts_with('='),
    }
}

/// The anchor of a heading, as GitHub makes it.
pub(crate) fn anchor(heading: &str) -> String {
    let is_kept = |each: &char| each.is_alphanumeric() || " -_".contains(*each);
    heading.to_lowercase().chars().filter(is_kept).map(|each| if each == ' ' { '-' } else { each }).collect()
}

/// The rules, on a text that needs them.
pub(crate) fn examples() {
    let text = "`dprobes` has `dprobes list FILE` and\n`dprobes\ntop`, `exit`, `offset = f`, `cargo\ntest`; \
                `a:b c`.\n\n    make all\n\n| option | |\n|---|---|\n| `-v`, `--log a\\|b` | as `-o FILE` |\n\n\
                | `dprobes show\\|format F` | see [`-o FILE`, `dprobes x`](y.md#z) |\n\n```sh\nls -l\n```\n\n\
                ```text\ndprobes run\n$ dprobes doctor\ndprobes: summary\n```\n";
    let found = parse(text);
    let shown: Vec<(usize, &str)> = found.iter().map(|each| (each.line, each.words.as_str())).collect();
    assert_eq!(
        shown,
        [
            (1, "dprobes list FILE"),
            (2, "dprobes top"),
            (3, "cargo test"),
            (6, "make all"),
            (10, "-v"),
            (10, "--log a|b"),
            (12, "dprobes show|format F"),
            (12, "-o FILE"),
            (12, "dprobes x"),
            (15, "ls -l"),
            (19, "dprobes run"),
        ]
    );
    assert!(found.iter().all(|each| each.is_option == (each.line == 10)));
    assert!(found.iter().all(|each| each.link.is_some() == ["-o FILE", "dprobes x"].contains(&&*each.words)));
    assert_eq!(anchor("How often does Python collect garbage?"), "how-often-does-python-collect-garbage");
}
